"""mlx-lm's key/value cache, without the price of a batch where there is only one row.

mlx-lm computes a batch with an array of offsets, one for each row, and with a mask that hides what
pads the shorter ones. For a single row both say nothing, and cost a dozen operations in each layer.
Here a batch of one keeps its offset as a number and needs no mask, as mlx-lm's own cache of one
row; a second row turns it into a batch, and the last one left makes it one row again.
"""

from collections.abc import Sequence
from typing import Any, Self

import mlx.core as mx
from mlx_lm.models.cache import (
    BatchKVCache,
    KVCache,
    create_attention_mask,
    make_prompt_cache,
)


class RowCache(KVCache):
    """Of one sequence, as it is kept."""

    @classmethod
    def merge(cls, caches: Sequence[KVCache]) -> "RowsCache":
        """A batch of them, the shorter ones padded."""
        return RowsCache.merge(caches)


class RowsCache(BatchKVCache):
    """Of the sequences that are computed together."""

    @property
    def is_single(self) -> bool:
        """Whether it has one row, without padding."""
        return isinstance(self.offset, int)

    @classmethod
    def merge(cls, caches: Sequence[KVCache]) -> Self:
        """A batch of caches of one sequence each, the shorter ones padded."""
        merged = super().merge(caches)
        batch = cls([0] * len(caches))
        batch.left_padding = merged.left_padding
        batch.state = merged.state
        if len(caches) == 1:
            batch.offset = merged.size()
        return batch

    def make_mask(self, N: int, return_array: bool = False, **settings: Any) -> Any:  # noqa: FBT001, FBT002, N803 - mlx-lm's own signature
        """What may attend to what; None where one token of one row attends to all."""
        if not isinstance(self.offset, int):
            return super().make_mask(N, return_array, **settings)
        window = settings.pop("window_size", None)
        return create_attention_mask(
            N, self.offset, return_array=return_array, window_size=window, **settings
        )

    def prepare(self, **settings: Any) -> None:
        """Rows of different lengths are about to be fed."""
        self.as_batch()
        super().prepare(**settings)

    def filter(self, batch_indices: Sequence[int]) -> None:
        """Keep just these rows."""
        if self.is_single and len(batch_indices) == 1:
            return
        self.as_batch()
        super().filter(batch_indices)
        if len(batch_indices) == 1:
            self.offset = self.size()

    def extend(self, other: "RowsCache") -> None:
        """Take in the rows of another batch."""
        self.as_batch()
        other.as_batch()
        super().extend(other)

    def extract(self, idx: int) -> RowCache:
        """One row by itself."""
        row = RowCache()
        row.state = super().extract(idx).state
        return row

    def as_batch(self) -> None:
        """Hold the offset of each row, as mlx-lm's own code for batches wants it."""
        if self.is_single:
            self.offset = mx.array([self.offset])


def make_caches(model: Any) -> list[Any]:
    """The caches of a new sequence, those without a window as rows."""
    return [RowCache() if type(cache) is KVCache else cache for cache in make_prompt_cache(model)]
