"""The master's hold-back per writer: events enter the log in the order their writer wrote them.

Each offer names its writer's floor, the lowest sequence still unacknowledged. An item waits until
every sequence from the floor to its own predecessor is in the log.
"""

from typing import Generic, TypeVar

import msgspec

from node.core.intervals import IntervalSet
from node.model.ids import NodeId
from node.model.session import EventId

T = TypeVar("T")


class Released(msgspec.Struct, Generic[T], frozen=True):
    """Items whose turn has come, in order; the caller appends them all."""

    items: tuple[T, ...]


class Duplicate(msgspec.Struct, frozen=True):
    """In the log already, or written by an earlier life of its writer."""


class Gap(msgspec.Struct, frozen=True):
    """Sequence `missing` has to come first."""

    missing: int


class _Writer(Generic[T]):
    __slots__ = ("floor", "held", "incarnation")

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.floor = 1
        self.held: dict[int, T] = {}


class ReorderBuffer(Generic[T]):
    """Emptied at each new session by being made anew with it; one writer's latest life is held."""

    def __init__(self, held_per_writer: int) -> None:
        """`held_per_writer`: items kept per writer; the latest are dropped, to come again."""
        self._held_max = held_per_writer
        self._writers: dict[NodeId, _Writer[T]] = {}

    @property
    def held(self) -> int:
        """How many items wait."""
        return sum(len(writer.held) for writer in self._writers.values())

    def offer(
        self, event_id: EventId, floor: int, item: T, present: IntervalSet
    ) -> Released[T] | Duplicate | Gap:
        """Take an item; `present` are the sequences of this life of its writer in the log."""
        sequence = event_id.sequence
        writer = self._writers.get(event_id.origin)
        if writer is None or writer.incarnation < event_id.incarnation:
            writer = self._writers[event_id.origin] = _Writer(event_id.incarnation)
        elif writer.incarnation > event_id.incarnation:
            return Duplicate()
        if floor > writer.floor:
            writer.floor = floor
            for settled in [held for held in writer.held if held < floor]:
                del writer.held[settled]
        if sequence in present or sequence < writer.floor:
            return Duplicate()
        missing = present.next_absent(writer.floor)
        writer.held[sequence] = item
        if sequence != missing and len(writer.held) > self._held_max:
            del writer.held[max(writer.held)]
        return self._release(writer, missing, present)

    def forget(self, event_id: EventId) -> None:
        """The item is in the log by another way: it waits no more."""
        writer = self._writers.get(event_id.origin)
        if writer is not None and writer.incarnation == event_id.incarnation:
            writer.held.pop(event_id.sequence, None)

    def _release(self, writer: _Writer[T], missing: int, present: IntervalSet) -> Released[T] | Gap:
        released: list[T] = []
        while missing in writer.held:
            released.append(writer.held.pop(missing))
            missing = present.next_absent(missing + 1)
        if not released:
            return Gap(missing)
        for passed in [held for held in writer.held if held < missing]:
            del writer.held[passed]
        return Released(tuple(released))
