import contextlib
import errno
import os
import queue
import random
import shutil
from pathlib import Path

import msgspec
import pytest

from node.core.replica.durable import (
    Appended,
    ClusterJoined,
    Orphaned,
    OrphansSettled,
    SessionKept,
    SnapshotImage,
    SnapshotKept,
    Truncated,
)
from node.core.replica.timing import Limits
from node.io import clock
from node.io import log_file as log_package
from node.io.log_file import Synced, open_log
from node.io.log_file import log_file as module
from node.io.log_file import parts as parts_module
from node.io.log_file import record as record_module
from node.io.log_file.parts import first_records
from node.io.log_file.record import (
    PAYLOAD_BYTES_MAX,
    CleanEnd,
    Damage,
    Framed,
    TornTail,
    frame,
    read_records,
)
from node.io.log_file.recovery import recover_segments
from node.model.errors import ConflictError, RefusedError
from node.model.ids import ClusterId, NodeId
from node.model.session import NO_SESSION, Entry, EventId, Position, Session
from tests.fakes.log_files import CLUSTER, SESSION, OpenLog, entries, founded, image, reopen


def test_everything_written_is_read_back(tmp_path: Path) -> None:
    with OpenLog(tmp_path) as log:
        founded(log)
        log.write(Appended(entries(0, 5)))
        log.write(Orphaned(entries(3, 2)), Truncated(3), Appended(entries(3, 1)))
        log.write(OrphansSettled((EventId(NodeId("a"), 1, 4),)))
    _, recovered = reopen(tmp_path)
    assert recovered.cluster == CLUSTER
    assert recovered.session == SESSION
    assert recovered.term_highest == 3
    assert recovered.entries == entries(0, 4)
    assert [orphan.index for orphan in recovered.orphans] == [4]


def test_incarnation_rises_at_every_start(tmp_path: Path) -> None:
    first, second, third = (reopen(tmp_path)[1].incarnation for _ in range(3))
    assert first < second < third


def test_a_lost_incarnation_goes_on_above_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "wall", lambda: 0.0)
    late = Entry(SESSION, 0, EventId(NodeId("a"), 7_000_000, 1), b"")
    with OpenLog(tmp_path) as log:
        founded(log)
        log.write(Appended((late,)))
    (tmp_path / "incarnation").write_bytes(b"nonsense")
    assert reopen(tmp_path)[1].incarnation > 8_000_000


def test_a_deleted_log_directory_never_repeats_an_incarnation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_900_000_000.0]
    monkeypatch.setattr(clock, "wall", lambda: now[0])
    before = reopen(tmp_path / "log")[1].incarnation
    shutil.rmtree(tmp_path / "log")
    now[0] += 60
    assert reopen(tmp_path / "log")[1].incarnation > before


LATER = Session(4, NodeId("b"), 1)
"""The session whose history replaces that of `SESSION`."""


def later(first: int, count: int) -> tuple[Entry, ...]:
    return tuple(
        Entry(LATER, i, EventId(NodeId("b"), 1, i + 1), b"") for i in range(first, first + count)
    )


def installed(index: int) -> SnapshotImage:
    return SnapshotImage(cluster=CLUSTER, position=Position(LATER, index), state=b"later", known=())


@pytest.mark.parametrize("index", [15, 20, 25, 30, 99])
def test_a_peers_snapshot_counts_whatever_lies_at_higher_indices(
    tmp_path: Path, index: int
) -> None:
    with OpenLog(tmp_path) as log:
        founded(log)
        log.write(Appended(entries(0, 31)))
        log.write(SnapshotKept(image(20), log_reset=False))
        log.write(SnapshotKept(image(30), log_reset=False))
        log.write(SnapshotKept(installed(index), log_reset=True), SessionKept(LATER, 4))
        log.write(Appended(later(index + 1, 4)))
        assert len(list(tmp_path.glob("snapshot-*"))) == 1
    again, recovered = reopen(tmp_path)
    assert again.damage == ""
    assert recovered.snapshot == installed(index)
    assert recovered.entries == later(index + 1, 4)


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("index", [15, 20, 25, 30, 99])
def test_a_crash_at_any_step_of_taking_a_snapshot_leaves_one_history_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    """Every change of a name is a step; the process ends before the one or the other of them."""
    outcomes: set[bool] = set()
    for steps in range(20):
        directory = tmp_path / str(steps)
        with OpenLog(directory) as log:
            founded(log)
            log.write(Appended(entries(0, 31)))
            log.write(SnapshotKept(image(20), log_reset=False))
            log.write(SnapshotKept(image(30), log_reset=False))
            with monkeypatch.context() as patch:
                crash_after(patch, steps)
                log.log.submit(9, (SnapshotKept(installed(index), log_reset=True),), full_sync=True)
                log.log.close()
            finished = log.failed.empty()
        again, recovered = reopen(directory)
        assert again.damage == ""
        is_new = recovered.snapshot == installed(index)
        assert is_new or recovered.snapshot == image(30)
        assert recovered.entries == (() if is_new else entries(0, 31))
        assert len(list(directory.glob("snapshot-*"))) == (1 if is_new else 2)
        outcomes.add(is_new)
        if finished:
            assert is_new
            break
    else:
        pytest.fail("the snapshot was never taken")
    assert outcomes == {False, True}


