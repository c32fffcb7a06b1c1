"""Decisions on commands: what each brings about, and what is refused with which reason."""

import pytest
from msgspec.structs import replace

from node.core.annotate import NAME_LENGTH_MAX
from node.core.decide import (
    Answered,
    Decided,
    as_event,
    decide,
    next_attempt,
)
from node.core.facts import Facts
from node.core.refusal import Refusal
from node.model import errors
from node.model.command import (
    AdmitNode,
    Command,
    CordonNode,
    LabelNode,
    NameNode,
    PlaceInstance,
    RemoveNode,
    RestartInstance,
    StepDown,
    StopInstance,
    Wish,
)
from node.model.event import (
    InstancePlaced,
    InstanceStopping,
    NodeAdmitted,
    NodeCordoned,
    NodeLabelled,
    NodeNamed,
    NodeRevoked,
    RunnerChanged,
    RunnerRestartRequested,
)
from node.model.ids import CommandId, InstanceId, ModelId, NodeId
from node.model.instance import Instance, RunnerPhase, WeightFormat
from node.model.machine import Address
from node.model.register import HeldModel
from node.model.state import State
from tests.fakes.fleet import (
    GIB,
    MIB,
    amend,
    card,
    counted,
    decided,
    fleet,
    fold,
    instance,
    request,
    runner,
)

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
I1 = InstanceId("i-00000001")
MODEL = card((GIB // 4,) * 8, kv_per_token=1024, embedding_bytes=MIB)
PLACE = PlaceInstance(model=MODEL.model)


def cluster(*names: str) -> tuple[State, Facts]:
    """Nodes with 8 GiB and more to give."""
    return fleet(dict.fromkeys(names or ("a", "b"), 10 * GIB), MODEL)


def ruling(
    state: State, command: Command, facts: Facts | None = None, asked_by: str = "a"
) -> Decided | Answered | Refusal:
    asked = request(command, asked_by=asked_by)
    return decide(state, asked, facts or cluster()[1], counted())


def accepted(decision: Decided | Answered | Refusal) -> Decided:
    assert isinstance(decision, Decided), decision
    return decision


def refused(decision: Decided | Answered | Refusal) -> Refusal:
    assert isinstance(decision, Refusal), decision
    kinds = {kind.__name__ for kind in errors.KINDS}
    assert decision.kind in kinds
    assert decision.failure.remedy
    return decision


def placed_instance(decision: Decided | Answered | Refusal) -> Instance:
    (event,) = accepted(decision).events
    assert isinstance(event, InstancePlaced)
    return event.instance


def running() -> State:
    """Two nodes and an instance over both."""
    return fold(cluster()[0], InstancePlaced(instance=instance(("a", "b"))))


# -- placing ---------------------------------------------------------------------------------------


def test_a_model_is_placed_on_one_node() -> None:
    state, facts = cluster("a")
    decision = ruling(state, PLACE, facts)
    placed = placed_instance(decision)
    assert accepted(decision).subject == placed.instance == "i-00000002"
    (shard,) = placed.shards
    assert (shard.runner, shard.node, shard.rank) == ("r-00000001", "a", 0)
    assert (shard.first_layer, shard.end_layer) == (0, 8)
    assert (shard.weight_bytes, shard.cache_bytes) == (2 * GIB + MIB, 8 * 1024 * 4096)
    assert (placed.model, placed.layer_count, placed.context_tokens) == ("m", 8, 4096)
    assert (placed.requested_by, placed.placed_at) == ("a", 1000.0)
    assert (placed.transport, placed.transport_reason) == ("local", "")
    assert placed.weight_format is WeightFormat.AS_STORED
    assert placed.predicted_tokens_per_second > 0
    assert not placed.removing


def test_a_model_is_placed_over_two_named_nodes() -> None:
    state, facts = cluster()
    placed = placed_instance(
        ruling(state, PlaceInstance(model=MODEL.model, wish=Wish(nodes=(B, A))), facts)
    )
    assert placed.nodes == (B, A)
    assert [shard.rank for shard in placed.shards] == [0, 1]
    assert [(s.first_layer, s.end_layer) for s in placed.shards] == [(0, 4), (4, 8)]
    assert [shard.runner for shard in placed.shards] == ["r-00000001", "r-00000002"]
    assert placed.transport == "tcp"
    assert placed.transport_reason


def test_a_node_that_still_looks_at_its_copy_makes_the_refusal_a_passing_one() -> None:
    state, facts = cluster("a", "b")
    wanted = PlaceInstance(model=MODEL.model, wish=Wish(nodes=(A,)))
    looking = HeldModel(card=replace(MODEL, layers=()), complete=False, bytes_on_disk=1)
    known = facts.held[B]
    for held in ({B: known}, {A: {MODEL.model: looking}, B: known}):
        refusal = refused(ruling(state, wanted, replace(facts, held=held)))
        assert (refusal.kind, refusal.failure.code) == ("BusyError", "model_preparing")
    nothing = replace(facts, held={A: {}, B: known})
    assert refused(ruling(state, wanted, nothing)).kind == "NoFitError"
    excluded = PlaceInstance(model=MODEL.model, wish=Wish(exclude=(A, B)))
    lost = amend(state, "a", lost=True)
    assert refused(ruling(lost, excluded, replace(facts, held={B: known}))).kind == "NoFitError"


def test_ids_that_are_taken_are_drawn_again() -> None:
    state, facts = cluster("a")
    taken = instance(("a",), key="i-00000002")
    state = fold(state, InstancePlaced(instance=taken))
    assert placed_instance(ruling(state, PLACE, facts)).instance == "i-00000003"


def test_a_decision_is_one_entry_that_answers_its_command_for_ever() -> None:
    state, facts = cluster("a")
    asked = request(PLACE)
    decision = accepted(decide(state, asked, facts, counted()))
    state = fold(state, as_event(asked, decision))
    assert list(state.instances) == [decision.subject]
    again = decide(state, asked, facts, counted())
    assert isinstance(again, Answered)
    assert again.answer.id == asked.id
    assert (again.answer.index, again.answer.subject) == (state.index, decision.subject)


def test_an_answer_is_given_before_the_command_is_looked_at() -> None:
    state = fold(cluster()[0], decided((), key="c-1", subject="s"))
    assert isinstance(ruling(state, StopInstance(instance=InstanceId("i-none"))), Answered)
    asked = request(StopInstance(instance=InstanceId("i-none")), key="c-2")
    assert isinstance(decide(state, asked, Facts(), counted()), Refusal)


@pytest.mark.parametrize(
    ("command", "kind", "code", "words"),
    [
        (PlaceInstance(model=ModelId("x")), "NotFoundError", "model_not_found", "models: m"),
        (
            PlaceInstance(model=MODEL.model, wish=Wish(nodes=(C,))),
            "NotFoundError",
            "node_not_found",
            "a (a), b (b)",
        ),
        (
            PlaceInstance(model=MODEL.model, wish=Wish(strategy="x")),
            "UsageError",
            "bad_wish",
            "pipeline",
        ),
        (
            PlaceInstance(model=MODEL.model, wish=Wish(nodes_min=3)),
            "NoFitError",
            "no_fit",
            "no 3 linked nodes",
        ),
        (StopInstance(instance=InstanceId("i-9")), "NotFoundError", "instance_not_found", "i-0"),
        (RestartInstance(instance=InstanceId("i-9")), "NotFoundError", "instance_not_found", ""),
        (RemoveNode(node=C), "NotFoundError", "node_not_found", "a (a), b (b)"),
        (CordonNode(node=C), "NotFoundError", "node_not_found", "a (a), b (b)"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused_with_the_reason(
    command: Command, kind: str, code: str, words: str
) -> None:
    decision = refused(ruling(running(), command))
    assert (decision.kind, decision.failure.code) == (kind, code)
    assert words in decision.failure.message + decision.failure.remedy


def test_a_lost_node_in_the_wish_is_refused() -> None:
    state, facts = cluster()
    wish = Wish(nodes=(A, B))
    command = PlaceInstance(model=MODEL.model, wish=wish)
    decision = refused(ruling(amend(state, "b", lost=True), command, facts))
    assert (decision.kind, decision.failure.code) == ("ConflictError", "node_lost")


# -- instances -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["i-00000001", "i-0", "000", "m"])
def test_an_instance_is_stopped_by_any_name_of_it(name: str) -> None:
    decision = accepted(ruling(running(), StopInstance(instance=InstanceId(name))))
    assert decision == Decided((InstanceStopping(instance=I1),), I1)


def test_stopping_again_changes_nothing() -> None:
    state = fold(running(), InstanceStopping(instance=I1))
    assert accepted(ruling(state, StopInstance(instance=I1))) == Decided((), I1)


def test_a_restart_raises_the_attempt_past_every_one_that_was_reported() -> None:
    state = amend(running(), "b", name="studio-b")
    late = RunnerChanged(runner=runner("b", RunnerPhase.READY, attempt=4))
    state = fold(state, late)
    assert next_attempt(state, state.instances[I1]) == 5
    decision = accepted(ruling(state, RestartInstance(instance=I1), asked_by="b"))
    expected = RunnerRestartRequested(instance=I1, attempt=5, reason="asked for on studio-b")
    assert decision == Decided((expected,), I1)
    stranger = accepted(ruling(running(), RestartInstance(instance=I1), asked_by="z"))
    (event,) = stranger.events
    assert event == RunnerRestartRequested(instance=I1, attempt=2, reason="asked for on z")


def test_a_restart_is_refused_while_stopping_or_without_its_nodes() -> None:
    stopping = fold(running(), InstanceStopping(instance=I1))
    decision = refused(ruling(stopping, RestartInstance(instance=I1)))
    assert (decision.kind, decision.failure.code) == ("ConflictError", "instance_stopping")
    lost = refused(ruling(amend(running(), "b", lost=True), RestartInstance(instance=I1)))
    assert (lost.kind, lost.failure.code) == ("ConflictError", "node_lost")
    assert "needs b" in lost.failure.message
    gone = fold(running(), NodeRevoked(node=B, reason="r"))
    assert refused(ruling(gone, RestartInstance(instance=I1))).failure.node == "b"


# -- nodes -----------------------------------------------------------------------------------------

ADMIT = AdmitNode(node=C, name="mini", addresses=(Address("10.0.0.3", 52416),))


def test_a_node_is_admitted_once() -> None:
    state = running()
    decision = accepted(ruling(state, ADMIT, asked_by="b"))
    event = NodeAdmitted(node=C, name="mini", admitted_by=B, addresses=ADMIT.addresses)
    assert decision == Decided((event,), C)
    state = fold(state, event)
    assert accepted(ruling(state, ADMIT)) == Decided((), C)
    renamed = accepted(ruling(state, replace(ADMIT, name="mini-2")))
    assert len(renamed.events) == 1


def test_a_removed_node_comes_back_only_when_a_person_vouches_for_it() -> None:
    state = fold(running(), NodeRevoked(node=C, reason="sold"))
    decision = refused(ruling(state, replace(ADMIT, proof="lan")))
    assert (decision.kind, decision.failure.code) == ("RefusedError", "node_revoked")
    assert "sold" in decision.failure.message
    for proof in ("invite", "approval"):
        assert len(accepted(ruling(state, replace(ADMIT, proof=proof))).events) == 1
    assert len(accepted(ruling(running(), replace(ADMIT, proof="lan"))).events) == 1


@pytest.mark.parametrize("name", ["", "a\x1b[31m", "two\nlines", "x" * (NAME_LENGTH_MAX + 1)])
def test_a_name_that_would_spoil_a_screen_is_refused(name: str) -> None:
    decision = refused(ruling(running(), replace(ADMIT, name=name)))
    assert (decision.kind, decision.failure.code) == ("UsageError", "bad_node_name")
    assert "\x1b" not in decision.failure.message
    assert len(decision.failure.message) < 200


def test_a_node_without_an_id_is_refused() -> None:
    refused(ruling(running(), replace(ADMIT, node=NodeId(""))))


def test_removing_a_node_stops_the_instances_on_it() -> None:
    alone = instance(("a",), key="i-alone")
    state = fold(running(), InstancePlaced(instance=alone))
    decision = accepted(ruling(state, RemoveNode(node=B, reason="sold")))
    assert decision == Decided(
        (InstanceStopping(instance=I1), NodeRevoked(node=B, reason="sold")), B
    )
    stopping = fold(state, InstanceStopping(instance=I1))
    assert len(accepted(ruling(stopping, RemoveNode(node=B))).events) == 1


def test_a_long_reason_is_cut() -> None:
    decision = accepted(ruling(cluster()[0], RemoveNode(node=B, reason="x" * 10_000)))
    (event,) = decision.events
    assert isinstance(event, NodeRevoked)
    assert event.reason == "x" * 200


def test_the_last_node_is_not_removed() -> None:
    state, facts = cluster("a")
    decision = refused(ruling(state, RemoveNode(node=A), facts))
    assert (decision.kind, decision.failure.code) == ("ConflictError", "last_node")


def test_a_node_is_cordoned_once_and_allowed_again() -> None:
    state = running()
    decision = accepted(ruling(state, CordonNode(node=B)))
    assert decision == Decided((NodeCordoned(node=B, cordoned=True),), B)
    state = fold(state, *decision.events)
    assert accepted(ruling(state, CordonNode(node=B))) == Decided((), B)
    allowed = accepted(ruling(state, CordonNode(node=B, cordoned=False)))
    assert allowed.events == (NodeCordoned(node=B, cordoned=False),)


def test_a_node_is_called_otherwise_once_and_by_its_own_name_again() -> None:
    state = running()
    decision = accepted(ruling(state, NameNode(node=B, name="cellar")))
    assert decision == Decided((NodeNamed(node=B, name="cellar"),), B)
    state = fold(state, *decision.events)
    assert accepted(ruling(state, NameNode(node=B, name="cellar"))) == Decided((), B)
    back = accepted(ruling(state, NameNode(node=B, name="")))
    assert back.events == (NodeNamed(node=B, name=""),)
    assert accepted(ruling(fold(state, *back.events), NameNode(node=B, name=""))) == Decided((), B)


@pytest.mark.parametrize(
    ("name", "code"),
    [("a", "node_name_taken"), ("x" * 65, "bad_node_name"), ("a\nb", "bad_node_name")],
)
def test_a_name_that_can_not_be_given_is_refused_with_the_reason(name: str, code: str) -> None:
    assert refused(ruling(running(), NameNode(node=B, name=name))).failure.code == code


def test_labels_are_set_one_by_one_and_taken_off() -> None:
    state = running()
    decision = accepted(ruling(state, LabelNode(node=B, labels={"room": "cellar", "fast": "yes"})))
    assert decision.events == (NodeLabelled(node=B, labels={"room": "cellar", "fast": "yes"}),)
    state = fold(state, *decision.events)
    fewer = accepted(ruling(state, LabelNode(node=B, labels={"room": "", "owner": "ann"})))
    assert fewer.events == (NodeLabelled(node=B, labels={"fast": "yes", "owner": "ann"}),)
    assert accepted(ruling(state, LabelNode(node=B, labels={"fast": "yes"}))) == Decided((), B)


@pytest.mark.parametrize(
    ("labels", "code"),
    [
        ({"Room": "x"}, "bad_label"),
        ({"": "x"}, "bad_label"),
        ({"room": "a,b"}, "bad_label"),
        ({"room": "x" * 64}, "bad_label"),
        ({f"k{number}": "v" for number in range(17)}, "too_many_labels"),
    ],
)
def test_labels_that_can_not_be_are_refused(labels: dict[str, str], code: str) -> None:
    assert refused(ruling(running(), LabelNode(node=B, labels=labels))).failure.code == code


def test_the_answer_keeps_the_commands_id() -> None:
    asked = request(StopInstance(instance=I1), key="c-77")
    event = as_event(asked, Decided((), "s"))
    assert (event.command, event.asked_by, event.subject) == (CommandId("c-77"), A, "s")


def test_the_master_steps_down_where_another_could_take_over() -> None:
    state, facts = fleet({"a": GIB, "b": GIB}, MODEL)
    state = replace(state, in_sync=(A, B))
    made = decide(state, request(StepDown()), facts, counted())
    assert made == Decided((), A)


@pytest.mark.parametrize("why", ["alone", "lost", "behind"])
def test_a_master_without_a_successor_stays(why: str) -> None:
    state, facts = fleet({"a": GIB, "b": GIB}, MODEL)
    state = replace(state, in_sync=(A,) if why == "behind" else (A, B))
    if why == "alone":
        state = replace(state, nodes={A: state.nodes[A]})
    if why == "lost":
        state = amend(state, "b", lost=True)
    made = decide(state, request(StepDown()), facts, counted())
    assert isinstance(made, Refusal)
    assert made.failure.code == "no_successor"
    assert made.failure.remedy
