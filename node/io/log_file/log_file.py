"""The open log: one writer thread that commits batches in groups.

log/incarnation             8 bytes and a checksum, raised at every start before anything else
log/segment-<first>.log     records; the first of each says what older ones said
log/snapshot-<index>-<digest>.msgpack
log/damaged/, log/archive/  set aside, never read again
"""

import collections
import contextlib
import errno
import os
import queue
import shutil
import threading
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
from node.io.durability import TEMPORARY_SUFFIX, SyncFailedError, replace_file, sync_file
from node.io.log_file.parts import first_records, parts_of
from node.io.log_file.record import frame
from node.io.log_file.recovery import RecoveredLog, encode_record, recover_segments
from node.io.log_file.snapshots import SnapshotFile, find_snapshots, write_snapshot
from node.io.log_file.start import raise_incarnation, remove, set_aside, start_over
from node.model.errors import ConflictError, InternalError, RefusedError

SEGMENT_BYTES_MAX = 16 * 1024 * 1024
SEGMENT_ENTRIES_MAX = 10_000
"""Small entries fill a segment by their number: a start reads whole segments, and what lies before
the tail that is kept should not be among them."""
TAIL_ENTRIES = 10_000
"""Entries kept before the snapshot, so that a laggard needs no snapshot."""
TAIL_BYTES_MAX = 24 * 1024 * 1024
"""Bytes of segments that only such entries keep; with more, the oldest go. A log then holds these,
what came since the last snapshot but one (a router takes one at 16 MiB), and the snapshots."""
QUEUE_BATCHES_MAX = 16_384
"""Batches that wait for the disk; beyond them the caller must stop taking in work."""
RETRY_SECONDS = 1.0
"""How often a full disk is tried again."""
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
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
    end_index: int
    bytes: int
    first_index: int = 0
    """From where on its entries are counted: of the one found at the start, those since then."""


