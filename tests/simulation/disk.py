"""A disk that takes its time, syncs in batches, and loses or tears what was not synced."""

from random import Random

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
from node.core.replica.effects import Write
from node.model.ids import ClusterId
from node.model.session import NO_SESSION, Entry, EventId, Session


class SimulatedDisk:
    """Holds what is synced; writes on their way wait in order, and a crash drops or tears them."""

    def __init__(self, tail_entries: int) -> None:
        self.incarnation = 0
        self._tail_entries = tail_entries
        self._waiting: list[Write] = []
        self._syncing: list[Write] = []
        self._reset(ClusterId(""))

    def _reset(self, cluster: ClusterId) -> None:
        self._cluster = cluster
        self._session: Session = NO_SESSION
        self._term_highest = 0
        self._snapshot: SnapshotImage | None = None
        self._first = 0
        self._entries: list[Entry] = []
        self._orphans: dict[EventId, Entry] = {}

    def boot(self) -> Recovered:
        """What a starting process finds; its incarnation is raised and synced first."""
        self._waiting.clear()
        self._syncing.clear()
        self.incarnation += 1
        return Recovered(
            incarnation=self.incarnation,
            cluster=self._cluster,
            session=self._session,
            term_highest=self._term_highest,
            snapshot=self._snapshot,
            entries=tuple(self._entries),
            orphans=tuple(self._orphans.values()),
        )

    def write(self, write: Write) -> bool:
        """Queue a write; True where the disk was idle, so that a sync begins now."""
        self._waiting.append(write)
        return self.begin()

    def begin(self) -> bool:
        """Begin to sync everything that waits, as one batch."""
        if self._syncing or not self._waiting:
            return False
        self._syncing, self._waiting = self._waiting, self._syncing
        return True

    def finish(self) -> int:
        """The batch is on disk; returns its last token."""
        for write in self._syncing:
            for record in write.records:
                self._keep(record)
        token = self._syncing[-1].token
        self._syncing.clear()
        return token

    def tear(self, random: Random) -> None:
        """A crash: some first part of what was on its way may have reached the disk."""
        records = [record for write in self._syncing for record in write.records]
        for record in records[: random.randrange(len(records) + 1)]:
            if isinstance(record, Appended) and random.random() < 0.5:
                self._keep(Appended(record.entries[: random.randrange(len(record.entries) + 1)]))
                return
            if isinstance(record, SnapshotKept) and record.log_reset and random.random() < 0.5:
                # The snapshot's file is there, and the log is not reset yet: it counts only where
                # it is of the history that the entries tell.
                position = record.image.position
                if any(
                    (entry.session, entry.index) == (position.session, position.index)
                    for entry in self._entries
                ):
                    self._snapshot = record.image
                return
            self._keep(record)

    def wipe(self) -> None:
        """The disk is replaced; a lost incarnation goes on above those that were."""
        self._reset(ClusterId(""))

    def _keep(self, record: DurableRecord) -> None:
        match record:
            case Appended(entries):
                if entries:
                    assert entries[0].index == self._first + len(self._entries), "log has a hole"
                self._entries.extend(entries)
            case Truncated(index):
                del self._entries[index - self._first :]
            case SessionKept(session, term_highest):
                self._session, self._term_highest = session, term_highest
            case Orphaned(entries):
                self._orphans.update((entry.id, entry) for entry in entries)
            case OrphansSettled(ids):
                for event_id in ids:
                    self._orphans.pop(event_id, None)
            case SnapshotKept():
                self._keep_snapshot(record)
            case ClusterJoined(cluster):
                self._reset(cluster)

    def _keep_snapshot(self, record: SnapshotKept) -> None:
        self._snapshot = record.image
        following = record.image.position.index + 1
        if record.log_reset:
            self._entries.clear()
            self._first = following
        else:
            drop = max(following - self._tail_entries - self._first, 0)
            del self._entries[:drop]
            self._first += drop
