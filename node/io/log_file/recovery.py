"""Fold the segments of a log directory back into what a replica needs at start."""

from pathlib import Path

import msgspec

from node.core.replica.durable import (
    Appended,
    ClusterJoined,
    DurableRecord,
    Orphaned,
    OrphansSettled,
    SessionKept,
    SnapshotImage,
    SnapshotKept,
    Truncated,
)
from node.io.log_file.record import Damage, Framed, TornTail, read_records
from node.model.ids import ClusterId
from node.model.session import NO_SESSION, Entry, EventId, Session

FORMAT_VERSION = 1
SEGMENT_PATTERN = "segment-*.log"
SNAPSHOT_PATTERN = "snapshot-*.msgpack"


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

    def header(self, *, log_reset: bool) -> SegmentHeader:
        """The header of a segment that starts now."""
        return SegmentHeader(
            cluster=self.cluster,
            session=self.session,
            term_highest=self.term_highest,
            base_index=self.next_index,
            log_reset=log_reset,
            orphans=tuple(self.orphans.values()),
        )

    def reset_to(self, index: int) -> None:
        """Nothing before `index` is in the log any more."""
        self.entries = []
        self.base_index = self.next_index = index

    def note(self, record: StoredRecord | DurableRecord) -> str:
        """Take in one record but for its entries; returns why it can't follow, or nothing."""
        match record:
            case SegmentHeader():
                self._note_header(record)
            case Appended(entries=entries):
                if entries and entries[0].index != self.next_index:
                    return f"index {entries[0].index} where {self.next_index} must follow"
                self.next_index += len(entries)
            case Truncated(index=index):
                self.next_index = min(self.next_index, index)
                del self.entries[max(0, index - self.base_index) :]
            case SnapshotKept(image=image, log_reset=True):
                self.reset_to(image.position.index + 1)
            case ClusterJoined(cluster=cluster):
                self.cluster = cluster
                self.orphans = {}
                self.reset_to(0)
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

    def _note_header(self, header: SegmentHeader) -> None:
        self.cluster = header.cluster
        self.session, self.term_highest = header.session, header.term_highest
        self.orphans = {entry.id: entry for entry in header.orphans}
        if header.log_reset or not self.entries:
            self.reset_to(header.base_index)


class RecoveredLog(msgspec.Struct, kw_only=True):
    """What the directory holds, and what had to be mended."""

    folded: Folded
    segments: list[Path]
    counter_next: int
    tail_bytes: int
    """Bytes of the last segment that count; what lies behind was torn."""
    damage: str = ""


def recover_segments(directory: Path) -> RecoveredLog:
    """Read every segment, oldest first; stops for good at the first damage.

    Damage is told, never hidden: the caller sets the damaged files aside.
    """
    folded = Folded()
    paths = sorted(directory.glob(SEGMENT_PATTERN))
    counter: int | None = None
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
        if fault:
            return RecoveredLog(
                folded=folded,
                segments=paths[: position + 1],
                counter_next=counter or 0,
                tail_bytes=0,
                damage=f"{path.name}: {fault}",
            )
    return RecoveredLog(folded=folded, segments=paths, counter_next=counter or 0, tail_bytes=tail)


def _fold_record(folded: Folded, payload: bytes) -> str:
    try:
        record = decode_record(payload)
    except msgspec.MsgspecError as error:
        return f"a record that is none: {error}"
    if isinstance(record, SegmentHeader) and record.version > FORMAT_VERSION:
        return f"format {record.version} of a newer exoctl; this one knows {FORMAT_VERSION}"
    fault = folded.note(record)
    if not fault and isinstance(record, Appended):
        folded.entries.extend(record.entries)
    return fault


def read_snapshot(directory: Path, cluster: ClusterId) -> tuple[SnapshotImage | None, str]:
    """The newest valid snapshot of the cluster, and what was wrong with newer ones."""
    trouble = ""
    for path in sorted(directory.glob(SNAPSHOT_PATTERN), reverse=True):
        ending: object = None
        for record in read_records(path.read_bytes()):
            if not isinstance(record, Framed):
                ending = record
                break
            try:
                image = msgspec.msgpack.decode(record.payload, type=SnapshotImage)
            except msgspec.MsgspecError as error:
                trouble = f"{path.name}: {error}"
                break
            if image.cluster == cluster:
                return image, trouble
            trouble = f"{path.name}: of another cluster"
            break
        if ending is not None:
            trouble = f"{path.name}: damaged"
    return None, trouble
