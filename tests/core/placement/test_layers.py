"""Layer ranges: whole layers, in order, within the rooms, by memory."""

from itertools import combinations, pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from node.core.placement.layers import Costs, can_spread, spread, spread_over
from node.core.placement.room import RUNNER_BYTES
from node.model.instance import WeightFormat
from tests.fakes.fleet import GIB, MIB, card

AS_STORED, DENSE = WeightFormat.AS_STORED, WeightFormat.DENSE


def costs(layers: list[int], embedding: int = 0, forbidden: tuple[int, ...] = ()) -> Costs:
    made = card(layers, embedding_bytes=embedding, forbidden_cuts=forbidden)
    return Costs(made, AS_STORED, 100)


def rooms(*free: int) -> list[int]:
    """Rooms that hold the given bytes beside a runner's buffers."""
    return [size + RUNNER_BYTES for size in free]


def every_split(found: Costs, free: list[int]) -> list[tuple[int, ...]]:
    """All splits that fit, by trying each."""
    inner = combinations(found.cuts[1:-1], len(free) - 1)
    splits = [(0, *cuts, found.layer_count) for cuts in inner]
    return [
        split
        for split in splits
        if all(
            found.stage_bytes(*layers) <= room
            for layers, room in zip(pairwise(split), free, strict=True)
        )
    ]


def fullest(found: Costs, split: tuple[int, ...], free: list[int]) -> float:
    return max(
        found.stage_bytes(*layers) / room
        for layers, room in zip(pairwise(split), free, strict=True)
    )


def test_weights_cache_and_buffers_make_a_stage() -> None:
    made = card([10, 20, 30], kv_per_token=2, dense=4, embedding_bytes=7)
    stored = Costs(made, AS_STORED, 100)
    assert stored.weight_bytes(0, 2) == 37
    assert stored.weight_bytes(1, 3) == 50
    assert stored.cache_bytes(1, 3) == 400
    assert stored.stage_bytes(1, 3) == 450 + RUNNER_BYTES
    assert stored.total_bytes(2) == 67 + 600 + 2 * RUNNER_BYTES
    dense = Costs(made, DENSE, 100)
    assert dense.weight_bytes(0, 2) == 127, "an embedding without a dense size counts as stored"
    assert Costs(card([10], dense_embedding_bytes=9), DENSE, 1).weight_bytes(0, 1) == 19


def test_equal_rooms_get_equal_bytes() -> None:
    assert spread(costs([MIB] * 30), rooms(GIB, GIB)) == (0, 15, 30)
    assert spread(costs([MIB] * 12), rooms(GIB, GIB, GIB)) == (0, 4, 8, 12)


def test_a_node_with_more_room_gets_more_layers() -> None:
    assert spread(costs([GIB] * 9), rooms(8 * GIB, 4 * GIB)) == (0, 6, 9)


def test_the_embedding_counts_for_the_first_stage() -> None:
    assert spread(costs([GIB] * 9, embedding=3 * GIB), rooms(8 * GIB, 8 * GIB)) == (0, 3, 9)


def test_forbidden_cuts_are_respected() -> None:
    forbidden = tuple(cut for cut in range(1, 12) if cut % 4)
    assert spread(costs([MIB] * 12, forbidden=forbidden), rooms(GIB, GIB)) == (0, 8, 12)


def test_a_model_that_cannot_be_cut_has_one_stage() -> None:
    whole = Costs(card(uncuttable_reason="shared layers"), AS_STORED, 1)
    assert whole.stages_max == 1
    assert spread(whole, rooms(9 * GIB)) == (0, 8)
    assert spread(whole, rooms(9 * GIB, 9 * GIB)) is None
    assert not can_spread(whole, rooms(9 * GIB, 9 * GIB))
    assert spread_over(whole, [1, 1]) is None


def test_a_split_is_found_that_filling_from_the_front_would_miss() -> None:
    found = costs([1, 1, 10, 10])
    assert spread(found, rooms(12, 1, 20)) == (0, 1, 2, 4)
    assert can_spread(found, rooms(12, 1, 20))
    assert spread(costs([2, 1, 1, 10, 10]), rooms(14, 2, 20)) == (0, 1, 3, 5)


def test_what_does_not_fit_is_spread_in_proportion_all_the_same() -> None:
    found = costs([GIB] * 9)
    assert spread(found, rooms(GIB, 2 * GIB)) is None
    assert not can_spread(found, rooms(GIB, 2 * GIB))
    assert spread_over(found, rooms(GIB, 2 * GIB)) == (0, 3, 9)
    assert spread_over(found, [-5 * GIB, 4 * GIB]) == (0, 1, 9)


@pytest.mark.parametrize("count", [0, 4])
def test_no_stage_is_left_without_a_layer(count: int) -> None:
    assert spread(costs([1, 1, 1]), rooms(*[GIB] * count)) is None


layer_lists = st.lists(st.integers(0, 12), min_size=1, max_size=8)
room_lists = st.lists(st.integers(-3, 30), min_size=1, max_size=5)


@settings(max_examples=400, deadline=None)
@given(layer_lists, room_lists, st.integers(0, 6), st.sets(st.integers(1, 7), max_size=3))
def test_a_split_is_found_exactly_where_one_exists(
    layers: list[int], free: list[int], embedding: int, forbidden: set[int]
) -> None:
    found = costs(layers, embedding, tuple(forbidden))
    assume(len(free) <= found.stages_max)
    splits = every_split(found, rooms(*free))
    got = spread(found, rooms(*free))
    assert (got is not None) == bool(splits) == can_spread(found, rooms(*free))
    assert got is None or got in splits


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(GIB // 2, GIB), min_size=2, max_size=8),
    st.lists(st.integers(4 * GIB, 9 * GIB), min_size=2, max_size=3),
)
def test_no_other_split_fills_its_fullest_node_less(layers: list[int], free: list[int]) -> None:
    found = costs(layers)
    assume(len(free) <= found.stages_max)
    got = spread(found, free)
    assume(got is not None)
    assert got is not None
    best = min(fullest(found, split, free) for split in every_split(found, free))
    assert fullest(found, got, free) <= best + 1e-4


@settings(max_examples=200, deadline=None)
@given(layer_lists, room_lists)
def test_spreading_beyond_the_rooms_still_covers_every_layer_once(
    layers: list[int], free: list[int]
) -> None:
    found = costs(layers)
    assume(len(free) <= found.stages_max)
    got = spread_over(found, rooms(*free))
    assert got is not None
    assert (got[0], got[-1]) == (0, len(layers))
    assert all(first < end for first, end in pairwise(got))
