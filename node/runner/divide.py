"""In how many parts a model's layers can be divided, found out without computing anything."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from node.model.card import TensorRank
from node.runner.cache_cost import cache_bytes_by_slot
from node.runner.shard_loader import open_model, weight_bytes

RANKS_MAX = 8
PROBE_TOKENS = 3
REASON_MAX = 200


class _Parts:
    """Stands for a group of ranks while shapes are looked at."""

    def __init__(self, size: int) -> None:
        self._size = size

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return 0


def tensor_ranks(model: Any, heads: int, directory: Path) -> tuple[tuple[TensorRank, ...], str]:
    """What a rank holds, for each number of ranks that works; and why none does.

    The model of the directory is opened anew each time, no weight read: dividing changes it.
    """
    if not hasattr(model, "shard"):
        return (), "mlx-lm does not know how to divide its family"
    found: list[TensorRank] = []
    reasons: list[str] = []
    for ranks in range(2, RANKS_MAX + 1):
        if heads % ranks:
            reasons.append(f"{heads} heads can't be divided by {ranks}")
            continue
        try:
            found.append(_rank(open_model(directory).model, ranks))
        except Exception as error:  # noqa: BLE001 - mlx-lm raises whatever a wrong shape leads to
            reasons.append(f"over {ranks}: {str(error) or type(error).__name__}"[:REASON_MAX])
    return tuple(found), "" if found else reasons[0]


def _rank(model: Any, ranks: int) -> TensorRank:
    """Divide and compute lazily, prompt and token: what does not fit together raises.

    Heads that are left over would be dropped without a word: the sizes must come out whole.
    """
    whole = _heads(model)
    with _alone(ranks):
        model.shard(_Parts(ranks))
        for before, after in zip(whole, _heads(model), strict=True):
            if after * ranks != before and after != before:
                raise ValueError(f"{before} heads can't be divided by {ranks}")
        cache = make_prompt_cache(model)
        model(mx.zeros((1, PROBE_TOKENS), mx.int32), cache=cache)
        model(mx.zeros((1, 1), mx.int32), cache=cache)
        per_token = sum(cache_bytes_by_slot(model))
    stored, dense = weight_bytes(model)
    return TensorRank(ranks, stored, per_token, dense)


def _heads(model: Any) -> list[int]:
    """Every count of heads in the model's modules."""
    counts: list[int] = []
    for _, module in model.named_modules():
        for name, value in sorted(vars(module).items()):
            if "head" in name and isinstance(value, int) and "dim" not in name:
                counts.append(value)
    return counts


@contextmanager
def _alone(ranks: int) -> Generator[None]:
    """What goes over ranks has its shape and no more: there are no others."""
    module: Any = mx.distributed
    real = (module.all_sum, module.all_gather)

    def all_sum(array: mx.array, **_: object) -> mx.array:
        return array

    def all_gather(array: mx.array, **_: object) -> mx.array:
        return mx.concatenate([array] * ranks)

    module.all_sum, module.all_gather = all_sum, all_gather
    try:
        yield
    finally:
        module.all_sum, module.all_gather = real
