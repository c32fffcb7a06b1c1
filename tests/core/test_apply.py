"""Folding entries: what each event changes, and everything that must change nothing."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from node.core import apply as apply_module
from node.core.apply import apply, read_event
from node.model.command import Accepted
from node.model.errors import Failure
from node.model.event import (
    ClusterFounded,
    DecisionWithdrawn,
    Event,
    InstancePlaced,
    InstanceRemoved,
    InstanceStopping,
    NodeAdmitted,
    NodeCordoned,
    NodeDescribed,
    NodeLabelled,
    NodeLost,
    NodeNamed,
    NodeReturned,
    NodeRevoked,
    ProposalDropped,
    ProposalRejected,
    RunnerChanged,
    RunnerRestartRequested,
    SessionOpened,
    ViewChanged,
)
from node.model.ids import ClusterId, CommandId, InstanceId, NodeId
from node.model.instance import RunnerPhase
from node.model.machine import Address
from node.model.session import EventId, Session
from node.model.state import ANSWERS_CHUNK, ANSWERS_MIN, REJECTIONS_MAX, State
from tests.fakes.fleet import MAC, SESSION, decided, entry, fold, instance, runner

A, B = NodeId("a"), NodeId("b")
I1 = InstanceId("i-00000001")
ADMIT_A = NodeAdmitted(node=A, name="studio-a", admitted_by=A)
ADMIT_B = NodeAdmitted(node=B, name="studio-b", admitted_by=A, addresses=(Address("h", 1),))
PLACE = InstancePlaced(instance=instance(("a", "b")))


def placed() -> State:
    return fold(State(), ADMIT_A, ADMIT_B, PLACE)


def test_the_entry_sets_index_and_session() -> None:
    state = apply(State(), entry(SessionOpened(session=SESSION), index=0))
    assert (state.index, state.session, state.master) == (0, SESSION, A)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"type": "SomethingOfTheFuture", "node": "a"}),
        msgspec.msgpack.encode({"type": "NodeReturned", "node": 7}),
        b"\x82\xa4type\xacNodeReturned\xa4node\xa2\xff\xfe",
        b"\x84\xa4type\xaeCommandDecided\xa7command\xa1c\xa8asked_by\xa1a\xa6events\x91" * 5000,
    ],
    ids=["empty", "never-msgpack", "unknown-tag", "wrong-type", "not-utf8", "too-deep"],
)
def test_a_payload_that_cannot_be_read_changes_only_the_index(payload: bytes) -> None:
    before = placed()
    assert read_event(payload) is None
    after = apply(before, replace(entry(ADMIT_A, before.index + 1), payload=payload))
    assert after == replace(before, index=before.index + 1)


def test_an_entry_that_is_folded_in_already_is_passed_over() -> None:
    state = placed()
    assert apply(state, entry(NodeLost(node=A, reason="x"), state.index)) is state


def test_founding_makes_the_founder_a_member_once() -> None:
    founded = ClusterFounded(cluster=ClusterId("c1"), name="lab", founder=NodeId("a" * 52))
    state = fold(State(), founded)
    assert (state.cluster, state.cluster_name) == ("c1", "lab")
    assert state.nodes[NodeId("a" * 52)].name == "a" * 12
    again = fold(state, replace(founded, cluster=ClusterId("c2"), name="other"))
    assert again.cluster == "c1"


def test_the_view_replaces_the_set_in_sync() -> None:
    assert fold(State(), ViewChanged(in_sync=(A, B))).in_sync == (A, B)


def test_a_node_admitted_again_keeps_its_description_and_known_addresses() -> None:
    described = NodeDescribed(node=B, name="b", machine=MAC, version="1", incarnation=2)
    state = fold(State(), ADMIT_A, ADMIT_B, replace(described, addresses=(Address("h", 2),)))
    again = fold(state, NodeAdmitted(node=B, name="renamed", admitted_by=A))
    record = again.nodes[B]
    assert (record.name, record.machine, record.admitted_index) == ("renamed", MAC, 1)
    assert record.addresses == (Address("h", 2),)


def test_a_revoked_node_goes_with_its_membership_and_comes_back_when_admitted() -> None:
    state = fold(placed(), ViewChanged(in_sync=(A, B)), NodeRevoked(node=B, reason="left"))
    assert list(state.nodes) == [A]
    assert state.in_sync == (A,)
    assert state.revoked == {B: "left"}
    back = fold(state, ADMIT_B)
    assert back.revoked == {}
    assert B in back.nodes


def test_the_oldest_revocations_are_forgotten_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(apply_module, "REVOKED_MAX", 2)
    names = ("x", "y", "x", "z")
    state = fold(State(), *(NodeRevoked(node=NodeId(name), reason="r") for name in names))
    assert list(state.revoked) == ["x", "z"]


def test_a_description_of_an_earlier_life_is_ignored() -> None:
    new = NodeDescribed(node=A, name="new", machine=MAC, version="2", incarnation=2)
    state = fold(State(), ADMIT_A, new, replace(new, name="old", incarnation=1))
    assert (state.nodes[A].name, state.nodes[A].incarnation) == ("new", 2)


def test_a_lost_node_is_marked_until_it_returns() -> None:
    state = fold(placed(), NodeLost(node=B, reason="silent", at=5.0))
    assert (state.nodes[B].lost, state.nodes[B].lost_reason) == (True, "silent")
    assert state.nodes[B].lost_at == 5.0
    back = fold(state, NodeReturned(node=B)).nodes[B]
    assert (back.lost, back.lost_reason, back.lost_at) == (False, "", 0.0)


def test_a_node_is_cordoned_and_allowed_again() -> None:
    state = fold(placed(), NodeCordoned(node=B, cordoned=True))
    assert state.nodes[B].cordoned
    assert not fold(state, NodeCordoned(node=B, cordoned=False)).nodes[B].cordoned


def test_a_node_keeps_the_name_that_people_gave_it_over_what_it_calls_itself() -> None:
    said = NodeDescribed(node=A, name="host-7", machine=MAC, version="2", incarnation=2)
    state = fold(State(), ADMIT_A, said, NodeNamed(node=A, name="studio"))
    assert (state.nodes[A].name, state.nodes[A].own_name) == ("studio", "host-7")
    state = fold(state, replace(said, name="host-8", incarnation=3))
    assert (state.nodes[A].name, state.nodes[A].own_name) == ("studio", "host-8")
    state = fold(state, replace(ADMIT_A, name="host-9"))
    assert (state.nodes[A].name, state.nodes[A].own_name) == ("studio", "host-9")
    again = fold(state, NodeNamed(node=A, name="den"), NodeNamed(node=A, name=""))
    assert (again.nodes[A].name, again.nodes[A].own_name) == ("host-9", "")
    assert fold(again, NodeNamed(node=A, name="host-9")).nodes[A].own_name == ""


def test_a_node_has_the_labels_it_was_given_last() -> None:
    state = fold(placed(), NodeLabelled(node=B, labels={"room": "cellar", "fast": "yes"}))
    later = fold(state, NodeLabelled(node=B, labels={"fast": "no"}))
    assert later.nodes[B].labels == {"fast": "no"}
    assert state.nodes[A].labels == {}


def test_a_placement_gets_its_index_and_first_attempt_and_is_never_overwritten() -> None:
    state = placed()
    assert state.instances[I1].placed_index == 2
    assert state.attempts == {I1: 1}
    other = InstancePlaced(instance=instance(("a",)))
    assert fold(state, other).instances == state.instances


def test_removing_an_instance_takes_its_runners_and_attempts_along() -> None:
    other = instance(("a",), key="i-2", shards=(replace(instance().shards[0], runner="r-z"),))
    kept = runner("a", RunnerPhase.READY, key="i-2", runner="r-z")
    state = fold(
        placed(),
        InstancePlaced(instance=other),
        RunnerChanged(runner=runner("a", RunnerPhase.READY)),
        RunnerChanged(runner=kept),
        InstanceStopping(instance=I1),
    )
    assert state.instances[I1].removing
    state = fold(state, InstanceRemoved(instance=I1))
    assert list(state.instances) == list(state.attempts) == ["i-2"]
    assert list(state.runners.values()) == [kept]


def test_an_older_attempt_never_overrides_a_newer_one() -> None:
    second = runner("a", RunnerPhase.LOADING, attempt=2)
    state = fold(
        placed(),
        RunnerChanged(runner=second),
        RunnerChanged(runner=runner("a", RunnerPhase.FAILED, attempt=1)),
    )
    assert state.runners[second.runner] == second
    ready = replace(second, phase=RunnerPhase.READY)
    assert fold(state, RunnerChanged(runner=ready)).runners[second.runner] == ready


def test_a_restart_raises_the_attempt_and_never_lowers_it() -> None:
    restart = RunnerRestartRequested(instance=I1, attempt=3, reason="r")
    state = fold(placed(), restart, replace(restart, attempt=2), replace(restart, attempt=3))
    assert state.attempts[I1] == 3
    stopping = fold(state, InstanceStopping(instance=I1), replace(restart, attempt=4))
    assert stopping.attempts[I1] == 3


def test_a_decision_applies_all_its_events_and_remembers_the_answer_once() -> None:
    state = fold(State(), decided((ADMIT_A, ADMIT_B), subject="both"))
    assert list(state.nodes) == [A, B]
    answer = state.answers[CommandId("c-1")]
    assert (answer.index, answer.subject) == (0, "both")
    again = fold(state, decided((NodeRevoked(node=B, reason="x"),), subject="other"))
    assert again == replace(state, index=1)


def test_a_decision_within_a_decision_is_not_followed() -> None:
    nested = decided((ADMIT_B,), key="c-2")
    state = fold(State(), decided((ADMIT_A, nested)))
    assert list(state.nodes) == [A]
    assert list(state.answers) == ["c-1"]


def test_the_oldest_answers_are_forgotten_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(apply_module, "ANSWERS_MIN", 6)
    monkeypatch.setattr(apply_module, "ANSWERS_CHUNK", 3)
    state = fold(State(), *(decided((), key=f"c-{number}") for number in range(13)))
    known = [n for n in range(13) if state.answer_to(CommandId(f"c-{n}")) is not None]
    assert known == list(range(6, 13))
    assert [len(chunk) for chunk in state.answers_before] == [3, 3]
    again = fold(state, decided((ADMIT_A,), key="c-7"))
    assert (again.nodes, again.answers) == (state.nodes, state.answers)


def test_answers_of_a_snapshot_from_before_the_chunks_are_kept() -> None:
    answers = {
        CommandId(f"c-{n}"): Accepted(id=CommandId(f"c-{n}"), index=n, subject="")
        for n in range(ANSWERS_MIN)
    }
    state = fold(State(answers=answers), decided((), key="c-new"))
    assert state.answer_to(CommandId("c-0")) is not None
    assert state.answer_to(CommandId("c-new")) is not None


def test_applying_an_event_copies_only_what_it_changes() -> None:
    state = fold(State(), *(decided((), key=f"c-{number}") for number in range(2000)))
    state = fold(state, ADMIT_A, ADMIT_B)
    after = fold(state, decided((), key="c-new"))
    assert after.answers_before is state.answers_before
    assert len(after.answers) <= ANSWERS_CHUNK
    lost = fold(state, NodeLost(node=A, reason="r"))
    assert lost.nodes[B] is state.nodes[B]
    for name in State.__struct_fields__:
        before = getattr(state, name)
        if name not in ("index", "session"):
            assert (getattr(lost, name) is before) == (name != "nodes"), name
            assert (getattr(after, name) is before) == (name != "answers"), name


def test_the_last_rejections_are_kept() -> None:
    state = State()
    for number in range(REJECTIONS_MAX + 2):
        failure = Failure(code="x", message=str(number))
        rejected = ProposalRejected(id=EventId(A, 1, number), asked_by=A, failure=failure)
        state = fold(state, rejected)
    assert len(state.rejections) == REJECTIONS_MAX
    assert state.rejections[-1].failure.message == str(REJECTIONS_MAX + 1)


GHOST = NodeId("ghost")
NOWHERE = InstanceId("i-ghost")


@pytest.mark.parametrize(
    "event",
    [
        NodeDescribed(node=GHOST, name="g", machine=MAC, version="1", incarnation=9),
        NodeLost(node=GHOST, reason="r"),
        NodeReturned(node=GHOST),
        NodeCordoned(node=GHOST, cordoned=True),
        NodeNamed(node=GHOST, name="x"),
        NodeLabelled(node=GHOST, labels={"a": "b"}),
        InstanceStopping(instance=NOWHERE),
        InstanceRemoved(instance=NOWHERE),
        RunnerChanged(runner=runner("a", RunnerPhase.READY, key="i-ghost")),
        RunnerChanged(runner=runner("ghost", RunnerPhase.READY)),
        RunnerChanged(runner=runner("a", RunnerPhase.READY, node=B)),
        RunnerRestartRequested(instance=NOWHERE, attempt=5, reason="r"),
        DecisionWithdrawn(command=CommandId("c-9")),
        ProposalDropped(id=EventId(GHOST, 1, 1)),
        SessionOpened(session=Session(term=9, master=B, incarnation=9)),
    ],
    ids=str,
)
def test_an_event_about_something_that_is_not_there_changes_only_the_index(event: Event) -> None:
    before = placed()
    assert fold(before, event) == replace(before, index=before.index + 1)


def test_only_the_map_whose_key_changed_is_copied() -> None:
    before = placed()
    after = fold(before, NodeLost(node=B, reason="r"))
    assert after.nodes is not before.nodes
    assert after.nodes[A] is before.nodes[A]
    assert after.instances is before.instances
    assert after.runners is before.runners
    assert after.answers is before.answers


def placement(key: str, nodes: list[str]) -> Event:
    return InstancePlaced(instance=instance(nodes, key=key))


def transition(key: str, name: str, phase: RunnerPhase, attempt: int) -> Event:
    return RunnerChanged(runner=runner(name, phase, key=key, attempt=attempt))


def decision(parts: list[Event], number: int) -> Event:
    return decided(parts, key=f"c-{number}")


names = st.sampled_from(["a", "b", "c"]).map(NodeId)
keys = st.sampled_from(["i-1", "i-2"])
phases = st.sampled_from(list(RunnerPhase))
text = st.text(max_size=5)
plain_events: st.SearchStrategy[Event] = st.one_of(
    st.builds(ClusterFounded, cluster=st.just(ClusterId("c")), name=text, founder=names),
    st.builds(ViewChanged, in_sync=st.lists(names, max_size=3).map(tuple)),
    st.builds(NodeAdmitted, node=names, name=text, admitted_by=names),
    st.builds(NodeRevoked, node=names, reason=text),
    st.builds(
        NodeDescribed,
        node=names,
        name=text,
        machine=st.just(MAC),
        version=text,
        incarnation=st.integers(0, 3),
    ),
    st.builds(NodeLost, node=names, reason=text, at=st.floats(0, 9)),
    st.builds(NodeReturned, node=names),
    st.builds(NodeCordoned, node=names, cordoned=st.booleans()),
    st.builds(NodeNamed, node=names, name=text),
    st.builds(NodeLabelled, node=names, labels=st.dictionaries(text, text, max_size=2)),
    st.builds(
        placement,
        keys,
        st.lists(names, min_size=1, max_size=3, unique=True),
    ),
    st.builds(InstanceStopping, instance=keys.map(InstanceId)),
    st.builds(InstanceRemoved, instance=keys.map(InstanceId)),
    st.builds(transition, keys, names, phases, st.integers(1, 3)),
    st.builds(
        RunnerRestartRequested,
        instance=keys.map(InstanceId),
        attempt=st.integers(0, 4),
        reason=text,
    ),
)
events = st.one_of(
    plain_events,
    st.builds(decision, st.lists(plain_events, max_size=3), st.integers(1, 4)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(events, max_size=25), st.integers(0, 25))
def test_a_snapshot_and_the_tail_give_the_same_state_as_the_whole_log(
    happened: list[Event], cut: int
) -> None:
    whole = fold(State(), *happened)
    before = fold(State(), *happened[:cut])
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(before), type=State)
    assert stored == before
    assert list(stored.answers) == list(before.answers)
    assert fold(stored, *happened[cut:]) == whole


@settings(max_examples=150, deadline=None)
@given(st.lists(events, max_size=25))
def test_the_state_never_speaks_of_what_it_does_not_have(happened: list[Event]) -> None:
    state = fold(State(), *happened)
    assert state.instances.keys() == state.attempts.keys()
    assert all(record.instance in state.instances for record in state.runners.values())
    assert not state.nodes.keys() & state.revoked.keys()
