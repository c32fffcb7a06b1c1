"""Tensor parallel in placement: every node has a part of every layer, of the same size."""

from msgspec.structs import replace

from node.model.card import LayerBytes, ModelCard

TENSOR = "tensor"


def rank_card(card: ModelCard, ranks: int) -> ModelCard:
    """The model as one of so many ranks holds it; its sums over all layers are what counts."""
    rank = next(rank for rank in card.tensor_ranks if rank.ranks == ranks)
    whole = LayerBytes(rank.weights, rank.kv_per_token, rank.dense_weights)
    return replace(
        card,
        layers=(whole, *(LayerBytes(0, 0),) * (card.layer_count - 1)),
        embedding_bytes=0,
        dense_embedding_bytes=0,
        forbidden_cuts=(),
        uncuttable_reason="",
    )
