"""Tensor parallel placements: which numbers of nodes, what each holds, and what is refused."""

import pytest

from node.core.decide import Decided, decide
from node.core.facts import Facts
from node.core.placement.plan import plan
from node.core.placement.room import RUNNER_BYTES, bytes_kept_free
from node.core.refusal import Refusal
from node.model.card import ModelCard, TensorRank
from node.model.command import PlaceInstance, Wish
from node.model.event import InstancePlaced
from node.model.ids import ModelId, NodeId
from node.model.state import State
from node.model.topology import Plan
from tests.fakes.fleet import GIB, MIB, card, counted, fleet, request

A, B, C = (NodeId(name) for name in "abc")
HALF = TensorRank(2, 4 * GIB + 100 * MIB, 1024)
MODEL = card((GIB,) * 8, attention_heads=8, kv_heads=2, tensor_ranks=(HALF,))
KEPT = bytes_kept_free(16 * GIB)


def wish(**fields: object) -> Wish:
    return Wish(strategy="tensor", **fields)  # type: ignore[arg-type]


def planned(wanted: Wish, free_gib: float = 8.0, model: ModelCard = MODEL) -> Plan:
    state, facts = _fleet(free_gib, model)
    return plan(state, model, wanted, facts)


def _fleet(free_gib: float, model: ModelCard) -> tuple[State, Facts]:
    return fleet(dict.fromkeys("abc", int(free_gib * GIB) + KEPT), model)


def test_as_many_nodes_are_taken_as_the_layers_can_be_divided_among() -> None:
    made = planned(wish())
    assert made.refusal is None
    best = made.candidates[0]
    assert (best.strategy, best.transport, len(best.shares)) == ("tensor", "ring", 2)
    for share in best.shares:
        assert (share.first_layer, share.end_layer) == (0, 8)
        assert share.bytes_added == HALF.weights + 4096 * HALF.kv_per_token + RUNNER_BYTES
    assert any("unencrypted" in warning for warning in best.warnings)


def test_each_sum_over_the_network_is_in_the_prediction() -> None:
    tensor = planned(wish()).candidates[0].predicted_tokens_per_second
    pipeline = planned(Wish(nodes=(A, B))).candidates[0].predicted_tokens_per_second
    # About half of the weights to read, but 2 sums x 8 layers x 2 hops of 0.2 ms.
    reading = (1 / pipeline - 2 * 0.0002) * HALF.weights / MODEL.weight_bytes
    assert 1 / tensor == pytest.approx(reading + 32 * 0.0002, rel=0.01)


@pytest.mark.parametrize(
    ("model", "wanted", "code", "words"),
    [
        (MODEL, wish(nodes=(A, B, C)), "ranks_indivisible", "8 heads, 2 key/value heads"),
        (MODEL, wish(nodes_min=3), "ranks_indivisible", "among 2 nodes, not 3"),
        (MODEL, wish(nodes=(A,)), "bad_wish", "needs two nodes"),
        (MODEL, wish(nodes=(A, B), layers=(4, 4)), "bad_wish", "a part of every layer"),
        (
            card((GIB,) * 8, tensor_reason="no family of ours"),
            wish(),
            "model_indivisible",
            "no family of ours",
        ),
        (
            card((GIB,) * 8, tensor_ranks=(TensorRank(0, 1, 1),)),
            wish(),
            "model_unreadable",
            "no sense",
        ),
    ],
)
def test_what_can_t_be_divided_is_refused_in_numbers(
    model: ModelCard, wanted: Wish, code: str, words: str
) -> None:
    refused = planned(wanted, model=model).refusal
    assert refused is not None
    assert refused.code == code
    assert words in refused.message


def test_a_rank_that_does_not_fit_is_refused_in_numbers() -> None:
    refused = planned(wish(), free_gib=3.0).refusal
    assert refused is not None
    assert refused.code == "no_fit"
    assert "a needs 4.2 GiB and has 3.0 GiB" in refused.message


def test_the_instance_tells_its_runners_what_they_are() -> None:
    state, facts = _fleet(8.0, MODEL)
    found = decide(state, request(PlaceInstance(model=ModelId("m"), wish=wish())), facts, counted())
    assert not isinstance(found, Refusal)
    assert isinstance(found, Decided)
    (event,) = found.events
    assert isinstance(event, InstancePlaced)
    instance = event.instance
    assert (instance.strategy, instance.transport) == ("tensor", "ring")
    assert {shard.weight_bytes for shard in instance.shards} == {HALF.weights}
    assert {shard.cache_bytes for shard in instance.shards} == {4096 * HALF.kv_per_token}
