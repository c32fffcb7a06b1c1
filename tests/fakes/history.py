"""Entries of an ordered log that fit the clusters of `tests.fakes.cluster`."""

import msgspec

from node.model.errors import Failure
from node.model.event import (
    CommandDecided,
    Event,
    InstancePlaced,
    InstanceStopping,
    NodeAdmitted,
    NodeDescribed,
    NodeLost,
    NodeReturned,
    RunnerChanged,
    SessionOpened,
    ViewChanged,
)
from node.model.ids import CommandId
from node.model.instance import RunnerPhase
from node.model.session import Entry, EventId
from node.model.state import State
from tests.fakes.cluster import NOW

_ENCODER = msgspec.msgpack.Encoder()


def entry(state: State, index: int, origin: int, event: Event) -> Entry:
    """One entry, written by the origin-th node of the state."""
    node = list(state.nodes)[origin % len(state.nodes)]
    return Entry(
        session=state.session,
        index=index,
        id=EventId(node, 1, 20_000 + index % 1000),
        payload=_ENCODER.encode(event),
        written_at=NOW - 60 + index % 60,
    )


def _life(state: State) -> list[tuple[int, Event]]:
    """What happened to the nodes and instances of a state, as (origin, event)."""
    nodes = list(state.nodes.values())
    happened: list[tuple[int, Event]] = [
        (0, SessionOpened(session=state.session, reason="first start of the cluster"))
    ]
    for place, node in enumerate(nodes):
        if place:
            admitted = NodeAdmitted(node=node.node, name=node.name, admitted_by=nodes[0].node)
            happened.append((0, admitted))
        assert node.machine is not None
        happened.append(
            (
                place,
                NodeDescribed(
                    node=node.node,
                    name=node.name,
                    machine=node.machine,
                    version=node.version,
                    incarnation=1,
                ),
            )
        )
    happened.append((0, ViewChanged(in_sync=tuple(state.nodes))))
    for instance in state.instances.values():
        placed = CommandDecided(
            command=CommandId("c-41fe09aa17d3b8c2"),
            asked_by=instance.requested_by,
            events=(InstancePlaced(instance=instance),),
            subject=instance.instance,
        )
        happened.append((0, placed))
        for phase in (RunnerPhase.STARTING, RunnerPhase.LOADING, RunnerPhase.READY):
            for shard in instance.shards:
                runner = state.runners[shard.runner]
                record = msgspec.structs.replace(runner, phase=phase, failure=None)
                origin = list(state.nodes).index(shard.node)
                happened.append((origin, RunnerChanged(runner=record)))
    return happened


def history(state: State) -> list[Entry]:
    """Entries that end at the state's index."""
    happened = _life(state)
    first = state.index - len(happened) + 1
    return [
        entry(state, first + place, origin, event) for place, (origin, event) in enumerate(happened)
    ]


def trouble(state: State) -> list[Entry]:
    """Entries after the state's index: a node lost and heard again, a runner failed, a stop."""
    last = list(state.nodes.values())[-1].node
    happened: list[tuple[int, Event]] = [
        (0, NodeLost(node=last, reason="no heartbeat for 3.0 s", at=NOW)),
        (0, NodeReturned(node=last)),
    ]
    for instance in list(state.instances.values())[:1]:
        runner = msgspec.structs.replace(
            state.runners[instance.shards[0].runner],
            phase=RunnerPhase.FAILED,
            failure=Failure(code="runner_lost", message="runner ended: signal 9"),
        )
        happened.append((0, RunnerChanged(runner=runner)))
        happened.append((0, InstanceStopping(instance=instance.instance)))
    return [
        entry(state, state.index + 1 + place, origin, event)
        for place, (origin, event) in enumerate(happened)
    ]
