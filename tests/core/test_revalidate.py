"""Withdrawn events, judged against the state after the partition."""

import pytest
from msgspec.structs import replace

from node.core.facts import Facts
from node.core.placement.room import RUNNER_BYTES
from node.core.revalidate import Drop, Keep, Reject, revalidate
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
from node.model.ids import ClusterId, CommandId, InstanceId, NodeId, RunnerId
from node.model.instance import RunnerPhase
from node.model.session import EventId
from node.model.state import State
from tests.fakes.fleet import (
    GIB,
    MAC,
    SESSION,
    amend,
    card,
    decided,
    fleet,
    fold,
    instance,
    linked,
    progress,
    runner,
)

A, B = NodeId("a"), NodeId("b")
GHOST = NodeId("ghost")
I1, NOWHERE = InstanceId("i-00000001"), InstanceId("i-ghost")
REJECTED = ProposalRejected(id=EventId(A, 1, 1), asked_by=A, failure=Failure(code="x", message="m"))
KNOWN = runner("a", RunnerPhase.READY, attempt=2, changed_at=50.0)


def cluster() -> tuple[State, Facts]:
    """Two nodes with 8 GiB to give, one instance, one revoked node."""
    state, facts = fleet({"a": 10 * GIB, "b": 10 * GIB}, card())
    state = fold(
        state,
        InstancePlaced(instance=instance(("a",))),
        NodeRevoked(node=NodeId("out"), reason="sold"),
        RunnerRestartRequested(instance=I1, attempt=2, reason="r"),
        RunnerChanged(runner=KNOWN),
        REJECTED,
        decided((), key="c-known"),
    )
    state = amend(state, "b", incarnation=3)
    return state, facts


def described(node: NodeId, incarnation: int) -> Event:
    return NodeDescribed(node=node, name="n", machine=MAC, version="1", incarnation=incarnation)


@pytest.mark.parametrize(
    ("event", "verdict"),
    [
        (ClusterFounded(cluster=ClusterId("c"), name="n", founder=A), Drop()),
        (SessionOpened(session=SESSION), Drop()),
        (ViewChanged(in_sync=(A,)), Drop()),
        (NodeLost(node=A, reason="r"), Drop()),
        (NodeReturned(node=A), Drop()),
        (InstanceRemoved(instance=I1), Drop()),
        (DecisionWithdrawn(command=CommandId("c-1")), Drop()),
        (ProposalDropped(id=EventId(A, 1, 1)), Drop()),
        (NodeAdmitted(node=NodeId("new"), name="new", admitted_by=A), Keep()),
        (NodeAdmitted(node=A, name="a", admitted_by=A), Drop()),
        (NodeRevoked(node=B, reason="r"), Keep()),
        (NodeRevoked(node=GHOST, reason="r"), Drop()),
        (NodeCordoned(node=B, cordoned=True), Keep()),
        (NodeCordoned(node=B, cordoned=False), Drop()),
        (NodeCordoned(node=GHOST, cordoned=True), Drop()),
        (NodeNamed(node=B, name="cellar"), Keep()),
        (NodeNamed(node=B, name=""), Drop()),
        (NodeNamed(node=GHOST, name="x"), Drop()),
        (NodeLabelled(node=B, labels={"a": "b"}), Keep()),
        (NodeLabelled(node=B, labels={}), Drop()),
        (NodeLabelled(node=GHOST, labels={"a": "b"}), Drop()),
        (described(B, 3), Keep()),
        (described(B, 2), Drop()),
        (described(GHOST, 9), Drop()),
        (RunnerChanged(runner=replace(KNOWN, changed_at=51.0)), Keep()),
        (RunnerChanged(runner=replace(KNOWN, attempt=3, changed_at=1.0)), Keep()),
        (RunnerChanged(runner=KNOWN), Drop()),
        (RunnerChanged(runner=replace(KNOWN, attempt=1, changed_at=99.0)), Drop()),
        (RunnerChanged(runner=replace(KNOWN, runner=RunnerId("r-new"))), Keep()),
        (RunnerChanged(runner=replace(KNOWN, instance=NOWHERE, attempt=9)), Drop()),
        (REJECTED, Drop()),
        (replace(REJECTED, asked_by=B), Keep()),
        (InstancePlaced(instance=instance(("a",))), Drop()),
        (InstanceStopping(instance=I1), Keep()),
        (InstanceStopping(instance=NOWHERE), Drop()),
        (RunnerRestartRequested(instance=I1, attempt=3, reason="r"), Keep()),
        (RunnerRestartRequested(instance=I1, attempt=2, reason="r"), Drop()),
        (RunnerRestartRequested(instance=NOWHERE, attempt=9, reason="r"), Drop()),
        (decided((), key="c-known"), Drop()),
        (decided((), key="c-new"), Keep()),
        (decided((decided((), key="c-inner"),), key="c-new"), Keep()),
    ],
    ids=str,
)
def test_an_event_is_kept_only_if_it_still_says_something(
    event: Event, verdict: Keep | Drop
) -> None:
    state, facts = cluster()
    assert revalidate(state, event, facts) == verdict


