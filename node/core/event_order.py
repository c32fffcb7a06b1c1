"""A writer's outbox and a subscriber's cursor: one object for the life of the process.

Nothing is made anew when the session changes. An event is acknowledged when it is seen committed in
the node's own log, never before.
"""

import msgspec

from node.core.replica.durable import KnownWriter
from node.core.replica.messages import PAYLOAD_BYTES_MAX, Proposal
from node.core.replica.timing import Timing
from node.model.errors import UsageError
from node.model.ids import NodeId
from node.model.session import Entry, EventId

OUTBOX_MAX = 4096
"""Unacknowledged events of one node; further ones are not taken until some are acknowledged."""
RESEND_MAX = 512
"""Events offered again at once, oldest first."""


class Released(msgspec.Struct, frozen=True):
    """Entries that follow what was released before, and which of this node's events they settle."""

    entries: tuple[Entry, ...]
    acknowledged: tuple[EventId, ...]


class Duplicate(msgspec.Struct, frozen=True):
    """All of it was released before."""


class Gap(msgspec.Struct, frozen=True):
    """Entries first..last are missing before these; nothing is released."""

    first: int
    last: int


class Published(msgspec.Struct, frozen=True):
    """The event is in the outbox; hand the proposal to the replica."""

    proposal: Proposal


class OutboxFull(msgspec.Struct, frozen=True):
    """The event was not taken: `count` are unacknowledged. Try again when some are settled."""

    count: int


class EventOrder:
    """Gives each event of this node its EventId, offers it until committed, and releases the
    cluster's entries in order.
    """

    def __init__(self, node: NodeId, incarnation: int, timing: Timing, index: int = -1) -> None:
        """`index`: the last index already folded into the state, by a recovered snapshot."""
        self._node = node
        self._incarnation = incarnation
        self._timing = timing
        self._outbox: dict[int, tuple[Proposal, float]] = {}
        self._floor = 1
        self._written = 0
        self._index = index
        self._wait_seconds = timing.resubmit_seconds
        self._due = float("inf")
        self._resends = 0

    @property
    def index(self) -> int:
        """The last index released."""
        return self._index

    @property
    def written(self) -> int:
        """Events published in this life."""
        return self._written

    @property
    def unacknowledged(self) -> int:
        """Events in the outbox."""
        return len(self._outbox)

    @property
    def resends(self) -> int:
        """How often the outbox was offered again since the last acknowledgement."""
        return self._resends

    def oldest_seconds(self, now: float) -> float:
        """Age of the oldest unacknowledged event; 0 where there is none."""
        for _, published_at in self._outbox.values():
            return now - published_at
        return 0.0

    def publish(self, now: float, payload: bytes, written_at: float) -> Published | OutboxFull:
        """Record an event, then offer it. `written_at` is wall clock, for people.

        Raises:
            UsageError: the payload is larger than `PAYLOAD_BYTES_MAX`.
        """
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise UsageError.because(
                "event_too_large",
                f"an event of {len(payload)} bytes; {PAYLOAD_BYTES_MAX} are allowed",
            )
        if len(self._outbox) >= OUTBOX_MAX:
            return OutboxFull(len(self._outbox))
        self._written += 1
        if not self._outbox:
            self._floor = self._written
            self._rearm(now)
        event_id = EventId(self._node, self._incarnation, self._written)
        proposal = Proposal(event_id, payload, self._floor, written_at=written_at)
        self._outbox[self._written] = (proposal, now)
        return Published(proposal)

    def replace(self, event_id: EventId, payload: bytes) -> bool:
        """Offer other bytes under the id of an unacknowledged event; False where it is settled.

        For an event that must not be ordered any more: whichever of the two is first in the log
        stays, and the writer's order keeps without a hole.
        """
        held = self._outbox.get(event_id.sequence)
        if held is None or held[0].id != event_id:
            return False
        self._outbox[event_id.sequence] = (
            msgspec.structs.replace(held[0], payload=payload),
            held[1],
        )
        return True

    def abandon(self) -> None:
        """Forget every unacknowledged event: the log is that of another cluster from now on."""
        self._outbox.clear()
        self._floor = self._written + 1
        self._index = -1

    def tick(self, now: float) -> tuple[Proposal, ...]:
        """Events to offer again, in order, if that is due."""
        if now < self._due or not self._outbox:
            return ()
        self._resends += 1
        self._wait_seconds = min(self._wait_seconds * 2, self._timing.resubmit_seconds_max)
        self._due = now + self._wait_seconds
        return self._resend()

    def session_began(self, now: float) -> tuple[Proposal, ...]:
        """Events to offer to the new master at once, in order."""
        self._rearm(now)
        return self._resend()

    def receive(self, now: float, entries: tuple[Entry, ...]) -> Released | Duplicate | Gap:
        """Take committed entries, contiguous among themselves."""
        if not entries or entries[-1].index <= self._index:
            return Duplicate()
        first = entries[0].index
        if first > self._index + 1:
            return Gap(self._index + 1, first - 1)
        fresh = entries[self._index + 1 - first :]
        self._index = fresh[-1].index
        return Released(fresh, self._settle(now, [entry.id for entry in fresh]))

    def rewind(self, index: int) -> None:
        """Entries from `index` on were withdrawn; what replaces them is released again."""
        self._index = min(self._index, index - 1)

    def install(
        self, now: float, index: int, known: tuple[KnownWriter, ...]
    ) -> tuple[EventId, ...]:
        """A snapshot stands for the entries up to `index`; returns own events it settles."""
        self._index = index
        own = (self._node, self._incarnation)
        settled = [
            proposal.id
            for writer in known
            if (writer.origin, writer.incarnation) == own
            for interval in writer.intervals
            for proposal, _ in self._outbox.values()
            if interval.first <= proposal.id.sequence <= interval.last
        ]
        return self._settle(now, settled)

    def _settle(self, now: float, ids: list[EventId]) -> tuple[EventId, ...]:
        settled = tuple(
            event_id
            for event_id in ids
            if event_id.origin == self._node
            and event_id.incarnation == self._incarnation
            and self._outbox.pop(event_id.sequence, None) is not None
        )
        if settled:
            self._floor = next(iter(self._outbox), self._written + 1)
            self._rearm(now)
        return settled

    def _rearm(self, now: float) -> None:
        self._resends = 0
        self._wait_seconds = self._timing.resubmit_seconds
        self._due = now + self._wait_seconds

    def _resend(self) -> tuple[Proposal, ...]:
        resent: list[Proposal] = []
        for proposal, _ in self._outbox.values():
            if len(resent) == RESEND_MAX:
                break
            resent.append(msgspec.structs.replace(proposal, floor=self._floor))
        return tuple(resent)
