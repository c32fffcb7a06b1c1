"""Plans: which candidates there are, which is best, and what a refusal says."""

import time

import pytest
from msgspec.structs import replace

from node.core.facts import Facts
from node.core.placement.candidate import shortage
from node.core.placement.plan import plan
from node.core.placement.room import RUNNER_BYTES, bytes_kept_free
from node.model.card import ModelCard
from node.model.command import Wish
from node.model.errors import Failure
from node.model.event import InstancePlaced
from node.model.ids import NodeId
from node.model.instance import WeightFormat
from node.model.machine import Machine
from node.model.state import State
from node.model.topology import Candidate, Plan
from tests.fakes.fleet import (
    BOX,
    GIB,
    MAC,
    MIB,
    amend,
    card,
    fleet,
    fold,
    instance,
    link,
    linked,
    meshed,
    record,
)

A, B, C, D = (NodeId(name) for name in "abcd")
SMALL = card((GIB // 10,) * 10)
TWELVE = card((GIB,) * 12)
KEPT = bytes_kept_free(16 * GIB)


def given(
    free_gib: dict[str, float], model: ModelCard = SMALL, machine: Machine = MAC
) -> tuple[State, Facts]:
    """A fleet whose nodes have so much room for shards."""
    return fleet({name: int(free * GIB) + KEPT for name, free in free_gib.items()}, model, machine)


def best(made: Plan) -> Candidate:
    assert made.refusal is None, made.refusal
    assert made.candidates[0].fits
    return made.candidates[0]


def refused(made: Plan) -> Failure:
    assert made.refusal is not None
    assert not any(candidate.fits for candidate in made.candidates)
    return made.refusal


def nodes(candidate: Candidate) -> list[str]:
    return [share.node for share in candidate.shares]


def layers(candidate: Candidate) -> list[tuple[int, int]]:
    return [(share.first_layer, share.end_layer) for share in candidate.shares]


# -- which is best ---------------------------------------------------------------------------------


def test_a_model_that_fits_goes_to_the_single_node_with_the_most_room() -> None:
    state, facts = given({"a": 8, "b": 9})
    made = best(plan(state, SMALL, Wish(), facts))
    assert (made.strategy, made.transport, nodes(made)) == ("single", "local", ["b"])
    assert (made.context_tokens, made.hops, made.warnings) == (4096, (), ())
    (share,) = made.shares
    assert (share.name, share.first_layer, share.end_layer) == ("b", 0, 10)
    assert share.bytes_added == SMALL.weight_bytes + RUNNER_BYTES
    assert share.bytes_used == 16 * GIB - 9 * GIB - KEPT
    assert share.bytes_limit == 16 * GIB - KEPT
    assert share.bytes_slack == 9 * GIB - share.bytes_added


def test_a_faster_chip_comes_before_more_room() -> None:
    state, facts = given({"a": 8, "b": 9})
    state = amend(state, "a", machine=replace(MAC, chip="Apple M4 Max"))
    made = plan(state, SMALL, Wish(), facts)
    assert nodes(best(made)) == ["a"]
    fast = made.candidates[0]
    (slow,) = (found for found in made.candidates if nodes(found) == ["b"])
    assert fast.predicted_tokens_per_second == pytest.approx(0.6 * 410e9 / GIB)
    assert slow.predicted_tokens_per_second == pytest.approx(0.6 * 120e9 / GIB)
    assert fast.predicted_first_token_seconds < slow.predicted_first_token_seconds


def test_a_pipeline_is_taken_instead_of_a_node_only_if_it_is_much_faster() -> None:
    model = card((GIB,) * 3)
    state, facts = given({"a": 2.3, "b": 2.3, "c": 9}, model)
    quick = replace(MAC, chip="Apple M4 Max")
    state = amend(amend(state, "a", machine=quick), "b", machine=quick)
    assert sorted(nodes(best(plan(state, model, Wish(), facts)))) == ["a", "b"]
    state = amend(state, "c", machine=replace(MAC, chip="Apple M2 Max"))
    assert nodes(best(plan(state, model, Wish(), facts))) == ["c"]


def test_every_node_and_the_pipelines_are_candidates() -> None:
    state, facts = given({"a": 8, "b": 9, "c": 2})
    made = plan(state, SMALL, Wish(), facts)
    assert {tuple(sorted(nodes(found))) for found in made.candidates} == {
        ("a",),
        ("b",),
        ("c",),
        ("a", "b"),
        ("a", "b", "c"),
    }
    assert all(found.fits for found in made.candidates)


def test_a_model_too_large_for_one_node_is_cut_over_as_few_as_hold_it() -> None:
    state, facts = given({"a": 7, "b": 7, "c": 7}, TWELVE)
    made = best(plan(state, TWELVE, Wish(), facts))
    assert (made.strategy, made.transport, nodes(made)) == ("pipeline", "tcp", ["a", "b"])
    assert layers(made) == [(0, 6), (6, 12)]
    assert [(hop.source, hop.target, hop.medium) for hop in made.hops] == [
        (A, B, "ethernet"),
        (B, A, "ethernet"),
    ]
    weights = TWELVE.weight_bytes / (0.6 * 120e9)
    hops = 2 * (0.0002 + 128 * 8 / 1e9)
    assert made.predicted_tokens_per_second == pytest.approx(1 / (weights + hops))


def test_named_nodes_are_all_used_in_their_order() -> None:
    state, facts = given({"a": 9, "b": 9, "c": 9})
    made = plan(state, SMALL, Wish(nodes=(C, A)), facts)
    assert len(made.candidates) == 1
    assert nodes(best(made)) == ["c", "a"]
    assert layers(best(made)) == [(0, 5), (5, 10)]
    assert nodes(best(plan(state, SMALL, Wish(nodes=(C,)), facts))) == ["c"]


def test_layers_are_placed_as_asked() -> None:
    state, facts = given({"a": 9, "b": 9})
    made = best(plan(state, SMALL, Wish(nodes=(B, A), layers=(9, 1)), facts))
    assert layers(made) == [(0, 9), (9, 10)]
    state, facts = given({"a": 9, "b": 0.5})
    refusal = refused(plan(state, SMALL, Wish(nodes=(B, A), layers=(9, 1)), facts))
    assert (refusal.code, refusal.node) == ("no_fit", "b")


def test_a_strategy_and_a_number_of_nodes_are_respected() -> None:
    state, facts = given({"a": 9, "b": 9, "c": 9})
    single = plan(state, SMALL, Wish(strategy="single"), facts)
    assert {found.strategy for found in single.candidates} == {"single"}
    pipeline = plan(state, SMALL, Wish(strategy="pipeline"), facts)
    assert {found.strategy for found in pipeline.candidates} == {"pipeline"}
    assert len(best(pipeline).shares) == 2
    three = plan(state, SMALL, Wish(nodes_min=3), facts)
    assert [len(found.shares) for found in three.candidates] == [3]


def test_excluded_cordoned_and_lost_nodes_take_no_part() -> None:
    state, facts = given({"a": 9, "b": 9, "c": 9, "d": 8})
    state = amend(amend(state, "b", cordoned=True), "c", lost=True)
    made = plan(state, SMALL, Wish(exclude=(A,)), facts)
    assert [nodes(found) for found in made.candidates] == [["d"]]


# -- memory ----------------------------------------------------------------------------------------


def test_a_refusal_carries_the_numbers_and_what_would_help() -> None:
    model = card((GIB,) * 4, kv_per_token=MIB // 8)
    state, facts = given({"a": 4.5}, model)
    state = fold(state, InstancePlaced(instance=instance(("a",))))
    made = plan(state, model, Wish(), facts)
    refusal = refused(made)
    assert (refusal.code, refusal.node) == ("no_fit", "a")
    assert "needs 6.1 GiB and has 3.4 GiB of 16.0 GiB left" in refusal.message
    assert "(1.3 GiB kept free, 1.1 GiB promised), short by 2.8 GiB" in refusal.message
    assert "stop i-00000001 on a" in refusal.remedy
    assert "--force" in refusal.remedy
    assert shortage(made.candidates[0]) == pytest.approx(2.8 * GIB, rel=0.02)


def test_a_shorter_context_that_fits_is_proposed_and_does_fit() -> None:
    model = card((GIB,) * 4, kv_per_token=MIB // 8)
    state, facts = given({"a": 5}, model)
    refusal = refused(plan(state, model, Wish(), facts))
    assert refusal.remedy.startswith("a context of 1536 tokens fits there")
    assert best(plan(state, model, Wish(context_tokens=1536), facts)).fits
    refused(plan(state, model, Wish(context_tokens=1536 + 256), facts))


def test_two_placements_in_a_row_do_not_count_on_the_same_memory() -> None:
    model = card((GIB,) * 4)
    state, facts = given({"a": 8}, model)
    best(plan(state, model, Wish(), facts))
    taken = instance(("a",), shards=(replace(instance().shards[0], weight_bytes=4 * GIB),))
    refused(plan(fold(state, InstancePlaced(instance=taken)), model, Wish(), facts))


def test_force_places_where_memory_is_short_and_says_what_it_risks() -> None:
    state, facts = given({"a": 5, "b": 2}, TWELVE)
    refused(plan(state, TWELVE, Wish(strategy="single"), facts))
    made = best(plan(state, TWELVE, Wish(strategy="single", force=True), facts))
    assert nodes(made) == ["a"], "the node that lacks the least"
    assert made.warnings[0].startswith("a is short of 7.1 GiB: it may swap")
    named = best(plan(state, TWELVE, Wish(nodes=(A, B), force=True), facts))
    assert layers(named) == [(0, 9), (9, 12)]


def test_force_still_prefers_what_fits() -> None:
    state, facts = given({"a": 0.5, "b": 9})
    state = amend(state, "a", machine=replace(MAC, chip="Apple M4 Max"))
    assert nodes(best(plan(state, SMALL, Wish(force=True), facts))) == ["b"]


def test_a_pipeline_that_does_not_fit_tells_the_totals_and_the_worst_nodes() -> None:
    free = {f"n{number}": 1.0 for number in range(6)}
    state, facts = given(free, TWELVE)
    refusal = refused(plan(state, TWELVE, Wish(strategy="pipeline"), facts))
    assert "it needs 12.9 GiB, 6 nodes have 6.0 GiB left" in refusal.message
    assert refusal.message.count("short by") == 4
    assert refusal.message.endswith("2 more nodes are short")
    assert "more nodes that hold the model" in refusal.remedy


def test_stages_on_one_machine_share_its_memory() -> None:
    state, facts = given({"a": 8, "b": 8}, TWELVE)
    facts = replace(facts, links=linked([("a", "b")], medium="loopback"))
    refused(plan(state, TWELVE, Wish(nodes=(A, B)), facts))
    fitting = card((GIB,) * 7)
    state, facts = given({"a": 8, "b": 8}, fitting)
    facts = replace(facts, links=linked([("a", "b")], medium="loopback"))
    made = best(plan(state, fitting, Wish(nodes=(A, B)), facts))
    first, second = made.shares
    assert first.bytes_slack == second.bytes_slack == 8 * GIB - 7 * GIB - 2 * RUNNER_BYTES
    assert any("a, b share one machine" in warning for warning in made.warnings)


# -- weight formats --------------------------------------------------------------------------------

PACKED = card((GIB // 4,) * 4, dense=5, quantisation_bits=4)


def test_a_linux_processor_unpacks_the_weights_where_they_fit() -> None:
    state, facts = given({"a": 9}, PACKED, BOX)
    made = best(plan(state, PACKED, Wish(), facts))
    assert made.weight_format is WeightFormat.DENSE
    assert made.shares[0].bytes_added == 5 * GIB + RUNNER_BYTES
    state, facts = given({"a": 5}, PACKED, BOX)
    packed = best(plan(state, PACKED, Wish(), facts))
    assert packed.weight_format is WeightFormat.AS_STORED
    assert packed.predicted_tokens_per_second < made.predicted_tokens_per_second


def test_a_mac_leaves_them_packed_and_so_does_a_mixed_pipeline() -> None:
    state, facts = given({"a": 9, "b": 9}, PACKED, BOX)
    state = amend(state, "b", machine=MAC)
    assert best(plan(state, PACKED, Wish(nodes=(B,)), facts)).weight_format is (
        WeightFormat.AS_STORED
    )
    assert best(plan(state, PACKED, Wish(nodes=(A, B)), facts)).weight_format is (
        WeightFormat.AS_STORED
    )


def test_a_format_that_is_asked_for_is_kept_to() -> None:
    state, facts = given({"a": 5}, PACKED, BOX)
    refusal = refused(plan(state, PACKED, Wish(weight_format="dense"), facts))
    assert "weights as stored take 4.0 GiB less" in refusal.remedy
    state, facts = given({"a": 9}, PACKED, BOX)
    made = best(plan(state, PACKED, Wish(weight_format="as_stored"), facts))
    assert made.weight_format is WeightFormat.AS_STORED


# -- nodes and links -------------------------------------------------------------------------------


def test_a_model_must_lie_on_the_node() -> None:
    state, facts = given({"a": 1, "b": 9}, SMALL)
    facts = replace(facts, held={A: facts.held[A], B: {}})
    made = plan(state, SMALL, Wish(), facts)
    refusal = refused(made)
    assert refusal.code == "no_fit"
    assert refusal.message.endswith("left out: b (does not hold the model)")
    elsewhere = next(found for found in made.candidates if nodes(found) == ["b"])
    assert not elsewhere.shares[0].held
    assert elsewhere.refusal is not None
    named = refused(plan(state, SMALL, Wish(nodes=(B,)), facts))
    assert (named.code, named.node) == ("model_not_held", "b")
    assert "copy its files" in named.remedy


def test_nodes_that_are_not_known_well_enough_are_named() -> None:
    state, facts = given({"a": 1, "b": 9, "c": 9, "d": 9})
    state = amend(amend(state, "b", machine=None), "d", lost=True)
    state = replace(state, nodes={**state.nodes, NodeId("e"): record("e", cordoned=True)})
    facts = replace(facts, machines={A: facts.machines[A], D: facts.machines[D]})
    message = refused(plan(state, SMALL, Wish(), facts)).message
    assert message.endswith(
        "left out: b (has not described its machine yet), c (has not reported its memory yet),"
        " d (lost), e (cordoned)"
    )
    excluded = refused(plan(state, SMALL, Wish(exclude=(A,)), facts))
    assert excluded.message.startswith("no node could take m; left out: a (excluded), b (has")
    named = refused(plan(state, SMALL, Wish(nodes=(C, A)), facts))
    assert named.message == ("no node could take m; left out: c (has not reported its memory yet)")


def test_too_few_nodes_for_the_number_asked_is_said() -> None:
    state, facts = given({"a": 9, "b": 9})
    refusal = refused(plan(state, SMALL, Wish(nodes_min=3), facts))
    assert refusal.message == "no 3 linked nodes could take m"
    alone = refused(plan(given({"a": 9})[0], SMALL, Wish(strategy="pipeline"), Facts()))
    assert alone.message.startswith("no 2 linked nodes could take m; left out: a")


def test_one_direction_of_a_link_is_enough() -> None:
    state, facts = given({"a": 7, "b": 7}, TWELVE)
    facts = replace(facts, links={A: {B: link("b", up=False)}, B: {A: link("a")}})
    assert len(best(plan(state, TWELVE, Wish(), facts)).hops) == 2


def test_nodes_without_a_link_make_no_pipeline() -> None:
    state, facts = given({"a": 7, "b": 7, "c": 7}, TWELVE)
    facts = replace(facts, links=linked([("a", "b"), ("c", "a")]))
    made = plan(state, TWELVE, Wish(), facts)
    assert sorted(nodes(best(made))) != ["b", "c"]
    refusal = refused(plan(state, TWELVE, Wish(nodes=(B, C)), facts))
    assert (refusal.code, refusal.node) == ("no_link", "b")
    assert "b and c have no link" in refusal.message


def test_named_nodes_are_reordered_only_where_their_links_need_it() -> None:
    square = linked([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("a", "c")])
    state, facts = given(dict.fromkeys("abcd", 4.0), TWELVE)
    facts = replace(facts, links=square)
    made = best(plan(state, TWELVE, Wish(nodes=(A, C, B, D)), facts))
    assert nodes(made)[0] == "a"
    assert sorted(nodes(made)) == ["a", "b", "c", "d"]
    fixed = Wish(nodes=(A, C, B, D), layers=(3, 3, 3, 3))
    assert refused(plan(state, TWELVE, fixed, facts)).code == "no_link"


def test_links_that_nobody_reported_are_taken_for_granted_with_a_warning() -> None:
    state, facts = given({"a": 7, "b": 7}, TWELVE)
    made = best(plan(state, TWELVE, Wish(), replace(facts, links={})))
    assert "a to b: the link is not measured, its time is not in the prediction" in made.warnings


def test_wired_nodes_are_preferred_to_those_on_wifi() -> None:
    state, facts = given({"a": 7, "b": 7.2, "c": 7.1}, TWELVE)
    links = meshed("abc", medium="wifi", rtt_seconds=0.004)
    links[A][C] = link("c")
    links[C][A] = link("a")
    made = plan(state, TWELVE, Wish(), replace(facts, links=links))
    assert sorted(nodes(best(made))) == ["a", "c"]
    over_air = next(found for found in made.candidates if sorted(nodes(found)) == ["b", "c"])
    assert "b to c goes over Wi-Fi: 4.0 ms there and back" in over_air.warnings


def test_warnings_tell_what_is_odd_about_nodes() -> None:
    state, facts = given({"a": 7, "b": 6.3}, TWELVE)
    state = amend(state, "a", machine=replace(MAC, chip="Apple M99"), version="0.1.0")
    state = amend(state, "b", version="0.2.0")
    warnings = best(plan(state, TWELVE, Wish(nodes=(A, B)), facts)).warnings
    assert "nodes run different versions: 0.1.0, 0.2.0" in warnings
    assert "a: the chip 'Apple M99' is unknown, its speed a low guess" in warnings
    assert any(warning.startswith("b has only 1") for warning in warnings)
    large = card((GIB,) * 13)
    state, facts = given({"a": 14}, large)
    assert best(plan(state, large, Wish(), facts)).warnings[-1] == (
        "a: macOS lets the GPU use 12.0 GiB unless iogpu.wired_limit_mb is raised"
    )


# -- scale -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("free", [30.0, 7.5, 6.5, 3.0])
def test_sixty_four_meshed_nodes_take_less_than_a_tenth_of_a_second(free: float) -> None:
    model = card((5 * GIB + GIB // 2,) * 61, embedding_bytes=GIB)
    available = int(free * GIB) + bytes_kept_free(64 * GIB)
    names = [f"n{number:02}" for number in range(64)]
    state, facts = fleet(dict.fromkeys(names, available), model, total_bytes=64 * GIB)
    took: list[float] = []
    for _ in range(3):
        start = time.process_time()
        made = plan(state, model, Wish(), facts)
        took.append(time.process_time() - start)
        assert (made.refusal is None) == (free > 7)
    assert min(took) < 0.1
