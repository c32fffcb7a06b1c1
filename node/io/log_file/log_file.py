"""The open log: one writer thread that commits batches in groups.

log/incarnation             8 bytes and a checksum, raised at every start before anything else
log/segment-<first>.log     records; the first of each says what older ones said
log/snapshot-<index>.msgpack
log/damaged/, log/archive/  set aside, never read again
"""

import collections
import contextlib
import os
import queue
import shutil
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from node.core.replica.durable import (
    Appended,
    ClusterJoined,
    DurableRecord,
    Recovered,
    SnapshotImage,
    SnapshotKept,
)
from node.io.durability import replace_file, sync_directory, sync_file
from node.io.log_file.record import frame
from node.io.log_file.recovery import (
    SEGMENT_PATTERN,
    SNAPSHOT_PATTERN,
    Folded,
    RecoveredLog,
    encode_record,
    read_snapshot,
    recover_segments,
)
from node.model.errors import ConflictError, InternalError

SEGMENT_BYTES_MAX = 16 * 1024 * 1024
TAIL_ENTRIES = 10_000
"""Entries kept before the snapshot, so that a laggard needs no snapshot."""
QUEUE_BATCHES_MAX = 16_384
"""Batches that wait for the disk; beyond them the caller must stop taking in work."""
RETRY_SECONDS = 1.0
"""How often a full disk is tried again."""
ARCHIVES_MAX = 3
SNAPSHOTS_KEPT = 2


class Synced(msgspec.Struct, frozen=True):
    """The batches up to this token are on disk."""

    token: int


class LogStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How the disk is doing, for the registers and the screen."""

    bytes_on_disk: int
    waiting: int
    disk_full: bool
    trouble: str = ""
    """What the last failed write said, empty while all is well."""


class _Batch(msgspec.Struct, frozen=True):
    token: int
    records: tuple[DurableRecord, ...]
    full_sync: bool


class _Segment(msgspec.Struct):
    path: Path
    first_index: int
    end_index: int
    bytes: int


class LogFile:
    """Written by its own thread; `submit` and `status` may be called from the loop's."""

    def __init__(
        self, directory: Path, recovered: RecoveredLog, snapshots: list[int], damage: str
    ) -> None:
        self.damage = damage
        """What was found broken at start, in words; empty when nothing was."""
        self._directory = directory
        self._folded = recovered.folded
        self._folded.entries = []  # the replica has them; this thread only counts
        self._counter = recovered.counter_next
        self._snapshots = snapshots
        self._closed_segments: list[_Segment] = []
        self._segment: _Segment | None = None
        self._descriptor = -1
        self._queue: queue.Queue[_Batch | None] = queue.Queue(QUEUE_BATCHES_MAX)
        self._trouble = ""
        self._disk_full = False
        self._on_synced: Callable[[Synced], None] = lambda _: None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._adopt(recovered)

    # -- from the loop ---------------------------------------------------------------------------

    def start(self, on_synced: Callable[[Synced], None]) -> None:
        """Start the writer; `on_synced` is called in its thread, in the order of tokens."""
        self._on_synced = on_synced
        self._thread.start()

    def submit(self, token: int, records: tuple[DurableRecord, ...], *, full_sync: bool) -> bool:
        """Queue a batch; False when the queue is full and nothing was taken."""
        try:
            self._queue.put_nowait(_Batch(token, records, full_sync))
        except queue.Full:
            return False
        return True

    def status(self) -> LogStatus:
        """Figures; cheap."""
        segments = [*self._closed_segments, *([self._segment] if self._segment else [])]
        return LogStatus(
            bytes_on_disk=sum(segment.bytes for segment in segments),
            waiting=self._queue.qsize(),
            disk_full=self._disk_full,
            trouble=self._trouble,
        )

    def close(self, deadline_seconds: float = 3.0) -> None:
        """Write what waits, if the disk lets it within the deadline, and end the thread."""
        self._stop.set()
        if self._thread.is_alive():
            try:
                self._queue.put(None, timeout=deadline_seconds)
            except queue.Full:
                self._trouble = "closed with batches unwritten"
            self._thread.join(deadline_seconds)
        if self._descriptor >= 0 and not self._thread.is_alive():
            os.close(self._descriptor)
            self._descriptor = -1

    # -- in the writer's thread ------------------------------------------------------------------

    def _run(self) -> None:
        ending = False
        while not ending:
            batches = [self._queue.get()]
            while True:
                try:
                    batches.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            ending = batches[-1] is None
            work = [batch for batch in batches if batch is not None]
            if work and not self._commit(work):
                return

    def _commit(self, batches: list[_Batch]) -> bool:
        """Write batches and report them; False when it is no use to go on."""
        waiting = collections.deque(record for batch in batches for record in batch.records)
        while waiting:
            try:
                self._store(waiting[0])
            except OSError as error:
                self._trouble = f"{error.strerror or error} ({self._directory})"
                self._disk_full = True
                self._cut_torn_record()
                if self._stop.wait(RETRY_SECONDS):
                    return False
            else:
                waiting.popleft()
        try:
            self._flush(full=any(batch.full_sync for batch in batches))
        except OSError as error:
            # What the kernel still holds after a failed sync is unknown: a second sync may lie.
            self._trouble = f"sync failed: {error.strerror or error}; nothing is acknowledged"
            self._disk_full = True
            return False
        self._trouble, self._disk_full = "", False
        self._on_synced(Synced(batches[-1].token))
        return True

    def _cut_torn_record(self) -> None:
        if self._segment is not None and self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._segment.bytes)

    def _store(self, record: DurableRecord) -> None:
        match record:
            case SnapshotKept(image=image, log_reset=log_reset):
                self._store_snapshot(image, log_reset=log_reset)
            case ClusterJoined():
                self._archive(record)
            case _:
                self._append(encode_record(record))
                fault = self._folded.note(record)
                if fault:
                    raise InternalError.because("log_order", f"log file: {fault}")
                if isinstance(record, Appended) and record.entries:
                    segment = self._open_segment()
                    segment.end_index = max(segment.end_index, record.entries[-1].index + 1)

    def _append(self, payload: bytes) -> None:
        segment = self._open_segment()
        if segment.bytes >= SEGMENT_BYTES_MAX:
            self._roll(log_reset=False)
            segment = self._open_segment()
        self._write(segment, payload)

    def _write(self, segment: _Segment, payload: bytes) -> None:
        content = frame(self._counter, payload)
        view = memoryview(content)
        while view:
            view = view[os.write(self._descriptor, view) :]
        segment.bytes += len(content)
        self._counter += 1

    def _flush(self, *, full: bool) -> None:
        if self._descriptor >= 0:
            sync_file(self._descriptor, full=full)

    def _open_segment(self) -> _Segment:
        if self._segment is None:
            self._roll(log_reset=False)
        if self._segment is None:
            raise InternalError.because("log_segment", "no segment could be opened")
        return self._segment

    def _roll(self, *, log_reset: bool) -> None:
        """Start a new segment whose header carries everything that still holds."""
        header = self._folded.header(log_reset=log_reset)
        content = frame(self._counter, encode_record(header))
        path = self._directory / f"segment-{self._counter:016d}.log"
        replace_file(path, content)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        if self._descriptor >= 0:
            sync_file(self._descriptor, full=False)
            os.close(self._descriptor)
        if self._segment is not None:
            self._closed_segments.append(self._segment)
        self._counter += 1
        self._descriptor = descriptor
        self._segment = _Segment(path, header.base_index, header.base_index, len(content))

    def _store_snapshot(self, image: SnapshotImage, *, log_reset: bool) -> None:
        index = image.position.index
        path = self._directory / f"snapshot-{max(index, 0):016d}.msgpack"
        replace_file(path, frame(0, msgspec.msgpack.encode(image)))
        if index not in self._snapshots:
            self._snapshots = sorted([*self._snapshots, index])
        while len(self._snapshots) > SNAPSHOTS_KEPT:
            oldest = self._snapshots.pop(0)
            (self._directory / f"snapshot-{max(oldest, 0):016d}.msgpack").unlink(missing_ok=True)
        if log_reset:
            self._folded.reset_to(index + 1)
            self._roll(log_reset=True)
            self._drop_segments(index + 1, everything=True)
        else:
            self._drop_segments(self._snapshots[0] - TAIL_ENTRIES, everything=False)

    def _drop_segments(self, keep_from: int, *, everything: bool) -> None:
        while self._closed_segments and (
            everything or self._closed_segments[0].end_index < keep_from
        ):
            self._closed_segments.pop(0).path.unlink(missing_ok=True)

    def _archive(self, record: ClusterJoined) -> None:
        """Put the whole log of the cluster that is left behind aside, and begin an empty one."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._segment = None
        self._closed_segments = []
        name = f"{self._counter:016d}-{(self._folded.cluster or 'none')[:8]}"
        set_aside(self._directory, self._directory / "archive" / name)
        archives = sorted((self._directory / "archive").iterdir())
        for old in archives[:-ARCHIVES_MAX]:
            shutil.rmtree(old, ignore_errors=True)
        self._snapshots = []
        self._folded.note(record)
        self._roll(log_reset=True)

    def _adopt(self, recovered: RecoveredLog) -> None:
        """Go on at the end of the last segment that was found."""
        for path in recovered.segments:
            size = path.stat().st_size
            self._closed_segments.append(_Segment(path, 0, recovered.folded.next_index, size))
        if not self._closed_segments:
            return
        last = self._closed_segments.pop()
        self._descriptor = os.open(last.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        if recovered.tail_bytes < last.bytes:
            os.ftruncate(self._descriptor, recovered.tail_bytes)
            sync_file(self._descriptor, full=False)
        last.bytes = recovered.tail_bytes
        self._segment = last


def set_aside(directory: Path, target: Path) -> None:
    """Move a log's segments and snapshots out of the way."""
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for pattern in (SEGMENT_PATTERN, SNAPSHOT_PATTERN):
        for path in directory.glob(pattern):
            path.replace(target / path.name)
    sync_directory(directory)


