"""What simulated nodes and faults see of the simulation around them."""

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from node.core.replica.effects import Send, Write
from node.core.replica.timing import Limits, Timing
from node.model.ids import NodeId
from node.model.session import Entry, EventId, Session
from tests.simulation.checker import Checker


class Counts:
    """What happened so far."""

    def __init__(self) -> None:
        self.messages = 0
        self.published = 0
        self.rewinds = 0
        self.resubmissions = 0
        self.snapshots_installed = 0
        self.history_dropped = 0


class Surroundings(Protocol):
    """A simulated node's world: time, chance, network, disk, checker."""

    random: Random
    time: float
    faulty: bool
    ids: list[NodeId]
    timing: Timing
    limits: Limits
    snapshot_every: int
    clock_rates: list[float]
    clock_offsets: list[float]
    checker: Checker
    counts: Counts

    def later(self, seconds: float, call: Callable[[Any], None], argument: Any) -> None:
        """Have something happen later."""
        ...

    def send(self, place: int, effect: Send) -> None:
        """Send a message."""
        ...

    def write(self, place: int, effect: Write) -> None:
        """Write to disk."""
        ...

    def acknowledged(self, ids: tuple[EventId, ...], entries: tuple[Entry, ...]) -> None:
        """Events of a node were seen committed by it."""
        ...

    def committed(self, session: Session) -> None:
        """An entry of that session was committed somewhere."""
        ...

    def became_master(self, place: int) -> None:
        """A node masters now."""
        ...

    def is_current(self, place: int, life: int) -> bool:
        """Whether that life of a node still runs."""
        ...


class Breakable(Protocol):
    """What faults do to the simulation; nodes are named by their places."""

    random: Random
    time: float
    faulty: bool
    fault_seconds: float
    ids: list[NodeId]
    groups: list[int]
    cut: set[tuple[int, int]]
    disk_slow_until: list[float]
    powerless: set[int]
    lost: set[int]
    crash_after_acknowledgement: bool
    crash_after_election: bool

    def later(self, seconds: float, call: Callable[[Any], None], argument: Any) -> None:
        """Have something happen later."""
        ...

    def masters(self) -> list[int]:
        """Nodes that master."""
        ...

    def running(self) -> list[int]:
        """Nodes that run."""
        ...

    def is_all_in_sync(self) -> bool:
        """Whether one master has every node in sync."""
        ...

    def boot(self, place: int) -> None:
        """Start a node."""
        ...

    def crash(self, place: int, *, power: bool) -> None:
        """End a node."""
        ...

    def replace_disk(self, place: int) -> None:
        """End a node, and start it as a newcomer."""
        ...

    def link_down(self, place: int, other: int) -> None:
        """End the link between two nodes."""
        ...

    def freeze(self, place: int, seconds: float) -> None:
        """Stop a process for a while."""
        ...

    def sleep(self, place: int, seconds: float) -> None:
        """Stop a machine for a while, its clock with it."""
        ...

    def step_down(self, place: int) -> None:
        """Have a master hand over."""
        ...

    def heal(self) -> None:
        """End all faults."""
        ...
