"""What one replica holds for good: log, known events, orphans, snapshot, session; and how far it is
committed and on disk.

Every change leaves a durable record; what the records of one step say goes to disk as one write.
Messages that promise something wait here until the writes before them are synced.
"""

from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from node.core.replica.durable import (
    Appended,
    ClusterJoined,
    DurableRecord,
    Orphaned,
    OrphansSettled,
    Recovered,
    SessionKept,
    SnapshotImage,
    SnapshotKept,
    Truncated,
)
from node.core.replica.effects import (
    Deliver,
    Effect,
    HistoryDropped,
    Rewound,
    SnapshotInstalled,
    Write,
)
from node.core.replica.known import KnownEvents
from node.core.replica.log import Log
from node.core.replica.messages import DirectMessage
from node.core.replica.timing import Limits
from node.model.ids import ClusterId, NodeId
from node.model.session import NO_POSITION, NO_SESSION, Entry, EventId, Position, Session


class _PendingWrite:
    __slots__ = ("last_index", "token")

    def __init__(self, token: int, last_index: int) -> None:
        self.token = token
        self.last_index = last_index


class HeldMessage(msgspec.Struct, frozen=True):
    """A message that leaves once the write `token` is on disk."""

    token: int
    peer: NodeId
    message: DirectMessage


TERM_MAX = 1 << 53
"""Terms beyond are no honest peer's; taking one over would leave no later one to take."""


def is_control(event_id: EventId) -> bool:
    """Whether the log wrote the entry itself; such entries are never offered again."""
    return event_id.sequence < 0


