"""Folding the log's entries into the state: pure, total, the same on every node.

Nothing that lies in an entry can make this fail: a payload that can't be read and a reference to
something that is not there change nothing beside the index. That keeps nodes of different versions
alike, and lets an event be applied after the thing that it speaks of is gone.
"""

from collections.abc import Mapping
from typing import TypeVar, assert_never

import msgspec
from msgspec.structs import replace

from node.model.command import Accepted
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
from node.model.ids import NodeId, short
from node.model.instance import Instance, RunnerRecord
from node.model.machine import NodeRecord
from node.model.session import Entry
from node.model.state import ANSWERS_CHUNK, ANSWERS_MIN, REJECTIONS_MAX, State

REVOKED_MAX = 1000
"""Nodes remembered as revoked. Forgetting one admits no one: only members' links are accepted."""

_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)

_ClusterEvent = ClusterFounded | SessionOpened | ViewChanged
_NodeEvent = NodeAdmitted | NodeRevoked | NodeDescribed | NodeLost | NodeReturned
_TendedEvent = NodeCordoned | NodeNamed | NodeLabelled
_InstanceEvent = (
    InstancePlaced | InstanceStopping | InstanceRemoved | InstanceReplaced | InstanceStranded
)
_RunnerEvent = RunnerChanged | RunnerRestartRequested
_WithdrawnEvent = DecisionWithdrawn | ProposalDropped | ProposalRejected

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def read_event(payload: bytes) -> Event | None:
    """The event in an entry; None where this node can't read it (unknown tag, broken bytes)."""
    try:
        return _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def apply(state: State, entry: Entry) -> State:
    """Fold one committed entry in. Entries come in order; one folded in already is passed over."""
    if entry.index <= state.index:
        return state
    event = read_event(entry.payload)
    if event is not None:
        state = apply_event(state, event, entry)
    return replace(state, index=entry.index, session=entry.session)


def apply_event(state: State, event: Event, entry: Entry) -> State:
    """Fold an event in; `entry` says where in the log it lies. Leaves index and session alone."""
    match event:
        case ClusterFounded() | SessionOpened() | ViewChanged():
            return _apply_cluster(state, event, entry)
        case (
            NodeAdmitted()
            | NodeRevoked()
            | NodeDescribed()
            | NodeLost()
            | NodeReturned()
            | NodeCordoned()
            | NodeNamed()
            | NodeLabelled()
        ):
            return _apply_node(state, event, entry)
        case (
            InstancePlaced()
            | InstanceStopping()
            | InstanceRemoved()
            | InstanceReplaced()
            | InstanceStranded()
        ):
            return _apply_instance(state, event, entry)
        case RunnerChanged() | RunnerRestartRequested():
            return _apply_runner(state, event)
        case CommandDecided():
            return _decided(state, event, entry)
        case DecisionWithdrawn() | ProposalDropped() | ProposalRejected():
            return _withdrawn(state, event)
        case _:
            assert_never(event)


def _apply_cluster(state: State, event: _ClusterEvent, entry: Entry) -> State:
    match event:
        case ClusterFounded():
            return _founded(state, event, entry)
        case SessionOpened():
            return state
        case ViewChanged():
            return replace(state, in_sync=event.in_sync)
        case _:
            assert_never(event)


def _apply_node(state: State, event: _NodeEvent | _TendedEvent, entry: Entry) -> State:
    match event:
        case NodeCordoned() | NodeNamed() | NodeLabelled():
            record = state.nodes.get(event.node)
            return state if record is None else _with_node(state, _tended(record, event))
        case NodeAdmitted():
            return _admitted(state, event, entry)
        case NodeRevoked():
            return _revoked(state, event)
        case NodeDescribed():
            return _described(state, event)
        case NodeLost():
            return _lost(state, event)
        case NodeReturned():
            return _returned(state, event.node)
        case _:
            assert_never(event)


