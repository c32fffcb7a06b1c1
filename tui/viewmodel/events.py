"""Entries of the log as rows: kind, subject and one line of words."""

from collections.abc import Mapping
from typing import assert_never

from node.core.apply import read_event
from node.core.naming import name_of, with_names
from node.model import event as facts
from node.model.event import Event
from node.model.ids import NodeId
from node.model.instance import Instance, RunnerPhase
from node.model.session import Entry
from node.model.state import State
from tui.viewmodel import glyphs, text
from tui.viewmodel.rows import EventRow, Level

Description = tuple[str, str, Level]
"""Subject, summary, level."""

_WithdrawnEvent = facts.DecisionWithdrawn | facts.ProposalDropped | facts.ProposalRejected
_ClusterEvent = facts.ClusterFounded | facts.SessionOpened | facts.ViewChanged
_NodeEvent = (
    facts.NodeAdmitted
    | facts.NodeRevoked
    | facts.NodeDescribed
    | facts.NodeLost
    | facts.NodeReturned
)
_TendedEvent = facts.NodeCordoned | facts.NodeNamed | facts.NodeLabelled
_InstanceEvent = (
    facts.InstancePlaced
    | facts.InstanceStopping
    | facts.InstanceRemoved
    | facts.InstanceReplaced
    | facts.InstanceStranded
)
_RunnerEvent = facts.RunnerChanged | facts.RunnerRestartRequested


class Names:
    """Names and hues of nodes, for ids that an entry speaks of."""

    def __init__(self, state: State, hues: Mapping[NodeId, str]) -> None:
        self._state = state
        self._hues = hues

    def name(self, node: NodeId) -> str:
        """The node's name, its last one where it is gone, or the head of its id."""
        return name_of(self._state, node) or "nobody"

    def words(self, written: str) -> str:
        """What somebody wrote, with names in place of the ids in it."""
        return with_names(self._state, written)

    def hue(self, node: NodeId) -> str:
        """The node's ink."""
        return self._hues.get(node, "dim")


def event_row(entry: Entry, names: Names) -> EventRow:
    """The row of one entry."""
    event = read_event(entry.payload)
    if event is None:
        kind, subject, summary = "unknown", "", "written by a newer version"
        level: Level = "warn"
    else:
        shown = _only_effect(event)
        kind = kind_of(shown)
        subject, summary, level = describe(shown, names)
    return EventRow(
        index=entry.index,
        at=entry.written_at,
        origin=names.name(entry.id.origin),
        hue=names.hue(entry.id.origin),
        sequence=entry.id.sequence,
        kind=kind,
        subject=subject,
        summary=summary,
        level=level,
        is_resubmitted=entry.resubmitted,
    )


OPPOSITES = ("NodeUncordoned", "NodeStopped")
"""Kinds that are shown and have no type of event of their own."""


def kind_of(event: Event) -> str:
    """What happened, in one word: an event that can tell of two opposite things has two."""
    match event:
        case facts.NodeCordoned(cordoned=False):
            return "NodeUncordoned"
        case facts.NodeLost(stopped=True):
            return "NodeStopped"
        case _:
            return type(event).__name__


def _only_effect(event: Event) -> Event:
    """A decision's one event in place of the decision around it."""
    if isinstance(event, facts.CommandDecided) and len(event.events) == 1:
        return event.events[0]
    return event


def describe(event: Event, names: Names) -> Description:
    """Subject, one line of words, and how much it matters."""
    match event:
        case facts.ClusterFounded() | facts.SessionOpened() | facts.ViewChanged():
            return _cluster(event, names)
        case (
            facts.InstancePlaced()
            | facts.InstanceStopping()
            | facts.InstanceRemoved()
            | facts.InstanceReplaced()
            | facts.InstanceStranded()
        ):
            return _instance(event, names)
        case facts.RunnerChanged() | facts.RunnerRestartRequested():
            return _runner(event, names)
        case facts.CommandDecided():
            return _decided(event, names)
        case facts.DecisionWithdrawn() | facts.ProposalDropped() | facts.ProposalRejected():
            return _withdrawn(event, names)
        case _:
            return _node(event, names)


def _withdrawn(event: _WithdrawnEvent, names: Names) -> Description:
    match event:
        case facts.DecisionWithdrawn():
            return event.command, "withdrawn", "warn"
        case facts.ProposalDropped():
            return "", f"{names.name(event.id.origin)}: withdrawn, nothing is lost by it", "idle"
        case facts.ProposalRejected():
            words = f"{names.name(event.asked_by)}: {names.words(event.failure.message)}"
            return event.command or "", words, "bad"
        case _:
            assert_never(event)


