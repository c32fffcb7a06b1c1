"""Snapshots on disk: which of them belong to the history that the segments tell."""

import contextlib
import hashlib
from pathlib import Path

import msgspec

from node.core.replica.durable import SnapshotImage
from node.io.durability import replace_file
from node.io.log_file.record import CleanEnd, Framed, frame, read_records
from node.io.log_file.recovery import Folded

SNAPSHOT_PATTERN = "snapshot-*.msgpack"


class SnapshotFile(msgspec.Struct, frozen=True):
    """A snapshot of the log's history."""

    path: Path
    index: int
    bytes: int


class FoundSnapshots(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in the directory, judged by the log."""

    image: SnapshotImage | None
    """The newest of this history; with no such one, or a damaged log, the newest of the cluster."""
    is_fitting: bool
    """Whether `image` is of this history, so that the log's entries lead on from it."""
    kept: list[SnapshotFile]
    """Those of this history, by index; with a damaged log just the file of `image`."""
    foreign: list[Path]
    """Left over from a crash: of a history or a cluster that doesn't hold any more, or not yet."""
    unreadable: list[Path]
    trouble: str


def write_snapshot(directory: Path, image: SnapshotImage) -> SnapshotFile:
    """Write a snapshot beside the older ones; the digest tells apart histories of equal index."""
    content = frame(0, msgspec.msgpack.encode(image))
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    name = f"snapshot-{max(image.position.index, 0):016d}-{digest}.msgpack"
    replace_file(directory / name, content)
    return SnapshotFile(directory / name, image.position.index, len(content))


def find_snapshots(directory: Path, folded: Folded, *, is_damaged: bool) -> FoundSnapshots:
    """Read every snapshot and choose what the log can go on from."""
    unreadable: list[Path] = []
    foreign: list[Path] = []
    ours: list[tuple[SnapshotFile, SnapshotImage]] = []
    trouble = ""
    for path in sorted(directory.glob(SNAPSHOT_PATTERN)):
        image = _read(path)
        if image is None:
            unreadable.append(path)
            trouble = f"{path.name}: damaged"
        elif image.cluster != folded.cluster:
            foreign.append(path)
        else:
            file = SnapshotFile(path, image.position.index, path.stat().st_size)
            ours.append((file, image))
    ours.sort(key=lambda pair: pair[1].position)
    fitting = [pair for pair in ours if folded.fits(pair[1].position)]
    leaves_hole = folded.base_index > 0 and not fitting
    use_any = bool(ours) and (is_damaged or leaves_hole)
    chosen = ours[-1:] if use_any else fitting[-1:]
    kept = [file for file, _ in (chosen if use_any else fitting)]
    foreign += [file.path for file, _ in ours if file not in kept]
    return FoundSnapshots(
        image=chosen[0][1] if chosen else None,
        is_fitting=bool(chosen) and folded.fits(chosen[0][1].position),
        kept=kept,
        foreign=foreign,
        unreadable=unreadable,
        trouble=trouble,
    )


def _read(path: Path) -> SnapshotImage | None:
    match list(read_records(path.read_bytes())):
        case [Framed(payload=payload), CleanEnd()]:
            with contextlib.suppress(msgspec.MsgspecError):
                return msgspec.msgpack.decode(payload, type=SnapshotImage)
        case _:
            pass
    return None
