"""What a replica keeps on disk: records to write, in order, and what is read back at start.

The log file writes the records of one batch in the order given and syncs once; only then is the
replica told (`Replica.synced`), and only then do messages leave that promise what was written.
"""

import msgspec

from node.model.ids import ClusterId, NodeId
from node.model.session import NO_SESSION, Entry, EventId, Position, Session


class Interval(msgspec.Struct, frozen=True, array_like=True):
    """Sequences first..last, both included."""

    first: int
    last: int


class KnownWriter(msgspec.Struct, frozen=True, array_like=True):
    """Which events of one life of one writer are in the log: what keeps any from entering twice."""

    origin: NodeId
    incarnation: int
    intervals: tuple[Interval, ...]


class SnapshotImage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything up to `position`, in place of its entries."""

    cluster: ClusterId
    position: Position
    state: bytes
    """msgpack of `model.state.State`; opaque to the replica."""
    known: tuple[KnownWriter, ...]


class Appended(msgspec.Struct, frozen=True, tag=True):
    """Entries at the end of the log, indices contiguous."""

    entries: tuple[Entry, ...]


class Truncated(msgspec.Struct, frozen=True, tag=True):
    """Entries from `index` on are withdrawn; those worth it were orphaned just before."""

    index: int


class SessionKept(msgspec.Struct, frozen=True, tag=True):
    """The session this replica is in, and the highest term it has heard of."""

    session: Session
    term_highest: int


class Orphaned(msgspec.Struct, frozen=True, tag=True):
    """Withdrawn entries that must be offered again until committed."""

    entries: tuple[Entry, ...]


class OrphansSettled(msgspec.Struct, frozen=True, tag=True):
    """Orphans that are committed or rejected."""

    ids: tuple[EventId, ...]


class SnapshotKept(msgspec.Struct, frozen=True, tag=True):
    """A snapshot stands for every entry up to its position.

    `log_reset`: it came from a peer and replaces the whole log; else it only lets the disk drop
    what lies well before it.
    """

    image: SnapshotImage
    log_reset: bool


class ClusterJoined(msgspec.Struct, frozen=True, tag=True):
    """The log belongs to another cluster from now on: the old one is archived, this is empty."""

    cluster: ClusterId


DurableRecord = (
    Appended | Truncated | SessionKept | Orphaned | OrphansSettled | SnapshotKept | ClusterJoined
)


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What was on disk at start; the incarnation is already raised by one and synced."""

    incarnation: int
    cluster: ClusterId = ClusterId("")
    """Empty on the very first start."""
    session: Session = NO_SESSION
    term_highest: int = 0
    snapshot: SnapshotImage | None = None
    entries: tuple[Entry, ...] = ()
    """All entries kept, contiguous; they may begin before the snapshot's position (a tail for
    laggards) but never after the index that follows it."""
    orphans: tuple[Entry, ...] = ()
