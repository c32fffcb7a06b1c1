"""Model cards: what placement must know of a model before anything is loaded."""

import msgspec

from node.model.ids import ModelId


class LayerBytes(msgspec.Struct, frozen=True, array_like=True):
    """What one layer costs."""

    weights: int
    """Bytes of the layer's tensors as they lie on disk."""
    kv_per_token: int
    """Bytes of key/value cache per token of context."""
    dense_weights: int = 0
    """Bytes of the layer's tensors as float32, where a runner unpacks them to compute faster."""


class TensorRank(msgspec.Struct, frozen=True, array_like=True):
    """What each rank holds where every layer is divided among so many ranks."""

    ranks: int
    weights: int
    """Bytes of its part of all tensors, as they lie on disk; the embedding is whole on each."""
    kv_per_token: int
    """Bytes of key/value cache per token, all layers together."""
    dense_weights: int = 0


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of one model, made from its config and its safetensors headers; nothing by name."""

    model: ModelId
    architecture: str
    """`model_type` of config.json, such as `llama`."""
    source: str
    """Where it comes from: `embedded`, `local`, or a hub repository with its revision."""
    layers: tuple[LayerBytes, ...]
    embedding_bytes: int
    """Embedding, final norm and head, as they lie on disk; held by rank 0."""
    dense_embedding_bytes: int = 0
    hidden_size: int
    activation_bytes_per_token: int
    """Bytes that cross a hop for each token."""
    context_tokens_max: int
    parameters: int
    quantisation_bits: int = 0
    """0 for dense weights."""
    attention_heads: int
    kv_heads: int
    forbidden_cuts: tuple[int, ...] = ()
    """Layer indices before which the model can't be cut into pipeline stages."""
    uncuttable_reason: str = ""
    """Why the model can't be cut at all; empty where it can."""
    supports_tools: bool = False
    supports_thinking: bool = False
    tensor_ranks: tuple[TensorRank, ...] = ()
    """In how many ranks its layers can be divided, by rising number; empty where they can't."""
    tensor_reason: str = ""
    """Why they can't be divided at all; empty where they can."""

    @property
    def layer_count(self) -> int:
        """Number of layers."""
        return len(self.layers)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the whole model on disk."""
        return self.embedding_bytes + sum(layer.weights for layer in self.layers)
