"""Whether an event that was withdrawn after a partition still holds in the state as it is now."""

from typing import assert_never

import msgspec

from node.core.facts import Facts
from node.core.naming import name_of
from node.core.placement.room import bytes_outstanding, rooms
from node.core.placement.words import size
from node.model.errors import Failure
from node.model.event import (
    ClusterFounded,
    CommandDecided,
    DecisionWithdrawn,
    Event,
    InstancePlaced,
    InstanceRemoved,
    InstanceReplaced,
    InstanceStopping,
    InstanceStranded,
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
from node.model.instance import Instance
from node.model.state import State


class Keep(msgspec.Struct, frozen=True):
    """It goes into the log again."""


class Drop(msgspec.Struct, frozen=True):
    """It says nothing any more: something newer is known, or it is so already."""


class Reject(msgspec.Struct, frozen=True):
    """It was decided, but can't be so any more; people are told."""

    failure: Failure


Verdict = Keep | Drop | Reject

_Membership = NodeAdmitted | NodeRevoked | NodeCordoned | NodeNamed | NodeLabelled
_Report = NodeDescribed | RunnerChanged | ProposalRejected
_Placing = InstancePlaced | InstanceStopping | RunnerRestartRequested


def revalidate(state: State, event: Event, facts: Facts) -> Verdict:
    """Judge an event against the state now.

    A placement is rejected where a node of it is not of the cluster any more or where its memory
    was promised to another. It is kept where a node is merely lost, for right after a partition
    most nodes of the other half are; and where it runs already, for its memory is then its own.
    """
    match event:
        case (
            ClusterFounded()
            | SessionOpened()
            | ViewChanged()
            | NodeLost()
            | NodeReturned()
            | InstanceRemoved()
            | InstanceReplaced()
            | InstanceStranded()
            | DecisionWithdrawn()
            | ProposalDropped()
        ):
            return Drop()  # what another master observed; this one observes by itself
        case NodeAdmitted() | NodeRevoked() | NodeCordoned() | NodeNamed() | NodeLabelled():
            return _membership(state, event)
        case NodeDescribed() | RunnerChanged() | ProposalRejected():
            return _report(state, event)
        case InstancePlaced() | InstanceStopping() | RunnerRestartRequested():
            return _placing(state, event, facts)
        case CommandDecided():
            return _decision(state, event, facts)
        case _:
            assert_never(event)


def _membership(state: State, event: _Membership) -> Verdict:
    match event:
        case NodeAdmitted():
            reason = state.revoked.get(event.node)
            if reason is None:
                return Drop() if event.node in state.nodes else Keep()
            return Reject(
                Failure(
                    code="node_revoked",
                    message=f"{event.name} was admitted while the cluster was split, and removed in"
                    f" its other half: {reason}",
                    remedy="invite it again if it is to come back",
                    node=event.name,
                )
            )
        case NodeRevoked():
            holds = event.node in state.nodes and len(state.nodes) > 1
        case NodeCordoned():
            record = state.nodes.get(event.node)
            holds = record is not None and record.cordoned != event.cordoned
        case NodeNamed():
            record = state.nodes.get(event.node)
            holds = record is not None and event.name != (record.name if record.own_name else "")
        case NodeLabelled():
            record = state.nodes.get(event.node)
            holds = record is not None and record.labels != event.labels
        case _:
            assert_never(event)
    return Keep() if holds else Drop()


def _report(state: State, event: _Report) -> Verdict:
    match event:
        case NodeDescribed():
            record = state.nodes.get(event.node)
            holds = record is not None and event.incarnation >= record.incarnation
        case RunnerChanged():
            known = state.runners.get(event.runner.runner)
            # One node writes both, so its clock may be compared with itself.
            holds = event.runner.instance in state.instances and (
                known is None
                or (known.attempt, known.changed_at)
                < (event.runner.attempt, event.runner.changed_at)
            )
        case ProposalRejected():
            holds = event not in state.rejections
        case _:
            assert_never(event)
    return Keep() if holds else Drop()


def _placing(state: State, event: _Placing, facts: Facts) -> Verdict:
    match event:
        case InstancePlaced():
            return _placement(state, event.instance, facts)
        case InstanceStopping():
            instance = state.instances.get(event.instance)
            holds = instance is not None and not instance.removing
        case RunnerRestartRequested():
            instance = state.instances.get(event.instance)
            wanted = state.attempts.get(event.instance, 0)
            holds = instance is not None and not instance.removing and event.attempt > wanted
        case _:
            assert_never(event)
    return Keep() if holds else Drop()


def _placement(state: State, instance: Instance, facts: Facts) -> Verdict:
    if instance.instance in state.instances:
        return Drop()
    for node in instance.nodes:
        if node not in state.nodes:
            return Reject(
                Failure(
                    code="node_not_found",
                    message=f"{instance.model} ({instance.instance}) was placed on"
                    f" {name_of(state, node)}, which is no longer of the cluster",
                    remedy="place it again",
                )
            )
    known = rooms(state, facts, frozenset())
    for node in instance.nodes:
        room = known.get(node)
        if room is None:
            continue
        needed = sum(
            bytes_outstanding(shard, facts)
            for shard in instance.shards
            if shard.node in room.beside
        )
        free = max(0, room.bytes_free)
        if needed > free:
            return Reject(
                Failure(
                    code="no_fit",
                    message=f"{instance.model} ({instance.instance}) needs {size(needed)} more on"
                    f" {room.name}, which has {size(free)} left: its memory was given away while"
                    " the cluster was split",
                    remedy="stop what runs there, or place it elsewhere",
                    node=room.name,
                )
            )
    return Keep()


def _decision(state: State, event: CommandDecided, facts: Facts) -> Verdict:
    """All or nothing: one part that can't be so any more takes the whole decision with it."""
    if state.answer_to(event.command) is not None:
        return Drop()
    for part in event.events:
        verdict = Drop() if isinstance(part, CommandDecided) else revalidate(state, part, facts)
        if isinstance(verdict, Reject):
            return verdict
    return Keep()
