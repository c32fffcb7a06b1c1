"""A batch of one row costs no batch, and any batch holds what mlx-lm's own holds."""

import random
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import BatchKVCache, KVCache

from node.runner.row_cache import RowCache, RowsCache

HEADS, WIDTH = 2, 4


def tokens(chance: random.Random, rows: int, length: int) -> tuple[mx.array, mx.array]:
    key = mx.random.key(chance.randrange(2**30))
    both = mx.random.normal((2, rows, HEADS, length, WIDTH), key=key)
    return both[0], both[1]


def offsets_of(cache: BatchKVCache) -> list[int]:
    offset: mx.array | int = cache.offset
    return [offset] if isinstance(offset, int) else [int(each) for each in offset]


class Pair:
    """Ours beside mlx-lm's, fed alike."""

    def __init__(self, chance: random.Random, length: int) -> None:
        self.rows = 1
        ours, theirs = RowCache(), KVCache()
        if length:
            keys, values = tokens(chance, 1, length)
            ours.update_and_fetch(keys, values)
            theirs.update_and_fetch(keys, values)
        self.ours = ours.merge([ours])
        self.theirs = BatchKVCache.merge([theirs])

    def feed(self, chance: random.Random, length: int) -> None:
        keys, values = tokens(chance, self.rows, length)
        self.ours.update_and_fetch(keys, values)
        self.theirs.update_and_fetch(keys, values)

    def join(self, other: "Pair") -> None:
        self.ours.extend(other.ours)
        self.theirs.extend(other.theirs)
        self.rows += other.rows

    def keep(self, rows: list[int]) -> None:
        self.ours.filter(rows)
        self.theirs.filter(rows)
        self.rows = len(rows)

    def trim(self, count: int) -> None:
        assert self.ours.trim(count) == self.theirs.trim(count)

    def check(self) -> None:
        assert self.ours.size() == self.theirs.size()
        assert offsets_of(self.ours) == offsets_of(self.theirs)
        assert self.ours.is_single == (self.rows == 1)
        for row in range(self.rows):
            mine, stock = self.ours.extract(row), self.theirs.extract(row)
            assert isinstance(mine, RowCache)
            assert mine.offset == stock.offset
            state: list[tuple[Any, Any]] = list(zip(mine.state[:2], stock.state[:2], strict=True))
            assert all(mx.array_equal(one, other) for one, other in state)


@pytest.mark.parametrize("seed", range(40))
def test_whoever_joins_and_leaves_it_holds_what_mlx_lms_own_holds(seed: int) -> None:
    chance = random.Random(seed)
    pair = Pair(chance, chance.randrange(1, 400))
    for _ in range(12):
        step = chance.choice(["feed", "feed", "join", "keep", "trim"])
        if step == "feed":
            pair.feed(chance, chance.choice([1, 1, 1, 7]))
        elif step == "join" and pair.rows < 4:
            newcomer = Pair(chance, chance.randrange(1, 400))
            newcomer.feed(chance, 1)
            pair.join(newcomer)
        elif step == "keep":
            count = chance.randrange(1, pair.rows + 1)
            pair.keep(sorted(chance.sample(range(pair.rows), count)))
        elif step == "trim" and pair.rows == 1:
            pair.trim(1)
        pair.check()


def test_a_single_row_needs_neither_mask_nor_offsets() -> None:
    chance = random.Random(0)
    pair = Pair(chance, 5)
    pair.feed(chance, 1)
    assert pair.ours.offset == 6
    assert pair.ours.make_mask(1) is None
    assert pair.ours.make_mask(3) == "causal"


@pytest.mark.parametrize("settings", [{}, {"return_array": True}, {"window_size": 4}])
@pytest.mark.parametrize("length", [1, 3])
def test_where_a_mask_is_asked_for_it_is_that_of_one_sequence(
    length: int, settings: dict[str, int]
) -> None:
    chance = random.Random(1)
    ours, alone = Pair(chance, 6).ours, KVCache()
    alone.update_and_fetch(*tokens(chance, 1, 6))
    asked: dict[str, Any] = {"return_array": False, "window_size": None, **settings}
    mine, wanted = ours.make_mask(length, **asked), alone.make_mask(length, **asked)
    if isinstance(wanted, mx.array):
        assert mx.array_equal(mine, wanted)
    else:
        assert mine == wanted


def test_a_batch_that_begins_empty_can_be_fed_and_joined() -> None:
    empty = RowsCache.merge([RowCache()])
    assert empty.is_single
    chance = random.Random(2)
    empty.update_and_fetch(*tokens(chance, 1, 3))
    empty.extend(Pair(chance, 9).ours)
    assert offsets_of(empty) == [3, 9]
    assert empty.left_padding.tolist() == [6, 0]


def test_rows_of_different_lengths_are_padded_as_ever() -> None:
    caches = [RowCache(), RowCache()]
    batch = RowsCache.merge(caches)
    assert not batch.is_single
    batch.prepare(lengths=[3, 1], right_padding=[0, 2])
    chance = random.Random(3)
    batch.update_and_fetch(*tokens(chance, 2, 3))
    batch.finalize()
    assert offsets_of(batch) == [3, 1]
    assert batch.left_padding.tolist() == [0, 2]
    batch.filter([1])
    assert (batch.is_single, batch.offset) == (True, 1)