def test_a_stop_of_what_is_being_stopped_is_dropped() -> None:
    state, facts = cluster()
    stop = InstanceStopping(instance=I1)
    assert revalidate(fold(state, stop), stop, facts) == Drop()
    restart = RunnerRestartRequested(instance=I1, attempt=9, reason="r")
    assert revalidate(fold(state, stop), restart, facts) == Drop()


def test_the_last_node_is_never_revoked() -> None:
    state, facts = fleet({"a": GIB}, card())
    assert revalidate(state, NodeRevoked(node=A, reason="r"), facts) == Drop()


def test_an_admission_of_a_node_that_the_other_half_removed_is_rejected() -> None:
    state, facts = cluster()
    verdict = revalidate(state, NodeAdmitted(node=NodeId("out"), name="mini", admitted_by=A), facts)
    assert isinstance(verdict, Reject)
    assert verdict.failure.code == "node_revoked"
    assert "sold" in verdict.failure.message


def placement(*names: str, weight_bytes: int = GIB) -> InstancePlaced:
    made = instance(names, key="i-new")
    shards = tuple(
        replace(shard, weight_bytes=weight_bytes, runner=RunnerId(f"r-new-{shard.node}"))
        for shard in made.shards
    )
    return InstancePlaced(instance=replace(made, shards=shards))


def test_a_placement_that_still_fits_is_kept() -> None:
    state, facts = cluster()
    assert revalidate(state, placement("a", "b"), facts) == Keep()


def test_a_placement_on_a_node_that_is_gone_is_rejected() -> None:
    state, facts = cluster()
    verdict = revalidate(state, placement("a", "ghost"), facts)
    assert isinstance(verdict, Reject)
    assert verdict.failure.code == "node_not_found"
    assert "ghost" in verdict.failure.message


def test_a_placement_whose_memory_was_given_away_is_rejected_with_numbers() -> None:
    state, facts = cluster()
    free = 10 * GIB - 16 * GIB * 8 // 100 - GIB - RUNNER_BYTES
    fits = placement("a", weight_bytes=free - RUNNER_BYTES)
    assert revalidate(state, fits, facts) == Keep()
    verdict = revalidate(state, placement("a", weight_bytes=free), facts)
    assert isinstance(verdict, Reject)
    assert verdict.failure.code == "no_fit"
    assert verdict.failure.node == "a"
    assert "7.7 GiB more" in verdict.failure.message


def test_a_placement_that_runs_already_owns_its_memory() -> None:
    state, facts = cluster()
    loaded = progress("new-a", memory_bytes=9 * GIB)
    facts = replace(facts, runners={loaded.runner: loaded})
    event = placement("a", weight_bytes=9 * GIB - RUNNER_BYTES)
    assert revalidate(state, event, facts) == Keep()


def test_stages_on_one_machine_are_weighed_together() -> None:
    state, facts = cluster()
    facts = replace(facts, links=linked([("a", "b")], medium="loopback"))
    each = 4 * GIB
    assert revalidate(state, placement("b", weight_bytes=each), facts) == Keep()
    assert isinstance(revalidate(state, placement("a", "b", weight_bytes=each), facts), Reject)


def test_a_node_that_is_only_lost_or_unknown_keeps_its_placement() -> None:
    state, facts = cluster()
    facts = replace(facts, machines={})
    event = placement("b", weight_bytes=999 * GIB)
    assert revalidate(amend(state, "b", lost=True), event, facts) == Keep()


def test_a_decision_falls_with_any_part_of_it() -> None:
    state, facts = cluster()
    good, bad = NodeCordoned(node=B, cordoned=True), placement("ghost")
    assert revalidate(state, decided((good,), key="c-new"), facts) == Keep()
    verdict = revalidate(state, decided((good, bad), key="c-new"), facts)
    assert isinstance(verdict, Reject)
    assert verdict.failure.code == "node_not_found"