def open_log(directory: Path) -> tuple[LogFile, Recovered]:
    """Raise the incarnation, read what is there, and make ready to write.

    Raises:
        ConflictError: the disk can't be written, or the log is of a newer exoctl.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        incarnation = _raise_incarnation(directory)
        return _open(directory, incarnation)
    except OSError as error:
        raise ConflictError.because(
            "log_unwritable",
            f"the log in {directory} can't be used: {error.strerror or error}",
            "free some space or mend the rights, then start again",
        ) from error


def _open(directory: Path, incarnation: int) -> tuple[LogFile, Recovered]:
    recovered = recover_segments(directory)
    snapshot, trouble = read_snapshot(directory, recovered.folded.cluster)
    damage = recovered.damage or (trouble if snapshot is None else "")
    if "of a newer exoctl" in damage:
        raise ConflictError.because(
            "log_newer", f"{directory}: {damage}", "start with the newer exoctl"
        )
    folded = recovered.folded
    entries = tuple(folded.entries)
    hole = (
        entries
        and entries[0].index > 0
        and (snapshot is None or snapshot.position.index + 1 < entries[0].index)
    )
    if hole:
        damage = damage or f"entries begin at {entries[0].index} with no snapshot before them"
        entries = ()
    if damage:
        recovered = _start_over(directory, incarnation, folded, snapshot, entries)
    log = LogFile(
        directory,
        recovered,
        [snapshot.position.index] if snapshot else [],
        damage,
    )
    return log, Recovered(
        incarnation=incarnation,
        cluster=folded.cluster,
        session=folded.session,
        term_highest=folded.term_highest,
        snapshot=snapshot,
        entries=entries,
        orphans=tuple(folded.orphans.values()),
    )


def _start_over(
    directory: Path,
    incarnation: int,
    folded: Folded,
    snapshot: SnapshotImage | None,
    entries: tuple[object, ...],
) -> RecoveredLog:
    """Set a damaged log aside and write what could be read of it into a fresh one."""
    set_aside(directory, directory / "damaged" / f"{incarnation:08d}")
    fresh = Folded()
    fresh.cluster, fresh.session = folded.cluster, folded.session
    fresh.term_highest, fresh.orphans = folded.term_highest, folded.orphans
    kept = list(folded.entries) if entries else []
    first = kept[0].index if kept else (snapshot.position.index + 1 if snapshot else 0)
    fresh.reset_to(first)
    counter = 0
    content = b""
    for record in (fresh.header(log_reset=True), Appended(tuple(kept))):
        content += frame(counter, encode_record(record))
        counter += 1
    fresh.next_index = first + len(kept)
    if snapshot is not None:
        name = f"snapshot-{max(snapshot.position.index, 0):016d}.msgpack"
        replace_file(directory / name, frame(0, msgspec.msgpack.encode(snapshot)))
    path = directory / f"segment-{0:016d}.log"
    replace_file(path, content)
    return RecoveredLog(
        folded=fresh, segments=[path], counter_next=counter, tail_bytes=len(content)
    )


def _raise_incarnation(directory: Path) -> int:
    """Count this start, on disk, before anything else: sessions are unique by it."""
    path = directory / "incarnation"
    previous = 0
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""
    if len(content) == 12 and zlib.crc32(content[:8]) == int.from_bytes(content[8:], "big"):
        previous = int.from_bytes(content[:8], "big")
    elif content or any(directory.glob(SEGMENT_PATTERN)):
        # The counter is lost: go on far above anything that this log can have seen.
        folded = recover_segments(directory).folded
        previous = folded.session.incarnation + 1_000_000
    raised = (previous + 1).to_bytes(8, "big")
    replace_file(path, raised + zlib.crc32(raised).to_bytes(4, "big"))
    return previous + 1