def crash_after(patch: pytest.MonkeyPatch, steps: int) -> None:
    left = [steps]
    unlink, replace = Path.unlink, Path.replace

    def step() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash

    def unlink_or_end(path: Path, *, missing_ok: bool = False) -> None:
        step()
        unlink(path, missing_ok=missing_ok)

    def replace_or_end(path: Path, target: Path) -> Path:
        step()
        return replace(path, target)

    patch.setattr(Path, "unlink", unlink_or_end)
    patch.setattr(Path, "replace", replace_or_end)


@pytest.mark.parametrize("steps", range(1, 4))
def test_a_crash_while_leaving_a_cluster_leaves_the_old_log_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    other = ClusterId("d" * 32)
    with OpenLog(tmp_path) as log:
        founded(log)
        log.write(Appended(entries(0, 5)), SnapshotKept(image(3), log_reset=False))
        with monkeypatch.context() as patch:
            crash_after(patch, steps - 1)
            log.log.submit(9, (ClusterJoined(other),), full_sync=True)
            log.log.close()
    again, recovered = reopen(tmp_path)
    assert again.damage == ""
    if recovered.cluster == other:
        assert (recovered.snapshot, recovered.entries) == (None, ())
        assert recovered.session == NO_SESSION
    else:
        assert (recovered.snapshot, recovered.entries) == (image(3), entries(0, 5))


@pytest.mark.parametrize("steps", range(6))
def test_a_crash_while_damage_is_mended_loses_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 1000)
    with OpenLog(tmp_path) as log:
        founded(log)
        for first in range(0, 30, 5):
            log.write(Appended(entries(first, 5)))
        log.write(SnapshotKept(image(3), log_reset=False))
    damaged = sorted(tmp_path.glob("segment-*"))[1]
    content = bytearray(damaged.read_bytes())
    content[-10] ^= 0xFF
    damaged.write_bytes(content)
    whole = tmp_path / "log-mended-at-once"
    shutil.copytree(tmp_path, whole)
    expected = reopen(whole)[1].entries
    assert expected == entries(0, len(expected))
    assert 5 < len(expected) < 30
    with monkeypatch.context() as patch, contextlib.suppress(Crash):
        crash_after(patch, steps)
        reopen(tmp_path)
    for _ in range(2):
        _, recovered = reopen(tmp_path)
        assert recovered.snapshot == image(3)
        assert recovered.entries == expected


def test_snapshots_of_earlier_starts_are_counted_and_dropped(tmp_path: Path) -> None:
    for life in range(4):
        with OpenLog(tmp_path) as log:
            if life == 0:
                founded(log)
            log.write(Appended(entries(life * 10, 10)))
            log.write(SnapshotKept(image(life * 10 + 9), log_reset=False))
            files = [*tmp_path.glob("snapshot-*"), *tmp_path.glob("segment-*")]
            assert log.log.status().bytes_on_disk == sum(path.stat().st_size for path in files)
    assert len(list(tmp_path.glob("snapshot-*"))) == 2


def test_a_torn_tail_is_cut_and_the_log_goes_on(tmp_path: Path) -> None:
    with OpenLog(tmp_path) as log:
        founded(log)
        log.write(Appended(entries(0, 3)))
        log.write(Appended(entries(3, 3)))
    path = next(tmp_path.glob("segment-*.log"))
    os.truncate(path, path.stat().st_size - 7)
    with OpenLog(tmp_path) as log:
        assert log.recovered.entries == entries(0, 3)
        assert log.log.damage == ""
        log.write(Appended(entries(3, 1)))
    assert reopen(tmp_path)[1].entries == entries(0, 4)


