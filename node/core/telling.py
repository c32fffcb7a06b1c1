"""What a master does by itself, in words for its log."""

from node.core.naming import name_of, with_names
from node.model.event import (
    Event,
    InstanceRemoved,
    InstanceReplaced,
    InstanceStopping,
    InstanceStranded,
    RunnerRestartRequested,
)
from node.model.state import State


def in_words(state: State, event: Event) -> str:
    """What the event means for which instance, and why."""
    match event:
        case InstanceStopping():
            return f"{event.instance} is stopped: a node of it is of the cluster no more"
        case InstanceRemoved():
            return f"{event.instance} is gone: {event.reason or 'all its runners are over'}"
        case RunnerRestartRequested():
            return f"{event.instance} starts again: {with_names(state, event.reason)}"
        case InstanceReplaced():
            nodes = ", ".join(name_of(state, node) for node in event.by.nodes)
            where = f"as {event.by.instance} on {nodes}"
            return f"{event.instance} is placed anew {where}: {with_names(state, event.reason)}"
        case InstanceStranded():
            why = with_names(state, event.failure.message)
            remedy = f"; {event.failure.remedy}" if event.failure.remedy else ""
            return f"{event.instance} has lost a node and is not placed anew: {why}{remedy}"
        case _:
            return type(event).__name__
