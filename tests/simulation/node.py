"""One simulated node: the shell of a replica and an event order, without anything real."""

import math
from collections.abc import Collection
from random import Random

import msgspec

from node.core.event_order import OUTBOX_MAX, EventOrder, Published, Released
from node.core.replica.durable import KnownWriter, Recovered, SnapshotImage
from node.core.replica.effects import (
    BecameMaster,
    Deliver,
    Effect,
    HistoryDropped,
    LostMastership,
    Revalidate,
    Rewound,
    Send,
    SessionBegan,
    SnapshotInstalled,
    SnapshotNeeded,
    TipAppended,
    Write,
)
from node.core.replica.ledger import Ledger
from node.core.replica.messages import Role
from node.core.replica.replica import Replica
from node.model.ids import NodeId
from node.model.session import Entry, Position
from tests.simulation.checker import ViolationError, fold
from tests.simulation.world import Surroundings

# pyright: reportPrivateUsage=false

SLEEP_NOTICED_SECONDS = 3.0
"""A shorter sleep is not told: the shell can't tell it from a wall clock that was set."""
BOUNDS_EVERY_TICKS = 20


class SimulatedNode:
    """A running process; a crash throws it away, a start makes another on the same disk."""

    def __init__(self, simulation: Surroundings, place: int, recovered: Recovered) -> None:
        self.simulation = simulation
        self.place = place
        self.id = simulation.ids[place]
        self.life = recovered.incarnation
        self.frozen_until = -math.inf
        self.muted = False
        """Its power failed: what it had handed to its network card is lost too."""
        self.closed: dict[int, int] = {}
        """Lives of other nodes, by place, whose link has ended: what still comes is dropped."""
        self.clock_rate = simulation.clock_rates[place]
        self.clock_offset = simulation.clock_offsets[place]
        self._random: Random = simulation.random
        now = self.now()
        self.replica = Replica(self.id, recovered, simulation.timing, now, limits=simulation.limits)
        image = recovered.snapshot
        index = image.position.index if image else -1
        self.order = EventOrder(self.id, recovered.incarnation, simulation.timing, index)
        self.state = _state_of(image)
        self.tip: int | None = None
        self._tip_index = -1
        self._ticks = 0
        self.snapshot_due = index + simulation.snapshot_every
        log = ledger_of(self.replica).log
        simulation.checker.booted(
            self.id, log.slice(log.first_index, log.last_index + 1), log.before
        )

    def now(self) -> float:
        """This node's own clock."""
        return self.simulation.time * self.clock_rate + self.clock_offset

    def stop_clock(self) -> None:
        """Its machine falls asleep."""
        self.clock_offset = self.now()
        self.clock_rate = 0.0

    def wake(self, slept_seconds: float) -> None:
        """Its machine wakes: the clock goes on from where it stood."""
        now = self.clock_offset
        self.clock_rate = self.simulation.clock_rates[self.place]
        self.clock_offset = now - self.simulation.time * self.clock_rate
        if slept_seconds > SLEEP_NOTICED_SECONDS:
            self.perform(self.replica.woke(now, slept_seconds))

    # -- what happens to it ------------------------------------------------------------------

    def publish(self) -> None:
        """Write an event."""
        now = self.now()
        published = self.order.publish(now, self._random.randbytes(8), 0.0)
        if isinstance(published, Published):
            self.perform(self.replica.propose(now, (published.proposal,)))

    def tick(self) -> None:
        """Let time pass."""
        now = self.now()
        effects = self.replica.tick(now)
        if effects:
            self.perform(effects)
        again = self.order.tick(now)
        if again:
            self.perform(self.replica.propose(now, again))
        self._ticks += 1
        if self._ticks % BOUNDS_EVERY_TICKS == 0:
            self.check_bounds()

    # -- what it does ------------------------------------------------------------------------

    def perform(self, effects: tuple[Effect, ...]) -> None:
        """Carry effects out in order; those that a call on the way returns come after them."""
        queue = list(effects)
        for effect in queue:
            if type(effect) is Send:
                self.simulation.send(self.place, effect)
            elif type(effect) is Write:
                self.simulation.write(self.place, effect)
            elif type(effect) is Deliver:
                self._deliver(effect.entries)
            else:
                queue.extend(self._perform_seldom(effect))

    def _perform_seldom(self, effect: Effect) -> tuple[Effect, ...]:
        now = self.now()
        match effect:
            case SessionBegan():
                return self.replica.propose(now, self.order.session_began(now))
            case TipAppended(entries):
                self._fold_tip(entries)
            case BecameMaster(_, tip):
                self.tip, self._tip_index = self.state, self.order.index
                self._fold_tip(tip)
                self.simulation.became_master(self.place)
            case LostMastership():
                self.tip = None
            case Rewound(index):
                self._rewind(index)
            case SnapshotInstalled(image):
                self._install(image)
            case SnapshotNeeded():
                return self.take_snapshot()
            case Revalidate():
                return self._revalidate(now, effect)
            case HistoryDropped(count):
                self.simulation.counts.history_dropped += count
            case _:
                raise AssertionError(effect)
        return ()

    def _deliver(self, entries: tuple[Entry, ...]) -> None:
        outcome = self.order.receive(self.now(), entries)
        if not isinstance(outcome, Released) or len(outcome.entries) != len(entries):
            raise ViolationError(f"I3: {self.id} at {self.order.index} is given {entries[0].index}")
        state = self.state
        for entry in entries:
            state = fold(state, entry)
        self.state = state
        self.simulation.committed(entries[-1].session)
        if outcome.acknowledged:
            self.simulation.acknowledged(outcome.acknowledged, entries)
        if self.order.index >= self.snapshot_due:
            self.simulation.later(0.0, self._take_due_snapshot, None)

    def _take_due_snapshot(self, _: None) -> None:
        if self.simulation.is_current(self.place, self.life):
            self.perform(self.take_snapshot())

    def take_snapshot(self) -> tuple[Effect, ...]:
        """Snapshot the state as applied."""
        index = self.order.index
        self.snapshot_due = index + self.simulation.snapshot_every
        entries = self.replica.entries(index, index + 1)
        if not entries:
            return ()
        position = Position(entries[0].session, index)
        return self.replica.compact(self.now(), position, msgspec.msgpack.encode(self.state))

    def _fold_tip(self, entries: tuple[Entry, ...]) -> None:
        if self.tip is None:
            raise ViolationError(f"{self.id} hears of a tip without mastering")
        for entry in entries:
            if entry.index != self._tip_index + 1:
                raise ViolationError(f"{self.id}: tip goes from {self._tip_index} to {entry.index}")
            self.tip, self._tip_index = fold(self.tip, entry), entry.index

    def _rewind(self, index: int) -> None:
        self.simulation.counts.rewinds += 1
        self.order.rewind(index)
        image = self.replica.snapshot
        self.state = _state_of(image)
        first = image.position.index + 1 if image else 0
        entries = self.replica.entries(first, index)
        if len(entries) != index - first:
            raise ViolationError(f"I3: {self.id} can't rebuild {first}..{index}")
        for entry in entries:
            self.state = fold(self.state, entry)

    def _install(self, image: SnapshotImage) -> None:
        self.simulation.counts.snapshots_installed += 1
        self.state = _state_of(image)
        index = image.position.index
        settled = self.order.install(self.now(), index, image.known)
        self.snapshot_due = index + self.simulation.snapshot_every
        if settled:
            self.simulation.acknowledged(settled, ())

    def _revalidate(self, now: float, effect: Revalidate) -> tuple[Effect, ...]:
        chance = self._random.random()
        event_id = effect.proposal.id
        self.simulation.counts.resubmissions += 1
        if chance < 0.05 and self.simulation.faulty:
            return ()
        if chance < 0.2:
            return self.replica.reject_resubmission(now, event_id, b"rejected")
        return self.replica.accept_resubmission(now, event_id)

    # -- its bounds --------------------------------------------------------------------------

    def check_bounds(self) -> None:
        """I11."""
        limits = self.simulation.limits
        held, revalidations = sizes_of(self.replica)
        sizes = {
            "outbox": (self.order.unacknowledged, OUTBOX_MAX),
            "orphans": (len(ledger_of(self.replica).orphans), limits.orphans),
            "reordered": (
                self.replica.figures.held,
                limits.held_per_writer * len(self.simulation.ids),
            ),
            "held messages": (held, limits.held_messages),
            "revalidations": (revalidations, limits.revalidations),
        }
        for name, (size, size_max) in sizes.items():
            if size > size_max:
                raise ViolationError(f"I11: {self.id} has {size} {name}, {size_max} are allowed")

    def is_mastering(self) -> bool:
        """Whether it masters now."""
        return self.replica.role == Role.MASTERING


def _state_of(image: SnapshotImage | None) -> int:
    return msgspec.msgpack.decode(image.state, type=int) if image else 0


def ledger_of(replica: Replica) -> Ledger:
    """A replica's inside."""
    return replica._ledger


def sizes_of(replica: Replica) -> tuple[int, int]:
    """Messages that wait for the disk, and questions that wait for an answer."""
    reign = replica._roles.reign
    return len(replica._ledger._held), 0 if reign is None else len(reign._revalidating)


def held_of(replica: Replica, writers: Collection[NodeId]) -> int:
    """Proposals of these writers that wait at this master for an earlier one."""
    reign = replica._roles.reign
    if reign is None:
        return 0
    waiting = reign._reorder._writers
    return sum(len(waiting[writer].held) for writer in writers if writer in waiting)


def known_of(replica: Replica) -> tuple[KnownWriter, ...]:
    """Which events are in a replica's log, as it believes."""
    return ledger_of(replica).known.writers()


def node_ids(count: int) -> list[NodeId]:
    """Names of simulated nodes."""
    return [NodeId(f"n{place}") for place in range(count)]