def _apply_instance(state: State, event: _InstanceEvent, entry: Entry) -> State:
    match event:
        case InstancePlaced():
            return _placed(state, event.instance, entry)
        case InstanceStopping():
            return _stopping(state, event)
        case InstanceRemoved():
            return _removed(state, event)
        case InstanceReplaced():
            return _replaced(state, event, entry)
        case InstanceStranded():
            return _stranded(state, event)
        case _:
            assert_never(event)


def _apply_runner(state: State, event: _RunnerEvent) -> State:
    match event:
        case RunnerChanged():
            return _runner_changed(state, event.runner)
        case RunnerRestartRequested():
            return _restart_requested(state, event)
        case _:
            assert_never(event)


def _founded(state: State, event: ClusterFounded, entry: Entry) -> State:
    if state.cluster:
        return state
    founder = NodeRecord(
        node=event.founder,
        name=short(event.founder),
        admitted_by=event.founder,
        admitted_index=entry.index,
    )
    state = replace(state, cluster=event.cluster, cluster_name=event.name)
    return _with_member(state, founder)


def _admitted(state: State, event: NodeAdmitted, entry: Entry) -> State:
    record = state.nodes.get(event.node)
    if record is None:
        record = NodeRecord(
            node=event.node,
            name=event.name,
            admitted_by=event.admitted_by,
            admitted_index=entry.index,
            addresses=event.addresses,
        )
    else:
        record = _calls_itself(record, event.name)
        record = replace(record, addresses=event.addresses or record.addresses)
    return _with_member(state, record)


def _revoked(state: State, event: NodeRevoked) -> State:
    revoked = _with(_without(state.revoked, event.node), event.node, event.reason)
    record = state.nodes.get(event.node)
    former = state.former
    if record is not None:
        former = _newest(_with(_without(former, event.node), event.node, record.name), REVOKED_MAX)
    return replace(
        state,
        former=former,
        revoked=_newest(revoked, REVOKED_MAX),
        nodes=_without(state.nodes, event.node),
        in_sync=tuple(node for node in state.in_sync if node != event.node),
    )


def _described(state: State, event: NodeDescribed) -> State:
    record = state.nodes.get(event.node)
    if record is None or event.incarnation < record.incarnation:
        return state
    record = replace(
        _calls_itself(record, event.name),
        machine=event.machine,
        version=event.version,
        incarnation=event.incarnation,
        addresses=event.addresses,
    )
    return _with_node(state, record)


def _lost(state: State, event: NodeLost) -> State:
    record = state.nodes.get(event.node)
    if record is None:
        return state
    record = replace(
        record, lost=True, lost_reason=event.reason, lost_at=event.at, stopped=event.stopped
    )
    return _with_node(state, record)


def _returned(state: State, node: NodeId) -> State:
    record = state.nodes.get(node)
    if record is None:
        return state
    record = replace(record, lost=False, lost_reason="", lost_at=0.0, stopped=False)
    return _with_node(state, record)


def _tended(record: NodeRecord, event: _TendedEvent) -> NodeRecord:
    """The node as its owner wants it from now on."""
    match event:
        case NodeCordoned():
            return replace(record, cordoned=event.cordoned)
        case NodeNamed():
            own = record.own_name or record.name
            if event.name in ("", own):
                return replace(record, name=own, own_name="")
            return replace(record, name=event.name, own_name=own)
        case NodeLabelled():
            return replace(record, labels=event.labels)
        case _:
            assert_never(event)


def _calls_itself(record: NodeRecord, name: str) -> NodeRecord:
    """The node said its own name: it is called so, unless people call it otherwise."""
    if not record.own_name:
        return replace(record, name=name)
    return replace(record, own_name="" if name == record.name else name)


def _placed(state: State, instance: Instance, entry: Entry) -> State:
    key = instance.instance
    if key in state.instances:
        return state
    return replace(
        state,
        instances=_with(state.instances, key, replace(instance, placed_index=entry.index)),
        attempts=_with(state.attempts, key, 1),
    )


def _stopping(state: State, event: InstanceStopping) -> State:
    instance = state.instances.get(event.instance)
    if instance is None:
        return state
    instances = _with(state.instances, event.instance, replace(instance, removing=True))
    return replace(state, instances=instances)


