"""`python -m node.runner.inspect DIRECTORY`: what placement must know of a model, as JSON.

Prints a `ModelCard` with `model` and `source` left empty; reads headers and no weights. A directory
that can't be used gives `{"error": {...}}` and exit code 1.
"""

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from node.model.card import LayerBytes, ModelCard
from node.model.errors import ExoctlError, UsageError
from node.model.ids import ModelId
from node.runner.environment import prepare_environment
from node.runner.failures import RunnerError, failure_of

if TYPE_CHECKING:
    from node.runner.architecture import Architecture


def inspect_model(directory: Path) -> ModelCard:
    """Make the card of a model directory.

    Raises:
        RunnerError: it is not usable, or its architecture does not run on this machine.
    """
    # Imported late: mlx and transformers read their settings when they are imported.
    from mlx_lm.utils import get_total_parameters  # noqa: PLC0415

    from node.runner import architecture, cache_cost, divide, shard_loader  # noqa: PLC0415

    loaded = shard_loader.open_model(directory)
    layers = list(loaded.model.layers)
    shard_loader.check_files(directory, 0, len(layers))
    tokenizer = shard_loader.open_tokenizer(directory, loaded.config)
    try:
        by_slot = cache_cost.cache_bytes_by_slot(loaded.model)
    except Exception as error:
        raise shard_loader.unsupported(
            loaded.config, f"it does not run on this machine: {type(error).__name__}: {error}"
        ) from error
    traced: architecture.Architecture | None = None
    reason = ""
    try:
        traced = architecture.trace(loaded.model)
    except RunnerError as error:
        reason = error.failure.message
    weights = [shard_loader.weight_bytes(layer) for layer in layers]
    whole = shard_loader.weight_bytes(loaded.model)
    text = _text_config(loaded.config)
    heads = _count(text, "num_attention_heads", "n_heads", "n_head", "num_heads", least=1)
    hidden = traced.hidden.shape[-1] if traced else _count(text, "hidden_size", "d_model", least=1)
    ranks, ranks_reason = divide.tensor_ranks(loaded.model, heads, directory)
    return ModelCard(
        model=ModelId(""),
        architecture=str(loaded.config["model_type"]),
        source="",
        layers=tuple(
            LayerBytes(stored, kv, dense)
            for (stored, dense), kv in zip(
                weights, _cache_bytes_by_layer(by_slot, len(layers), traced), strict=True
            )
        ),
        embedding_bytes=whole[0] - sum(stored for stored, _ in weights),
        dense_embedding_bytes=whole[1] - sum(dense for _, dense in weights),
        hidden_size=hidden,
        activation_bytes_per_token=_activation_bytes(traced, hidden),
        context_tokens_max=_count(text, "max_position_embeddings", "n_positions", "n_ctx", least=0)
        or tokenizer_context(tokenizer),
        parameters=int(get_total_parameters(loaded.model)),
        quantisation_bits=_count(loaded.config.get("quantization") or {}, "bits", least=0),
        attention_heads=heads,
        kv_heads=_count(text, "num_key_value_heads", "n_kv_heads", least=0) or heads,
        forbidden_cuts=tuple(sorted(traced.forbidden_cuts)) if traced else (),
        uncuttable_reason=reason,
        supports_tools=bool(tokenizer.has_tool_calling),
        supports_thinking=bool(tokenizer.has_thinking),
        tensor_ranks=ranks,
        tensor_reason=ranks_reason,
    )


CONTEXT_FALLBACK_TOKENS = 4096
CONTEXT_PLAUSIBLE_TOKENS = 100_000_000


def tokenizer_context(tokenizer: Any) -> int:
    """The context by the tokenizer's word, where config.json is silent."""
    length = getattr(tokenizer, "model_max_length", 0)
    if isinstance(length, int) and 0 < length < CONTEXT_PLAUSIBLE_TOKENS:
        return length
    return CONTEXT_FALLBACK_TOKENS


def _text_config(config: dict[str, Any]) -> dict[str, Any]:
    nested = config.get("text_config")
    return {**config, **nested} if isinstance(nested, dict) else config


def _count(config: dict[str, Any], *names: str, least: int) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
    return least


def _cache_bytes_by_layer(
    by_slot: list[int], layer_count: int, traced: "Architecture | None"
) -> list[int]:
    """A cache entry that several layers use is charged to the first of them."""
    if traced is None:
        each = sum(by_slot) / layer_count
        return [math.ceil(each)] * layer_count
    charged: set[int] = set()
    bytes_by_layer: list[int] = []
    for layer in range(layer_count):
        slot = traced.slot_of_layer.get(layer)
        if slot is None or slot in charged:
            bytes_by_layer.append(0)
            continue
        charged.add(slot)
        bytes_by_layer.append(by_slot[slot])
    return bytes_by_layer


def _activation_bytes(traced: "Architecture | None", hidden: int) -> int:
    if traced is None:
        return hidden * 4
    cuts = [cut for cut in range(1, traced.layer_count) if cut not in traced.forbidden_cuts]
    return max((traced.bytes_per_token(cut) for cut in cuts), default=hidden * 4)


def _directory(arguments: list[str]) -> Path:
    if len(arguments) != 1:
        raise UsageError.because("bad_arguments", "needs one path: DIRECTORY")
    return Path(arguments[0])


def main(arguments: list[str]) -> int:
    """Inspect as the command line says; returns the exit code."""
    prepare_environment()
    try:
        card = inspect_model(_directory(arguments))
    except ExoctlError as error:
        failure = error.failure
    except Exception as error:  # noqa: BLE001 - a model's files can break mlx-lm anywhere
        failure = failure_of(error)
    else:
        sys.stdout.write(msgspec.json.encode(card).decode() + "\n")
        return 0
    sys.stdout.write(msgspec.json.encode({"error": failure}).decode() + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
