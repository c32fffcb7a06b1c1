"""Caches of remote layers: rank 0 records what happens to them, the other stages do it again."""

import copy
import weakref
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import msgspec

from node.runner.failures import RunnerError


class CacheStore:
    """The real caches of a stage after rank 0, by handle."""

    def __init__(self, make: Callable[[], list[Any]]) -> None:
        self.make = make
        self._caches: dict[int, list[Any]] = {}

    def __len__(self) -> int:
        """Live handles."""
        return len(self._caches)

    @property
    def bytes_held(self) -> int:
        """Bytes of all caches."""
        return sum(cache.nbytes for caches in self._caches.values() for cache in caches)

    def get(self, handle: int) -> list[Any]:
        """Caches behind a handle.

        Raises:
            RunnerError: no such handle; the stages do not agree any more.
        """
        caches = self._caches.get(handle)
        if caches is None:
            raise RunnerError.because("stages_disagree", f"no cache has the handle {handle}")
        return caches

    def put(self, handle: int, caches: list[Any]) -> None:
        """Keep caches behind a new handle."""
        self._caches[handle] = caches

    def free(self, handle: int) -> None:
        """Let them go."""
        self._caches.pop(handle, None)


class CacheMade(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Fresh caches of one sequence."""

    handle: int

    def apply(self, store: CacheStore) -> None:
        """Do it again."""
        store.put(self.handle, store.make())


class CachesMerged(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A batch made of sequences."""

    handle: int
    sources: list[int]

    def apply(self, store: CacheStore) -> None:
        """Do it again."""
        groups = [store.get(source) for source in self.sources]
        merged = [parts[0].merge(list(parts)) for parts in zip(*groups, strict=True)]
        store.put(self.handle, merged)


class CacheExtended(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Another batch's rows added."""

    handle: int
    source: int

    def apply(self, store: CacheStore) -> None:
        """Do it again."""
        for cache, other in zip(store.get(self.handle), store.get(self.source), strict=True):
            cache.extend(other)


class CacheFiltered(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Only these rows stay."""

    handle: int
    rows: list[int]

    def apply(self, store: CacheStore) -> None:
        """Do it again."""
        for cache in store.get(self.handle):
            cache.filter(self.rows)


class CacheExtracted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One row of a batch as a sequence of its own."""

    handle: int
    source: int
    row: int

    def apply(self, store: CacheStore) -> None:
        """Do it again."""
        extracted = [cache.extract(self.row) for cache in store.get(self.source)]
        # Left lazy, the row would keep the whole batch it came from in memory.
        mx.eval([cache.state for cache in extracted])
        store.put(self.handle, extracted)


class CachePrepared(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What the next tokens are padded with."""

    handle: int
    options: dict[str, list[int] | None]

    def apply(self, store: CacheStore) -> None:
        """Do it again."""
        for cache in store.get(self.handle):
            cache.prepare(**self.options)


class CacheFinalised(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The padded tokens are through."""

    handle: int

    def apply(self, store: CacheStore) -> None:
        """Do it again."""
        for cache in store.get(self.handle):
            cache.finalize()


class CacheTrimmed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The last tokens are taken back."""

    handle: int
    tokens: int

    def apply(self, store: CacheStore) -> None:
        """Do it again."""
        for cache in store.get(self.handle):
            cache.trim(self.tokens)


class CacheCopied(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A deep copy."""

    handle: int
    source: int

    def apply(self, store: CacheStore) -> None:
        """Do it again."""
        store.put(self.handle, copy.deepcopy(store.get(self.source)))


class CacheFreed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Not wanted any more."""

    handle: int

    def apply(self, store: CacheStore) -> None:
        """Do it again."""
        store.free(self.handle)


Operation = (
    CacheMade
    | CachesMerged
    | CacheExtended
    | CacheFiltered
    | CacheExtracted
    | CachePrepared
    | CacheFinalised
    | CacheTrimmed
    | CacheCopied
    | CacheFreed
)


class Journal:
    """Rank 0's record of what happened to remote caches since the last frame."""

    def __init__(self) -> None:
        self._operations: list[Operation] = []
        self._next_handle = 0

    def __len__(self) -> int:
        """Operations that no frame has carried yet."""
        return len(self._operations)

    def new_handle(self) -> int:
        """A handle that was never used."""
        self._next_handle += 1
        return self._next_handle

    def append(self, operation: Operation) -> None:
        """Record."""
        self._operations.append(operation)

    def take(self) -> list[Operation]:
        """What the next frame carries."""
        operations = self._operations
        self._operations = []
        return operations

    def make(self) -> "RemoteCache":
        """Fresh caches of all remote layers."""
        cache = RemoteCache(self)
        self.append(CacheMade(cache.handle))
        return cache


class RemoteCache:
    """Stands at the end of rank 0's cache list for all remote layers; looks like a cache to mlx-lm.

    Whether it can be trimmed need not be asked of the other stages: for every kind of cache that
    they hold, rank 0 holds one too, if only a shadow.
    """

    nbytes = 0
    state: tuple[()] = ()

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.handle = journal.new_handle()
        weakref.finalize(self, journal.append, CacheFreed(self.handle)).atexit = False

    def merge(self, caches: list["RemoteCache"]) -> "RemoteCache":
        """A batch of the given sequences."""
        merged = RemoteCache(self._journal)
        self._journal.append(CachesMerged(merged.handle, [cache.handle for cache in caches]))
        return merged

    def extend(self, other: "RemoteCache") -> None:
        """Add the other's rows."""
        self._journal.append(CacheExtended(self.handle, other.handle))

    def filter(self, keep: list[int]) -> None:
        """Keep only these rows."""
        self._journal.append(CacheFiltered(self.handle, [int(row) for row in keep]))

    def extract(self, row: int) -> "RemoteCache":
        """One row, as a sequence of its own."""
        extracted = RemoteCache(self._journal)
        self._journal.append(CacheExtracted(extracted.handle, self.handle, int(row)))
        return extracted

    def prepare(self, **options: list[int] | None) -> None:
        """Tell of padding."""
        plain = {
            name: None if values is None else [int(value) for value in values]
            for name, values in options.items()
        }
        self._journal.append(CachePrepared(self.handle, plain))

    def finalize(self) -> None:
        """The padding is through."""
        self._journal.append(CacheFinalised(self.handle))

    def trim(self, tokens: int) -> int:
        """Take back the last tokens."""
        self._journal.append(CacheTrimmed(self.handle, int(tokens)))
        return tokens

    def is_trimmable(self) -> bool:
        """Always, as far as this one knows."""
        return True

    def empty(self) -> bool:
        """Unknown here, and not asked of it where others are in the list."""
        return False

    def size(self) -> int:
        """Unknown here."""
        return 0

    def __deepcopy__(self, _: dict[int, Any]) -> "RemoteCache":
        copied = RemoteCache(self._journal)
        self._journal.append(CacheCopied(copied.handle, self.handle))
        return copied
