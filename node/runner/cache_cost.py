"""What a model's key/value cache costs for each token, found out without computing anything."""

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from node.runner.architecture import Architecture, leaves

PROBES = (256, 512)
"""Lengths whose difference is measured; caches grow in steps of 256."""
REFERENCE_TOKENS = 8192
"""A window shorter than this is charged as its share of it."""


def cache_bytes_by_slot(model: Any) -> list[int]:
    """Bytes per token of each entry of the model's cache list; 0 where it does not grow."""
    short, long = (_measure(model, tokens) for tokens in PROBES)
    growth = [
        (after - before) // (PROBES[1] - PROBES[0])
        for before, after in zip(short, long, strict=True)
    ]
    return [
        _in_window(bytes_per_token, cache)
        for bytes_per_token, cache in zip(growth, make_prompt_cache(model), strict=True)
    ]


def cache_bytes_of(model: Any, architecture: Architecture, shard: range) -> int:
    """Bytes per token of the layers in the shard."""
    by_slot = cache_bytes_by_slot(model)
    slots = {
        architecture.slot_of_layer[layer] for layer in shard if layer in architecture.slot_of_layer
    }
    return sum(by_slot[slot] for slot in slots)


def _measure(model: Any, tokens: int) -> list[int]:
    caches = make_prompt_cache(model)
    model(mx.zeros((1, tokens), mx.int32), cache=caches)
    return [sum(array.nbytes for _, array in leaves(cache.state)) for cache in caches]


def _in_window(bytes_per_token: int, cache: Any) -> int:
    window = getattr(cache, "max_size", None)
    if isinstance(window, int) and 0 < window < REFERENCE_TOKENS:
        return -(-bytes_per_token * window // REFERENCE_TOKENS)
    return max(0, bytes_per_token)
