"""The latest register of every node and kind; never logged."""

from collections.abc import Mapping

from node.model.ids import NodeId
from node.model.register import Register, RegisterValue
from node.services.feed import Feed

NODES_MAX = 1_000
"""Nodes whose registers are kept: more can't be members."""


def kind_of(value: RegisterValue) -> str:
    """The kind under which a value is kept: its class name."""
    return type(value).__name__


class RegisterStore:
    """Own registers are versioned here; those of others are taken when they are newer."""

    def __init__(self, node: NodeId, incarnation: int, feed: Feed) -> None:
        self._node = node
        self._incarnation = incarnation
        self._feed = feed
        self._sequence = 0
        self._registers: dict[tuple[NodeId, str], Register] = {}

    @property
    def registers(self) -> Mapping[tuple[NodeId, str], Register]:
        """All of them; a live view, not to be kept over a wait."""
        return self._registers

    def set_own(self, value: RegisterValue) -> Register | None:
        """Set a register of this node; None where nothing changed."""
        key = (self._node, kind_of(value))
        before = self._registers.get(key)
        if before is not None and before.value == value:
            return None
        self._sequence += 1
        register = Register(
            node=self._node, incarnation=self._incarnation, sequence=self._sequence, value=value
        )
        self._registers[key] = register
        self._feed.publish(register)
        return register

    def take(self, sender: NodeId, register: Register) -> bool:
        """Take a register from its own node; False where it is old or not the sender's own."""
        if register.node != sender or sender == self._node:
            return False
        key = (sender, kind_of(register.value))
        before = self._registers.get(key)
        version = (register.incarnation, register.sequence)
        if before is not None and version <= (before.incarnation, before.sequence):
            return False
        if before is None and len({node for node, _ in self._registers}) >= NODES_MAX:
            return False
        self._registers[key] = register
        self._feed.publish(register)
        return True

    def own(self) -> tuple[Register, ...]:
        """This node's registers, for a peer that has just come up."""
        return tuple(r for (node, _), r in self._registers.items() if node == self._node)

    def forget(self, node: NodeId) -> None:
        """A lost or removed node's registers go; this node always knows its own."""
        if node == self._node:
            return
        for key in [key for key in self._registers if key[0] == node]:
            del self._registers[key]