class LogFile:
    """Written by its own thread; `submit` and `status` may be called from the loop's."""

    def __init__(
        self, directory: Path, recovered: RecoveredLog, snapshots: list[SnapshotFile], damage: str
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
        self._queue: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._is_torn = False
        self._trouble = ""
        self._refused = ""
        self._disk_full = False
        self._on_synced: Callable[[Synced], None] = lambda _: None
        self._on_failed: Callable[[BaseException], None] = lambda _: None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._adopt(recovered)

    # -- from the loop ---------------------------------------------------------------------------

    def start(
        self,
        on_synced: Callable[[Synced], None],
        on_failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Start the writer.

        Args:
            on_synced: called in its thread, in the order of tokens.
            on_failed: called in its thread, at most once, when nothing will be acknowledged any
                more: a sync failed, or a mistake of ours ended the writer.
        """
        self._on_synced = on_synced
        self._on_failed = on_failed or self._on_failed
        self._thread.start()

    def submit(self, token: int, records: tuple[DurableRecord, ...], *, full_sync: bool) -> bool:
        """Queue a batch; False when the queue is full and nothing was taken."""
        if self._queue.qsize() >= QUEUE_BATCHES_MAX:
            return False
        self._queue.put(_Batch(token, records, full_sync))
        return True

    def status(self) -> LogStatus:
        """Figures; cheap."""
        segments = [*self._closed_segments, *([self._segment] if self._segment else [])]
        return LogStatus(
            bytes_on_disk=sum(file.bytes for file in (*segments, *self._snapshots)),
            waiting=self._queue.qsize(),
            disk_full=self._disk_full,
            trouble=self._trouble or self._refused,
        )

    def close(self, deadline_seconds: float = 3.0) -> None:
        """Write what waits, if the disk lets it within the deadline, and end the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(deadline_seconds)
            if self._thread.is_alive():
                self._trouble = "closed with batches unwritten"
        if self._descriptor >= 0 and not self._thread.is_alive():
            os.close(self._descriptor)
            self._descriptor = -1

    # -- in the writer's thread ------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._write_until_closed()
        except BaseException as error:  # noqa: BLE001 - the owner must hear of anything
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        words = error.strerror if isinstance(error, OSError) else ""
        what = "sync failed" if isinstance(error, SyncFailedError) else "the log writer ended"
        self._trouble = f"{what}: {words or error or type(error).__name__}; nothing is acknowledged"
        self._disk_full = isinstance(error, OSError) and error.errno in FULL_DISK
        try:
            self._on_failed(error)
        except BaseException as unheard:  # noqa: BLE001 - the owner may be gone
            self._trouble += f" (told to nobody: {unheard})"

    def _write_until_closed(self) -> None:
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
        """Write batches and report them; False when the log is closed with the disk in trouble."""
        waiting = collections.deque(
            part for batch in batches for record in batch.records for part in parts_of(record)
        )
        while waiting:
            try:
                self._store(waiting[0])
            except SyncFailedError:
                raise
            except OSError as error:
                self._trouble = f"{error.strerror or error} ({self._directory})"
                self._disk_full = error.errno in FULL_DISK
                if self._stop.wait(RETRY_SECONDS):
                    return False
            else:
                waiting.popleft()
        self._flush(full=any(batch.full_sync for batch in batches))
        self._trouble, self._disk_full = "", False
        self._on_synced(Synced(batches[-1].token))
        return True

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
        entries = self._folded.next_index - segment.first_index
        if segment.bytes >= SEGMENT_BYTES_MAX or entries >= SEGMENT_ENTRIES_MAX:
            self._roll(log_reset=False)
            segment = self._open_segment()
        self._write(segment, payload)

    def _write(self, segment: _Segment, payload: bytes) -> None:
        content = frame(self._counter, payload)
        if self._is_torn:
            os.ftruncate(self._descriptor, segment.bytes)
        self._is_torn = True
        view = memoryview(content)
        while view:
            view = view[os.write(self._descriptor, view) :]
        self._is_torn = False
        segment.bytes += len(content)
        self._counter += 1

    def _flush(self, *, full: bool) -> None:
        if self._descriptor < 0:
            return
        try:
            sync_file(self._descriptor, full=full)
            is_gone = os.fstat(self._descriptor).st_nlink == 0
        except OSError as error:
            # What the kernel still holds after a failed sync is unknown: a second sync may lie.
            raise SyncFailedError(error.errno, error.strerror, str(self._directory)) from error
        if is_gone:
            # What is written to it goes with this process.
            words = "its file was deleted while it was in use"
            raise SyncFailedError(errno.ENOENT, words, str(self._directory))

    def _open_segment(self) -> _Segment:
        if self._segment is None:
            self._roll(log_reset=False)
        if self._segment is None:
            raise InternalError.because("log_segment", "no segment could be opened")
        return self._segment

    def _roll(self, *, log_reset: bool) -> None:
        """Start a new segment whose header carries everything that still holds."""
        if self._is_torn and self._segment is not None:
            os.ftruncate(self._descriptor, self._segment.bytes)
            self._is_torn = False
        self._flush(full=False)  # a later segment on disk says that this one is whole
        content, counter = first_records(self._folded, self._counter, log_reset=log_reset)
        path = self._directory / f"segment-{self._counter:016d}.log"
        replace_file(path, content)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        if self._segment is not None:
            self._closed_segments.append(self._segment)
        self._counter = counter
        self._descriptor = descriptor
        index = self._folded.next_index
        self._segment = _Segment(path, index, len(content), index)

    def _store_snapshot(self, image: SnapshotImage, *, log_reset: bool) -> None:
        """Keep a snapshot; one that replaces the log counts from the header on that names it."""
        self._flush(full=False)  # the entries that lead to it come first
        index = image.position.index
        try:
            file = write_snapshot(self._directory, image)
        except RefusedError as error:
            if log_reset:
                raise
            self._refused = error.failure.message  # the entries are kept instead
            return
        self._refused = ""
        older = self._snapshots
        if log_reset:
            self._folded.note(SnapshotKept(image, log_reset=True))
            self._roll(log_reset=True)
            self._snapshots = [file]
        else:
            same_history = [kept for kept in older if kept.index < index]
            self._snapshots = [*same_history, file][-SNAPSHOTS_KEPT:]
        for old in older:
            if old.path not in [kept.path for kept in self._snapshots]:
                remove(old.path)
        self._drop_segments(self._snapshots[0].index, everything=log_reset)

    def _drop_segments(self, snapshot_index: int, *, everything: bool) -> None:
        """Drop the oldest segments that a snapshot stands for, but for a tail."""
        spare = [file for file in self._closed_segments if file.end_index <= snapshot_index]
        spare_bytes = sum(file.bytes for file in spare)
        for file in self._closed_segments.copy() if everything else spare:
            is_tail = file.end_index >= snapshot_index - TAIL_ENTRIES
            if is_tail and spare_bytes <= TAIL_BYTES_MAX and not everything:
                return
            spare_bytes -= file.bytes
            self._closed_segments.remove(file)
            remove(file.path)

    def _archive(self, record: ClusterJoined) -> None:
        """Begin an empty log, and put the whole log of the cluster that is left behind aside."""
        name = f"{self._counter:016d}-{(self._folded.cluster or 'none')[:8]}"
        self._folded.note(record)
        self._roll(log_reset=True)
        left = [segment.path for segment in self._closed_segments]
        left += [file.path for file in self._snapshots]
        self._closed_segments, self._snapshots = [], []
        if not left:
            return
        with contextlib.suppress(OSError):  # what stays in its place doesn't count any more
            set_aside(left, self._directory / "archive" / name)
            archives = sorted((self._directory / "archive").iterdir())
            for old in archives[:-ARCHIVES_MAX]:
                shutil.rmtree(old, ignore_errors=True)

    def _adopt(self, recovered: RecoveredLog) -> None:
        """Go on at the end of the last segment that was found."""
        for path in recovered.segments:
            size = path.stat().st_size
            end_index = recovered.ends.get(path, 0)
            self._closed_segments.append(_Segment(path, end_index, size))
        if not self._closed_segments:
            return
        last = self._closed_segments.pop()
        self._descriptor = os.open(last.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        if recovered.tail_bytes < last.bytes:
            os.ftruncate(self._descriptor, recovered.tail_bytes)
            sync_file(self._descriptor, full=False)
        last.bytes, last.first_index = recovered.tail_bytes, last.end_index
        self._segment = last


def open_log(directory: Path) -> tuple[LogFile, Recovered]:
    """Raise the incarnation, read what is there, and make ready to write.

    Raises:
        ConflictError: the disk can't be written, or the log is of a newer exoctl.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        incarnation = raise_incarnation(directory)
        return _open(directory, incarnation)
    except OSError as error:
        raise ConflictError.because(
            "log_unwritable",
            f"the log in {directory} can't be used: {error.strerror or error}",
            "free some space or mend the rights, then start again",
        ) from error


def _open(directory: Path, incarnation: int) -> tuple[LogFile, Recovered]:
    for leftover in directory.glob(f"*{TEMPORARY_SUFFIX}"):
        remove(leftover)
    recovered = recover_segments(directory)
    if "of a newer exoctl" in recovered.damage:
        raise ConflictError.because(
            "log_newer", f"{directory}: {recovered.damage}", "start with the newer exoctl"
        )
    folded = recovered.folded
    found = find_snapshots(directory, folded, is_damaged=bool(recovered.damage))
    damage = recovered.damage or (found.trouble if found.image is None else "")
    if folded.base_index > 0 and not found.is_fitting:
        damage = damage or f"entries begin at {folded.base_index} with no snapshot before them"
    if damage:
        recovered = start_over(directory, incarnation, recovered, found)
    for path in found.foreign if not damage else ():
        remove(path)
    if found.unreadable and not damage:
        set_aside(found.unreadable, directory / "damaged" / f"{incarnation:08d}")
    folded = recovered.folded
    entries = tuple(folded.entries)
    log = LogFile(directory, recovered, found.kept, damage)
    return log, Recovered(
        incarnation=incarnation,
        cluster=folded.cluster,
        session=folded.session,
        term_highest=folded.term_highest,
        snapshot=found.image,
        entries=entries,
        orphans=tuple(folded.orphans.values()),
    )