def test_damage_in_the_middle_is_set_aside_and_told(tmp_path: Path) -> None:
    with OpenLog(tmp_path) as log:
        founded(log)
        for i in range(6):
            log.write(Appended(entries(i, 1)))
    path = next(tmp_path.glob("segment-*.log"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with OpenLog(tmp_path) as log:
        assert "byte" in log.log.damage
        kept = log.recovered.entries
        assert kept == entries(0, len(kept))
        assert len(kept) < 6
        log.write(Appended(entries(len(kept), 1)))
    assert list((tmp_path / "damaged").iterdir())
    again, recovered = reopen(tmp_path)
    assert again.damage == ""
    assert len(recovered.entries) == len(kept) + 1


def test_no_cut_or_flip_ever_gives_a_wrong_prefix(tmp_path: Path) -> None:
    chance = random.Random(7)
    written = [frame(i, bytes([i]) * chance.randrange(0, 60)) for i in range(40)]
    whole = b"".join(written)
    payloads = [bytes([i]) for i in range(40)]
    for _ in range(3000):
        content = bytearray(whole)
        kind = chance.randrange(4)
        if kind == 0:
            del content[chance.randrange(len(content)) :]
        elif kind == 1:
            content[chance.randrange(len(content)) :] = bytes(chance.randrange(80))
        elif kind == 2:
            content[chance.randrange(len(content)) :] = chance.randbytes(50)
        else:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        seen = list(read_records(bytes(content), 0))
        ending = seen.pop()
        assert isinstance(ending, CleanEnd | TornTail | Damage)
        for i, record in enumerate(seen):
            assert isinstance(record, Framed)
            assert record.counter == i
            assert record.payload[:1] in (payloads[i], b"")
            assert frame(i, record.payload) == written[i]


def test_segments_roll_and_old_ones_go_with_the_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 4096)
    monkeypatch.setattr(module, "TAIL_ENTRIES", 10)
    with OpenLog(tmp_path) as log:
        founded(log)
        for start in range(0, 400, 10):
            log.write(Appended(entries(start, 10)))
            if start % 100 == 90:
                log.write(SnapshotKept(image(start + 9), log_reset=False))
        assert log.log.status().bytes_on_disk < 60_000
    assert len(list(tmp_path.glob("snapshot-*"))) == 2
    _, recovered = reopen(tmp_path)
    assert recovered.snapshot == image(399)
    assert recovered.entries[-1].index == 399
    assert recovered.entries[0].index <= 299 - 10
    assert recovered.session == SESSION


def test_a_start_reads_little_more_than_the_tail_however_small_the_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEGMENT_ENTRIES_MAX", 20)
    monkeypatch.setattr(module, "TAIL_ENTRIES", 20)
    last = -1
    for _ in range(3):
        with OpenLog(tmp_path) as log:
            if last < 0:
                founded(log)
            for start in range(last + 1, last + 201, 5):
                log.write(Appended(entries(start, 5)))
                if start % 20 == 15:
                    log.write(SnapshotKept(image(start + 4), log_reset=False))
            last += 200
        _, recovered = reopen(tmp_path)
        assert recovered.entries[-1].index == last
        assert 20 <= len(recovered.entries) <= 20 + 20 + 2 * 20


def test_starts_alone_make_no_segments(tmp_path: Path) -> None:
    for life in range(5):
        with OpenLog(tmp_path) as log:
            if life == 0:
                founded(log)
            log.write(Appended(entries(life * 3, 3)))
    assert len(list(tmp_path.glob("segment-*.log"))) == 1


def test_a_snapshot_from_a_peer_replaces_the_log(tmp_path: Path) -> None:
    with OpenLog(tmp_path) as log:
        founded(log)
        log.write(Appended(entries(0, 5)))
        log.write(SnapshotKept(image(1000), log_reset=True))
        log.write(Appended(entries(1001, 2)))
    _, recovered = reopen(tmp_path)
    assert recovered.snapshot == image(1000)
    assert recovered.entries == entries(1001, 2)


def test_joining_another_cluster_archives_the_log(tmp_path: Path) -> None:
    other = ClusterId("d" * 32)
    with OpenLog(tmp_path) as log:
        founded(log)
        log.write(Appended(entries(0, 5)))
        log.write(ClusterJoined(other), Appended(entries(0, 1)))
    _, recovered = reopen(tmp_path)
    assert recovered.cluster == other
    assert recovered.entries == entries(0, 1)
    assert list((tmp_path / "archive").iterdir())


def test_a_damaged_snapshot_falls_back_to_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TAIL_ENTRIES", 5)
    with OpenLog(tmp_path) as log:
        founded(log)
        log.write(Appended(entries(0, 30)))
        log.write(SnapshotKept(image(9), log_reset=False))
        log.write(SnapshotKept(image(19), log_reset=False))
    newest = max(tmp_path.glob("snapshot-*"))
    newest.write_bytes(newest.read_bytes()[:-3])
    _, recovered = reopen(tmp_path)
    assert recovered.snapshot == image(9)
    assert recovered.entries == entries(0, 30)


def test_a_full_disk_is_told_and_nothing_is_lost_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    full = [True]
    tried: queue.Queue[bool] = queue.Queue()
    write = os.write

    def scarce(descriptor: int, content: bytes) -> int:
        if full[0]:
            written = write(descriptor, bytes(content)[:5])
            tried.put(bool(written))
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content)

    with OpenLog(tmp_path) as log:
        founded(log)
        log.write(Appended(entries(0, 2)))
        monkeypatch.setattr(module.os, "write", scarce)
        assert log.log.submit(50, (Appended(entries(2, 2)),), full_sync=False)
        tried.get(timeout=10)
        tried.get(timeout=10)
        assert log.log.status().disk_full
        assert "No space" in log.log.status().trouble
        assert log.done.empty()
        full[0] = False
        assert log.done.get(timeout=10) == Synced(50)
        assert not log.log.status().disk_full
    monkeypatch.undo()
    assert reopen(tmp_path)[1].entries == entries(0, 4)