def _replaced(state: State, event: InstanceReplaced, entry: Entry) -> State:
    """Once: whoever stops it first, a person or an earlier replacement, holds."""
    instance = state.instances.get(event.instance)
    if instance is None or instance.removing:
        return state
    state = _placed(state, event.by, entry)
    return _stopping(state, InstanceStopping(instance=event.instance))


def _stranded(state: State, event: InstanceStranded) -> State:
    instance = state.instances.get(event.instance)
    if instance is None:
        return state
    stranded = replace(instance, stranded=event.failure)
    return replace(state, instances=_with(state.instances, event.instance, stranded))


def _removed(state: State, event: InstanceRemoved) -> State:
    instance = state.instances.get(event.instance)
    if instance is None:
        return state
    gone = {shard.runner for shard in instance.shards}
    return replace(
        state,
        instances=_without(state.instances, event.instance),
        attempts=_without(state.attempts, event.instance),
        runners={key: record for key, record in state.runners.items() if key not in gone},
    )


def _runner_changed(state: State, runner: RunnerRecord) -> State:
    instance = state.instances.get(runner.instance)
    if instance is None:
        return state
    if not any(
        shard.runner == runner.runner and shard.node == runner.node for shard in instance.shards
    ):
        return state
    known = state.runners.get(runner.runner)
    if known is not None and runner.attempt < known.attempt:
        return state
    return replace(state, runners=_with(state.runners, runner.runner, runner))


def _restart_requested(state: State, event: RunnerRestartRequested) -> State:
    instance = state.instances.get(event.instance)
    if instance is None or instance.removing:
        return state
    if event.attempt <= state.attempts.get(event.instance, 0):
        return state
    return replace(state, attempts=_with(state.attempts, event.instance, event.attempt))


def _decided(state: State, event: CommandDecided, entry: Entry) -> State:
    # A command that two halves of a partition both decided counts once: the first in the log holds.
    if state.answer_to(event.command) is not None:
        return state
    for part in event.events:
        # No decision holds another; one that does is malformed, and not followed to its depth.
        if not isinstance(part, CommandDecided):
            state = apply_event(state, part, entry)
    answer = Accepted(id=event.command, index=entry.index, subject=event.subject)
    return _with_answer(state, answer)


def _with_answer(state: State, answer: Accepted) -> State:
    if len(state.answers) < ANSWERS_CHUNK:
        return replace(state, answers=_with(state.answers, answer.id, answer))
    before = (*state.answers_before, state.answers)
    if sum(len(chunk) for chunk in before[1:]) >= ANSWERS_MIN:
        before = before[1:]
    return replace(state, answers={answer.id: answer}, answers_before=before)


def _withdrawn(state: State, event: _WithdrawnEvent) -> State:
    """Only what was rejected is told to people."""
    if not isinstance(event, ProposalRejected):
        return state
    return replace(state, rejections=(*state.rejections, event)[-REJECTIONS_MAX:])


def _with_member(state: State, record: NodeRecord) -> State:
    state = _with_node(state, record)
    if record.node in state.revoked:
        state = replace(state, revoked=_without(state.revoked, record.node))
    return state


def _with_node(state: State, record: NodeRecord) -> State:
    return replace(state, nodes=_with(state.nodes, record.node, record))


def _with(mapping: Mapping[_Key, _Value], key: _Key, value: _Value) -> dict[_Key, _Value]:
    return {**mapping, key: value}


def _without(mapping: Mapping[_Key, _Value], key: _Key) -> dict[_Key, _Value]:
    return {kept: value for kept, value in mapping.items() if kept != key}


def _newest(mapping: dict[_Key, _Value], count_max: int) -> dict[_Key, _Value]:
    """The mapping without its oldest entries beyond the limit; maps keep the order of insertion."""
    for key in list(mapping)[: max(0, len(mapping) - count_max)]:
        del mapping[key]
    return mapping