def _cluster(event: _ClusterEvent, names: Names) -> Description:
    match event:
        case facts.ClusterFounded():
            return event.name, f"founded by {names.name(event.founder)}", "ok"
        case facts.SessionOpened():
            session = event.session
            words = f"{names.name(session.master)} masters"
            return (
                f"t{session.term}",
                words + (f": {names.words(event.reason)}" if event.reason else ""),
                "ok",
            )
        case facts.ViewChanged():
            inside = ", ".join(names.name(node) for node in event.in_sync)
            return text.plural(len(event.in_sync), "disk"), f"in sync: {inside}", "idle"
        case _:
            assert_never(event)


def _node(event: _NodeEvent | _TendedEvent, names: Names) -> Description:
    match event:
        case facts.NodeCordoned() | facts.NodeNamed() | facts.NodeLabelled():
            return _tended(event, names)
        case facts.NodeAdmitted():
            return event.name, f"let in by {names.name(event.admitted_by)}", "ok"
        case facts.NodeRevoked():
            return names.name(event.node), names.words(event.reason), "warn"
        case facts.NodeDescribed():
            machine = event.machine
            memory = text.memory(machine.memory_bytes)
            return event.name, f"{machine.chip}, {memory}, exoctl {event.version}", "idle"
        case facts.NodeLost():
            return (
                names.name(event.node),
                names.words(event.reason),
                "warn" if event.stopped else "bad",
            )
        case facts.NodeReturned():
            return names.name(event.node), "heard again", "ok"
        case _:
            assert_never(event)


def _tended(event: _TendedEvent, names: Names) -> Description:
    match event:
        case facts.NodeCordoned():
            words = "no new shards" if event.cordoned else "takes shards again"
            return names.name(event.node), words, "warn" if event.cordoned else "ok"
        case facts.NodeNamed():
            words = f"is called {event.name}" if event.name else "is called by its own name again"
            return names.name(event.node), words, "idle"
        case facts.NodeLabelled():
            return names.name(event.node), text.labels(event.labels) or "no labels", "idle"
        case _:
            assert_never(event)


def _instance(event: _InstanceEvent, names: Names) -> Description:
    match event:
        case facts.InstancePlaced():
            return event.instance.instance, _placement(event.instance, names), "ok"
        case facts.InstanceStopping():
            return event.instance, "stop decided", "warn"
        case facts.InstanceRemoved():
            return event.instance, names.words(event.reason) or "all runners are gone", "idle"
        case facts.InstanceReplaced():
            why = names.words(event.reason)
            words = f"{why}: now {event.by.instance}, {_placement(event.by, names)}"
            return event.instance, words, "warn"
        case facts.InstanceStranded():
            return event.instance, f"not placed anew: {names.words(event.failure.message)}", "bad"
        case _:
            assert_never(event)


def _placement(instance: Instance, names: Names) -> str:
    split = ", ".join(
        f"{names.name(shard.node)} {text.layers(shard.first_layer, shard.end_layer)}"
        for shard in instance.shards
    )
    return f"{instance.model} on {split}"


def _runner(event: _RunnerEvent, names: Names) -> Description:
    match event:
        case facts.RunnerRestartRequested():
            return event.instance, f"attempt {event.attempt}: {names.words(event.reason)}", "warn"
        case facts.RunnerChanged():
            runner = event.runner
            words = f"{runner.phase.value.replace('_', ' ')} on {names.name(runner.node)}"
            if runner.phase is RunnerPhase.STARTING and runner.process_id:
                words += f", process {runner.process_id}"
            elif runner.phase is RunnerPhase.CONNECTING and runner.address is not None:
                words += f", waits at {runner.address.host}:{runner.address.port}"
            if runner.failure is not None:
                words += f": {names.words(runner.failure.message)}"
            return runner.runner, words, _runner_level(runner.phase)
        case _:
            assert_never(event)


def _runner_level(phase: RunnerPhase) -> Level:
    if phase is RunnerPhase.FAILED:
        return "bad"
    return "ok" if phase is RunnerPhase.READY else "busy"


def _decided(event: facts.CommandDecided, names: Names) -> Description:
    parts = [(kind_of(item), *describe(item, names)) for item in event.events]
    words = f" {glyphs.DOT} ".join(f"{kind} {summary}" for kind, _, summary, _ in parts)
    level: Level = parts[0][3] if parts else "idle"
    return event.subject or event.command, words or "nothing to do", level


def whole_entry(entry: Entry, names: Names) -> dict[str, object]:
    """An entry with its event decoded and its nodes named."""
    event = read_event(entry.payload)
    return {
        "index": entry.index,
        "session": {
            "term": entry.session.term,
            "master": names.name(entry.session.master),
            "incarnation": entry.session.incarnation,
        },
        "writer": {
            "node": names.name(entry.id.origin),
            "id": entry.id.origin,
            "incarnation": entry.id.incarnation,
            "sequence": entry.id.sequence,
        },
        "written_at": entry.written_at,
        "resubmitted": entry.resubmitted,
        "event": event if event is not None else f"{len(entry.payload)} bytes, unknown here",
    }