def test_a_failed_sync_acknowledges_nothing_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int, *, full: bool) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with OpenLog(tmp_path) as log:
        founded(log)
        monkeypatch.setattr(module, "sync_file", broken)
        log.log.submit(9, (Appended(entries(0, 1)),), full_sync=False)
        log.log.close()
        assert log.done.empty()
        assert "sync failed" in log.log.status().trouble


def test_a_failed_sync_of_a_full_segment_acknowledges_nothing_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failing = module.sync_file, [False]

    def once_broken(descriptor: int, *, full: bool) -> None:
        if failing[0]:
            failing[0] = False
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor, full=full)

    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 100)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(module, "sync_file", once_broken)
    log, _ = open_log(tmp_path)
    done: queue.Queue[Synced] = queue.Queue()
    failed: queue.Queue[BaseException] = queue.Queue()
    log.start(done.put, failed.put)
    log.submit(1, (ClusterJoined(CLUSTER), Appended(entries(0, 5))), full_sync=False)
    assert done.get(timeout=10) == Synced(1)
    opened = len(list(Path("/dev/fd").iterdir()))
    failing[0] = True
    log.submit(2, (Appended(entries(5, 1)),), full_sync=False)
    assert isinstance(failed.get(timeout=10), OSError)
    log.submit(3, (Appended(entries(6, 1)),), full_sync=False)
    assert len(list(Path("/dev/fd").iterdir())) == opened
    log.close()
    assert done.empty()
    assert failed.empty()
    assert not log.status().disk_full
    assert "sync failed" in log.status().trouble


def test_a_write_that_fails_for_another_reason_is_trouble_and_no_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    broken, tried, write = [True], queue.Queue[bool](), os.write

    def refused(descriptor: int, content: bytes) -> int:
        if broken[0]:
            tried.put(True)
            raise OSError(errno.EACCES, "Permission denied")
        return write(descriptor, content)

    with OpenLog(tmp_path) as log:
        founded(log)
        monkeypatch.setattr(module.os, "write", refused)
        log.log.submit(9, (Appended(entries(0, 1)),), full_sync=False)
        tried.get(timeout=10)
        tried.get(timeout=10)
        assert not log.log.status().disk_full
        assert "Permission denied" in log.log.status().trouble
        broken[0] = False
        assert log.done.get(timeout=10) == Synced(9)


@pytest.mark.parametrize("owner_listens", [True, False])
def test_the_writer_never_dies_silently(tmp_path: Path, owner_listens: bool) -> None:
    failed: queue.Queue[BaseException] = queue.Queue()

    def gone(_: Synced) -> None:
        raise RuntimeError("nobody there")

    def heard(error: BaseException) -> None:
        failed.put(error)
        if not owner_listens:
            raise RuntimeError("nobody here either")

    log, _ = open_log(tmp_path)
    log.start(gone, heard)
    log.submit(1, (ClusterJoined(CLUSTER),), full_sync=False)
    assert "nobody there" in str(failed.get(timeout=10))
    log.close()
    assert "nobody there" in log.status().trouble


def test_whatever_is_written_can_be_read_back() -> None:
    assert Limits().snapshot_bytes < PAYLOAD_BYTES_MAX
    largest = bytes(PAYLOAD_BYTES_MAX)
    assert next(read_records(frame(0, largest))) == Framed(0, largest)
    with pytest.raises(RefusedError, match="at most"):
        frame(0, largest + b"x")


