"""Typed reading of registers."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from node.model.ids import NodeId, RunnerId
from node.model.register import Register, RegisterValue, RunnerFigures, RunnerProgress

Registers = Mapping[tuple[NodeId, str], Register]
_Value = TypeVar("_Value", bound=RegisterValue)


def figures(registers: Registers, node: NodeId, kind: type[_Value]) -> _Value | None:
    """A node's latest value of one kind; None where it has not been heard."""
    register = registers.get((node, kind.__name__))
    if register is None or not isinstance(register.value, kind):
        return None
    return register.value


def each(registers: Registers, kind: type[_Value]) -> Iterator[tuple[NodeId, _Value]]:
    """Every node's value of one kind."""
    for (node, name), register in registers.items():
        if name == kind.__name__ and isinstance(register.value, kind):
            yield node, register.value


def runner_progress(registers: Registers) -> dict[RunnerId, RunnerProgress]:
    """How every runner of the cluster gets on."""
    return {
        progress.runner: progress
        for _, value in each(registers, RunnerFigures)
        for progress in value.runners
    }
