"""Fold the segments of a log directory back into what a replica needs at start."""

import contextlib
from pathlib import Path

import msgspec

from node.core.replica.durable import (
    Appended,
    ClusterJoined,
    DurableRecord,
    Orphaned,
    OrphansSettled,
    SessionKept,
    SnapshotKept,
    Truncated,
)
from node.io.log_file.record import Damage, Framed, TornTail, read_records
from node.model.ids import ClusterId
from node.model.session import NO_POSITION, NO_SESSION, Entry, EventId, Position, Session

FORMAT_VERSION = 1
SEGMENT_PATTERN = "segment-*.log"


class SegmentHeader(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """First record of a segment: everything that older segments said and still holds."""

    version: int = FORMAT_VERSION
    cluster: ClusterId
    session: Session
    term_highest: int
    base_index: int
    """Index of the first entry this segment may hold."""
    log_reset: bool
    """Entries of older segments don't count."""
    orphans: tuple[Entry, ...]
    origin: Position | None = None
    """The snapshot that a peer's log was begun with; none in headers of an older exoctl."""


StoredRecord = (
    SegmentHeader | Appended | Truncated | SessionKept | Orphaned | OrphansSettled | ClusterJoined
)

decode_record = msgspec.msgpack.Decoder(StoredRecord).decode
encode_record = msgspec.msgpack.Encoder().encode


class Folded:
    """The running result of the fold, shared by recovery and by the open log."""

    def __init__(self) -> None:
        self.cluster = ClusterId("")
        self.session: Session = NO_SESSION
        self.term_highest = 0
        self.orphans: dict[EventId, Entry] = {}
        self.entries: list[Entry] = []
        self.base_index = 0
        self.next_index = 0
        self.origin: Position | None = NO_POSITION

    def header(self, *, log_reset: bool) -> SegmentHeader:
        """The header of a segment that starts now."""
        return SegmentHeader(
            cluster=self.cluster,
            session=self.session,
            term_highest=self.term_highest,
            base_index=self.next_index,
            log_reset=log_reset,
            orphans=tuple(self.orphans.values()),
            origin=self.origin,
        )

    def reset_to(self, index: int, origin: Position | None) -> None:
        """Nothing before `index` is in the log any more; `origin` stands for what was."""
        self.entries = []
        self.base_index = self.next_index = index
        self.origin = origin

    def fits(self, position: Position) -> bool:
        """Whether a snapshot of that place is one of this very history."""
        place = position.index - self.base_index
        if place == -1:
            return self.origin is None or position == self.origin
        if not 0 <= place < len(self.entries):
            return False
        return self.entries[place].session == position.session

    def note(self, record: StoredRecord | DurableRecord) -> str:
        """Take in one record but for its entries; returns why it can't follow, or nothing."""
        match record:
            case SegmentHeader():
                return self._note_header(record)
            case Appended(entries=entries):
                if entries and entries[0].index != self.next_index:
                    return f"index {entries[0].index} where {self.next_index} must follow"
                self.next_index += len(entries)
            case Truncated(index=index):
                self.next_index = min(self.next_index, index)
                del self.entries[max(0, index - self.base_index) :]
            case SnapshotKept(image=image, log_reset=True):
                self.reset_to(image.position.index + 1, image.position)
            case ClusterJoined(cluster=cluster):
                self.cluster = cluster
                self.session, self.term_highest = NO_SESSION, 0
                self.orphans = {}
                self.reset_to(0, NO_POSITION)
            case SnapshotKept():
                pass
            case SessionKept() | Orphaned() | OrphansSettled():
                self._note_beside_entries(record)
        return ""

    def _note_beside_entries(self, record: SessionKept | Orphaned | OrphansSettled) -> None:
        match record:
            case SessionKept():
                self.session, self.term_highest = record.session, record.term_highest
            case Orphaned(entries=entries):
                self.orphans.update((entry.id, entry) for entry in entries)
            case OrphansSettled(ids=ids):
                for settled in ids:
                    self.orphans.pop(settled, None)

    def _note_header(self, header: SegmentHeader) -> str:
        if not header.log_reset:
            if self.cluster not in ("", header.cluster):
                return f"a segment of cluster {header.cluster[:8]} in a log of {self.cluster[:8]}"
            if self.entries and header.base_index != self.next_index:
                return f"a segment from {header.base_index} where {self.next_index} must follow"
        self.cluster = header.cluster
        self.session, self.term_highest = header.session, header.term_highest
        self.orphans = {entry.id: entry for entry in header.orphans}
        if header.log_reset or not self.entries:
            self.reset_to(header.base_index, header.origin)
        return ""


class RecoveredLog(msgspec.Struct, kw_only=True):
    """What the directory holds, and what had to be mended."""

    folded: Folded
    segments: list[Path]
    counter_next: int
    ends: dict[Path, int] = {}
    """The index after the last entry of each segment that counts."""
    tail_bytes: int
    """Bytes of the last segment that count; what lies behind was torn."""
    damage: str = ""


def recover_segments(directory: Path) -> RecoveredLog:
    """Read every segment, oldest first; stops for good at the first damage.

    Damage is told, never hidden: the caller sets the damaged files aside. What lies before the last
    header that resets the log is left over from a crash, and doesn't count.
    """
    folded = Folded()
    every = sorted(directory.glob(SEGMENT_PATTERN))
    paths = every[_last_reset(every) :]
    counter: int | None = None
    ends: dict[Path, int] = {}
    tail = 0
    for position, path in enumerate(paths):
        content = path.read_bytes()
        fault = ""
        for record in read_records(content, counter):
            if isinstance(record, Framed):
                counter = record.counter + 1
                fault = _fold_record(folded, record.payload)
                if fault:
                    break
            elif isinstance(record, TornTail) and position == len(paths) - 1:
                tail = record.offset
            elif isinstance(record, TornTail):
                fault = f"cut off at byte {record.offset} though a later segment exists"
            elif isinstance(record, Damage):
                fault = f"byte {record.offset}: {record.reason}"
            else:
                tail = record.offset
        if not fault and tail == 0 and position == len(paths) - 1:
            fault = "no whole record in it, and a segment is put in place with its first ones"
        if fault:
            return RecoveredLog(
                folded=folded,
                segments=every,
                counter_next=counter or 0,
                tail_bytes=0,
                damage=f"{path.name}: {fault}",
            )
        ends[path] = folded.next_index
    return RecoveredLog(
        folded=folded, segments=every, counter_next=counter or 0, ends=ends, tail_bytes=tail
    )


def _last_reset(paths: list[Path]) -> int:
    for place in reversed(range(len(paths))):
        first = next(read_records(paths[place].read_bytes()), None)
        if isinstance(first, Framed):
            with contextlib.suppress(msgspec.MsgspecError):
                header = decode_record(first.payload)
                if isinstance(header, SegmentHeader) and header.log_reset:
                    return place
    return 0


def _fold_record(folded: Folded, payload: bytes) -> str:
    try:
        record = decode_record(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"a record that is none: {error}"
    if isinstance(record, SegmentHeader) and record.version > FORMAT_VERSION:
        return f"format {record.version} of a newer exoctl; this one knows {FORMAT_VERSION}"
    fault = folded.note(record)
    if not fault and isinstance(record, Appended):
        folded.entries.extend(record.entries)
    return fault
