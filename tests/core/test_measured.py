"""What was measured is believed before what the table of chips says."""

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from node.core.facts import Facts, facts_from
from node.core.measured import OUTPUT_TOKENS_MIN, RATIO_MAX, ratios
from node.core.placement.plan import plan
from node.model.command import Wish
from node.model.ids import InstanceId, ModelId, NodeId, RequestId
from node.model.instance import WeightFormat
from node.model.register import Register, RequestFigures
from node.model.request import RequestPhase, RequestRecord
from node.model.topology import Candidate
from tests.fakes.fleet import GIB, MIB, card, fleet

A, B = NodeId("a"), NodeId("b")
STORED = WeightFormat.AS_STORED
MODEL = card((GIB // 8,) * 8, kv_per_token=1024, embedding_bytes=MIB)


def measured(**changes: object) -> RequestRecord:
    """A request that took half of what the table had promised on `a`."""
    record = RequestRecord(
        request=RequestId("q-1"),
        model=ModelId("m"),
        instance=InstanceId("i-1"),
        taken_by=A,
        phase=RequestPhase.DONE,
        prompt_tokens=300,
        output_tokens=50,
        tokens_per_second=10.0,
        prefill_seconds=1.6,
        cached_tokens=150,
        nodes=(A,),
        weight_format=STORED.value,
        table_tokens_per_second=5.0,
        table_prompt_tokens_per_second=50.0,
    )
    return replace(record, **changes)


def test_a_request_says_how_much_faster_its_node_is_than_the_table() -> None:
    found = ratios([measured()])
    assert found.keys() == {(A, STORED)}
    assert found[A, STORED].decode == pytest.approx(2.0)
    assert found[A, STORED].prompt == pytest.approx(150 / 1.5 / 50)
    assert found[A, STORED].is_measured


def test_of_several_the_one_that_was_least_disturbed_counts() -> None:
    found = ratios(
        [
            measured(tokens_per_second=2.0, prefill_seconds=2.0),
            measured(),
            measured(prefill_seconds=9.0),
        ]
    )
    assert found[A, STORED].decode == pytest.approx(2.0)
    assert found[A, STORED].prompt == pytest.approx(2.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": RequestPhase.DECODE},
        {"phase": RequestPhase.FAILED},
        {"output_tokens": OUTPUT_TOKENS_MIN - 1},
        {"tokens_per_second": 0.0},
        {"table_tokens_per_second": 0.0},
        {"table_prompt_tokens_per_second": 0.0},
        {"weight_format": ""},
        {"weight_format": "of a newer version"},
        {"nodes": ()},
    ],
    ids=str,
)
def test_what_measures_nothing_is_left_out(changes: dict[str, object]) -> None:
    assert ratios([measured(**changes)]) == {}


def test_a_prompt_that_was_cached_says_nothing_of_reading() -> None:
    cached = ratios([measured(cached_tokens=299, prefill_seconds=0.01)])
    assert cached[A, STORED].prompt == pytest.approx(2.0), "as decoding is"


def test_no_measurement_is_believed_without_bound() -> None:
    wild = ratios([measured(tokens_per_second=1e9, prefill_seconds=1e-9)])
    assert wild[A, STORED].decode == RATIO_MAX
    slow = ratios([measured(tokens_per_second=1e-9)])
    assert slow[A, STORED].decode == 1 / RATIO_MAX


@dataclass
class Machine:
    """A node that keeps up other speeds than the table says."""

    decode: float
    prompt: float

    def serves(self, candidate: Candidate, prompt_tokens: int) -> RequestRecord:
        """What its first request measures; 0.02 s go for other things."""
        speed = candidate.table_tokens_per_second * self.decode
        reading = prompt_tokens / (candidate.table_prompt_tokens_per_second * self.prompt)
        return measured(
            nodes=tuple(share.node for share in candidate.shares),
            weight_format=candidate.weight_format.value,
            prompt_tokens=prompt_tokens,
            cached_tokens=0,
            tokens_per_second=speed,
            prefill_seconds=reading + 1 / speed + 0.02,
            table_tokens_per_second=candidate.table_tokens_per_second,
            table_prompt_tokens_per_second=candidate.table_prompt_tokens_per_second,
        )


@pytest.mark.parametrize("prompt_tokens", [37, 500])
@pytest.mark.parametrize("machine", [Machine(0.2, 0.15), Machine(1.4, 2.5), Machine(6.0, 6.0)])
def test_after_one_request_the_prediction_is_within_a_factor_of_two(
    machine: Machine, prompt_tokens: int
) -> None:
    state, facts = fleet({"a": 8 * GIB}, MODEL)
    guess = plan(state, MODEL, Wish(), facts).candidates[0]
    assert not guess.measured
    assert guess.predicted_tokens_per_second == guess.table_tokens_per_second
    record = machine.serves(guess, prompt_tokens)
    told = Register(node=A, incarnation=1, sequence=1, value=RequestFigures(requests=(record,)))
    known = facts_from({(A, "RequestFigures"): told}, 0.0).measured
    again = plan(state, MODEL, Wish(), replace(facts, measured=known)).candidates[0]
    assert again.measured
    ratio = again.predicted_tokens_per_second / record.tokens_per_second
    assert 0.5 < ratio < 2
    real = 512 / (guess.table_prompt_tokens_per_second * machine.prompt)
    real += 1 / record.tokens_per_second
    assert 0.5 < again.predicted_first_token_seconds / real < 2
    assert again.table_tokens_per_second == guess.table_tokens_per_second, "or it would add up"


def test_a_node_that_was_not_measured_is_told_by_the_table() -> None:
    state, facts = fleet({"a": 8 * GIB, "b": 8 * GIB}, MODEL)
    known: Facts = replace(facts, measured=ratios([measured()]))
    by_node = {
        each.shares[0].node: each
        for each in plan(state, MODEL, Wish(strategy="single"), known).candidates
    }
    assert by_node[A].measured
    assert not by_node[B].measured
    assert by_node[B].predicted_tokens_per_second == by_node[B].table_tokens_per_second
