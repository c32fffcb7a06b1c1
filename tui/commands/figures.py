"""What the state and the registers say together of a node or an instance."""

from typing import TypeVar

from node.core.instance_status import InstanceStatus, status
from node.handle import NodeHandle
from node.model.ids import NodeId
from node.model.instance import Instance, RunnerPhase, Shard
from node.model.machine import NodeRecord
from node.model.register import RegisterValue, RunnerFigures, RunnerProgress
from node.model.state import State
from tui.commands.naming import node_name

Figures = TypeVar("Figures", bound=RegisterValue)


def figures(handle: NodeHandle, node: NodeId, kind: type[Figures]) -> Figures | None:
    """A node's latest register of a kind; None where it has sent none or is lost."""
    register = handle.registers.get((node, kind.__name__))
    return register.value if register and isinstance(register.value, kind) else None


def node_word(record: NodeRecord) -> str:
    """`ok`, `cordoned`, `stopped` or `lost`."""
    if record.stopped:
        return "stopped"
    if record.lost:
        return "lost"
    return "cordoned" if record.cordoned else "ok"


def shard_phase(state: State, instance: Instance, shard: Shard) -> RunnerPhase:
    """Where the shard's runner is in its current attempt."""
    runner = state.runners.get(shard.runner)
    if runner is None or runner.attempt < state.attempts.get(instance.instance, 1):
        return RunnerPhase.STARTING
    return runner.phase


def condition(handle: NodeHandle, instance: Instance) -> InstanceStatus:
    """Where the instance is, as everywhere in exoctl."""
    return status(handle.state, instance.instance, handle.registers)


def shard_progress(handle: NodeHandle, shard: Shard) -> RunnerProgress | None:
    """The latest progress of the shard's runner."""
    reported = figures(handle, shard.node, RunnerFigures)
    runners = reported.runners if reported else ()
    return next((item for item in runners if item.runner == shard.runner), None)


def placement_text(state: State, instance: Instance) -> str:
    """Who holds which layers, in rank order: `studio-a 0-14, studio-b 15-29`."""
    return ", ".join(
        f"{node_name(state, shard.node)} {layers_text(shard.first_layer, shard.end_layer)}"
        for shard in instance.shards
    )


def layers_text(first_layer: int, end_layer: int) -> str:
    """The layers of a half-open range as people count them: first and last."""
    if end_layer <= first_layer:
        return "none"
    last = end_layer - 1
    return str(first_layer) if first_layer == last else f"{first_layer}-{last}"