class Ledger:
    """The durable side of a replica. Effects go to the step's list, records to its write."""

    def __init__(self, recovered: Recovered, limits: Limits, effects: list[Effect]) -> None:
        self._limits = limits
        self._effects = effects
        self.is_state: Callable[[bytes], bool] = lambda _: True
        """Whether the state in a peer's snapshot can be read here; one that can't is not taken."""
        self.cluster = recovered.cluster
        self.session = recovered.session
        self.term_highest = max(recovered.term_highest, recovered.session.term)
        self.snapshot = recovered.snapshot
        self.orphans: dict[EventId, Entry] = {entry.id: entry for entry in recovered.orphans}
        is_torn = not _fits_snapshot(recovered)
        self.log = _recovered_log(recovered, () if is_torn else recovered.entries)
        self._covered_index = self.log.last_index
        """Orphans known to a snapshot up to here are held on to until the tail lies beyond it."""
        self.commit_index = self.snapshot.position.index if self.snapshot else -1
        self.synced_index = self.log.last_index
        self.known = KnownEvents(self.snapshot.known if self.snapshot else ())
        for entry in self.log.slice(self.commit_index + 1, self.log.last_index + 1):
            self._know(entry)
        self._records: list[DurableRecord] = []
        self._appending: list[Entry] = []
        self._token = 0
        self._token_synced = 0
        self._writes: deque[_PendingWrite] = deque()
        self._holding: list[tuple[NodeId, DirectMessage]] = []
        self._held: deque[HeldMessage] = deque()
        if is_torn and self.snapshot is not None:
            self._orphan(recovered.entries)
            self._record(SnapshotKept(self.snapshot, log_reset=True))

    # -- the log ---------------------------------------------------------------------------

    @property
    def snapshot_index(self) -> int:
        """The index up to which a snapshot stands for the entries; -1 without one."""
        return self.snapshot.position.index if self.snapshot else -1

    def append(self, entry: Entry) -> None:
        """Put an entry at the end of the log."""
        self.log.append(entry)
        self._appending.append(entry)
        self._know(entry)

    def truncate(self, index: int) -> None:
        """Withdraw entries from `index` on; first they are kept as orphans."""
        assert index > self.snapshot_index, (index, self.snapshot_index)
        removed = self.log.truncate(index)
        for entry in removed:
            self.known.discard(entry.id)
        self._orphan(removed)
        self._record(Truncated(index))
        self._unsync(index)
        if index <= self.commit_index:
            self.commit_index = index - 1
            self._effects.append(Rewound(index))

    def commit_to(self, index: int) -> None:
        """Entries up to `index` are committed."""
        assert index <= self.log.last_index, (index, self.log.last_index)
        if index <= self.commit_index:
            return
        entries = self.log.slice(self.commit_index + 1, index + 1)
        self.commit_index = index
        if self.orphans:
            self.settle(tuple(entry.id for entry in entries if entry.id in self.orphans))
        self._effects.append(Deliver(entries))

    def orphans_waiting(self) -> Iterator[Entry]:
        """Orphans that are not in the log, oldest first."""
        return (entry for entry in self.orphans.values() if entry.id not in self.known)

    def settle(self, ids: tuple[EventId, ...]) -> None:
        """These orphans need not be offered again."""
        for event_id in ids:
            self.orphans.pop(event_id, None)
        if ids:
            self._record(OrphansSettled(ids))

    def keep_session(self, session: Session) -> None:
        """Be in this session from now on."""
        self.session = session
        self.term_highest = max(self.term_highest, session.term)
        self._record(SessionKept(session, self.term_highest))

    def hear_term(self, term: int) -> None:
        """A term was heard of; kept with the next session."""
        if term < TERM_MAX:
            self.term_highest = max(self.term_highest, term)

    # -- snapshots -------------------------------------------------------------------------

    def compact(self, position: Position, state: bytes) -> None:
        """Let a snapshot stand for entries up to `position`, keeping a tail of them."""
        index = position.index
        if not self.snapshot_index < index <= self.commit_index:
            return
        if self.log.session_at(index) != position.session:
            return
        known = KnownEvents(self.known.writers())
        for entry in self.log.slice(index + 1, self.log.last_index + 1):
            known.discard(entry.id)
        self.snapshot = SnapshotImage(
            cluster=self.cluster, position=position, state=state, known=known.writers()
        )
        self._record(SnapshotKept(self.snapshot, log_reset=False))
        limits = self._limits
        tail_first = self.log.tail_first(index, limits.tail_entries, limits.tail_bytes)
        self.log.drop_before(tail_first)
        if self.orphans and tail_first > self._covered_index:
            self.settle(tuple(event_id for event_id in self.orphans if event_id in self.known))

    def install(self, image: SnapshotImage) -> None:
        """Take a peer's snapshot in place of the whole log.

        All entries become orphans, also those that the snapshot stands for: should this node come
        to follow a log without them, it may be the only one that still has them. They are let go
        when as many entries lie behind the snapshot as are kept of any log.
        """
        known = KnownEvents(image.known)
        removed = self.log.replace(image.position)
        held = [*(entry.id for entry in removed), *self.orphans]
        dropped = self.known.missing(known, held)
        if dropped:
            self._effects.append(HistoryDropped(dropped))
        self._orphan(removed)
        self._covered_index = image.position.index
        self.snapshot = image
        self.known = known
        self.commit_index = image.position.index
        self._record(SnapshotKept(image, log_reset=True))
        self._unsync(image.position.index + 1)
        self.synced_index = image.position.index
        self._effects.append(SnapshotInstalled(image))

    def begin_cluster(self, cluster: ClusterId) -> None:
        """Archive everything and begin an empty log of another cluster."""
        self.cluster = cluster
        self.session = NO_SESSION
        self.term_highest = 0
        self.snapshot = None
        self.orphans = {}
        self.known = KnownEvents()
        self.log.replace(NO_POSITION)
        self.commit_index = -1
        self.synced_index = -1
        self._unsync(0)
        self._holding.clear()
        self._held.clear()
        self._record(ClusterJoined(cluster))

    # -- the disk --------------------------------------------------------------------------

    def hold(self, peer: NodeId, message: DirectMessage) -> None:
        """Send the message once everything recorded so far is on disk."""
        self._holding.append((peer, message))

    def take_write(self) -> Write | None:
        """The write of this step, if anything changed."""
        self._flush_appending()
        write = None
        if self._records:
            self._token += 1
            write = Write(tuple(self._records), self._token)
            self._records.clear()
            self._writes.append(_PendingWrite(self._token, self.log.last_index))
        for peer, message in self._holding:
            self._held.append(HeldMessage(self._token, peer, message))
        self._holding.clear()
        while len(self._held) > self._limits.held_messages:
            self._held.popleft()
        return write

    def take_ready(self) -> list[HeldMessage]:
        """Messages that wait for no write any more."""
        ready: list[HeldMessage] = []
        while self._held and self._held[0].token <= self._token_synced:
            ready.append(self._held.popleft())
        return ready

    def synced(self, token: int) -> None:
        """The write with this token, and all before it, are on disk."""
        self._token_synced = max(self._token_synced, token)
        while self._writes and self._writes[0].token <= token:
            self.synced_index = max(self.synced_index, self._writes.popleft().last_index)

    # -- within ----------------------------------------------------------------------------

    def _know(self, entry: Entry) -> None:
        if not is_control(entry.id):
            self.known.add(entry.id)

    def _orphan(self, entries: tuple[Entry, ...]) -> None:
        orphans = [
            entry for entry in entries if not is_control(entry.id) and entry.id not in self.orphans
        ]
        room = max(self._limits.orphans - len(self.orphans), 0)
        if len(orphans) > room:
            self._effects.append(HistoryDropped(len(orphans) - room))
            del orphans[room:]
        if orphans:
            self.orphans.update((entry.id, entry) for entry in orphans)
            self._record(Orphaned(tuple(orphans)))

    def _unsync(self, index: int) -> None:
        """Entries from `index` on are no longer those that pending writes contain."""
        self.synced_index = min(self.synced_index, index - 1)
        for write in self._writes:
            write.last_index = min(write.last_index, index - 1)

    def _record(self, record: DurableRecord) -> None:
        self._flush_appending()
        self._records.append(record)

    def _flush_appending(self) -> None:
        if self._appending:
            self._records.append(Appended(tuple(self._appending)))
            self._appending.clear()


def _fits_snapshot(recovered: Recovered) -> bool:
    """Whether the entries lead to the snapshot or on from it.

    They don't where the process ended between taking a peer's snapshot and resetting the log.
    """
    snapshot, entries = recovered.snapshot, recovered.entries
    if snapshot is None or not entries:
        return True
    place = snapshot.position.index - entries[0].index
    if place == -1:
        return True
    return 0 <= place < len(entries) and entries[place].session == snapshot.position.session


def _recovered_log(recovered: Recovered, entries: tuple[Entry, ...]) -> Log:
    snapshot = recovered.snapshot
    if entries and entries[0].index == 0:
        return Log(NO_POSITION, entries)
    if snapshot is not None and (not entries or entries[0].index > snapshot.position.index):
        return Log(snapshot.position, entries)
    if not entries:
        return Log()
    # The session before a kept tail is not on disk, so the first entry serves as what precedes it.
    return Log(Position(entries[0].session, entries[0].index), entries[1:])