def test_a_snapshot_too_large_to_keep_is_told_and_the_log_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_module, "PAYLOAD_BYTES_MAX", 2000)
    huge = msgspec.structs.replace(image(4), state=bytes(3000))
    with OpenLog(tmp_path) as log:
        founded(log)
        log.write(Appended(entries(0, 5)))
        log.write(SnapshotKept(huge, log_reset=False), Appended(entries(5, 1)))
        assert "3" in log.log.status().trouble
        log.write(SnapshotKept(image(4), log_reset=False))
        assert log.log.status().trouble == ""
    assert reopen(tmp_path)[1].entries == entries(0, 6)


def test_records_with_many_entries_are_cut_to_what_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_module, "PAYLOAD_BYTES_MAX", 3000)
    monkeypatch.setattr(parts_module, "PART_BYTES", 1000)
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 4000)
    with OpenLog(tmp_path) as log:
        founded(log)
        log.write(Appended(entries(0, 200)), Orphaned(entries(100, 100)), Truncated(100))
        log.write(Appended(entries(100, 100)))
    _, recovered = reopen(tmp_path)
    assert recovered.entries == entries(0, 200)
    assert recovered.orphans == entries(100, 100)


def test_a_full_queue_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE_BATCHES_MAX", 2)
    log, _ = open_log(tmp_path)
    record = (SessionKept(SESSION, 1),)
    assert [log.submit(i, record, full_sync=False) for i in range(3)] == [True, True, False]
    log.close()


def test_a_log_of_a_newer_exoctl_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OpenLog(tmp_path) as log:
        founded(log)
    monkeypatch.setattr("node.io.log_file.recovery.FORMAT_VERSION", 0)
    with pytest.raises(ConflictError, match="newer exoctl"):
        open_log(tmp_path)


def test_an_unwritable_directory_is_a_named_error(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("no directory")
    with pytest.raises(ConflictError, match="can't be used"):
        open_log(target)


def test_many_batches_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[bool] = []
    real = module.sync_file

    def counted(descriptor: int, *, full: bool) -> None:
        syncs.append(full)
        real(descriptor, full=full)

    monkeypatch.setattr(module, "sync_file", counted)
    log, _ = open_log(tmp_path)
    done: queue.Queue[Synced] = queue.Queue()
    log.submit(0, (ClusterJoined(CLUSTER),), full_sync=True)
    for i in range(200):
        log.submit(i + 1, (Appended(entries(i, 1)),), full_sync=False)
    log.start(done.put)
    while done.get(timeout=10).token < 200:
        pass
    log.close()
    assert len(syncs) < 20
    assert log_package.open_log(tmp_path)[1].entries == entries(0, 200)


def test_the_log_stays_bounded_over_large_entries_and_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 4096)
    monkeypatch.setattr(module, "TAIL_BYTES_MAX", 8192)
    index = 0
    log = OpenLog(tmp_path)
    for life in range(12):
        with log:
            if life == 0:
                founded(log)
            for start in range(life * 100, life * 100 + 100, 10):
                log.write(Appended(entries(start, 10)))
            index = life * 100 + 99
            log.write(SnapshotKept(image(index), log_reset=False))
    # The tail, what came since the last snapshot but one, the snapshots, and a segment's rounding.
    written_between = 100 * 100
    assert log.log.status().bytes_on_disk < 8192 + 2 * written_between + 3 * 4096
    _, recovered = reopen(tmp_path)
    assert recovered.snapshot == image(index)
    assert recovered.entries[-1].index == index
    assert recovered.entries[0].index > 0


@pytest.mark.parametrize("alien", ["cluster", "index"])
def test_a_segment_that_does_not_belong_is_named_and_set_aside(tmp_path: Path, alien: str) -> None:
    with OpenLog(tmp_path) as log:
        founded(log)
        log.write(Appended(entries(0, 3)))
    recovered = recover_segments(tmp_path)
    folded, counter = recovered.folded, recovered.counter_next
    if alien == "cluster":
        folded.cluster = ClusterId("d" * 32)
    else:
        folded.next_index = 99
    content, _ = first_records(folded, counter, log_reset=False)
    (tmp_path / f"segment-{counter:016d}.log").write_bytes(content)
    again, found = reopen(tmp_path)
    assert {"cluster": "cluster dddddddd", "index": "from 99"}[alien] in again.damage
    assert found.cluster == CLUSTER
    assert found.entries == entries(0, 3)
