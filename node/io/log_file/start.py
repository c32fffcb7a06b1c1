"""What a start does on disk before the log is open: count it, and mend what is broken."""

import contextlib
import zlib
from pathlib import Path

from node.core.replica.durable import Appended
from node.io import clock
from node.io.durability import replace_file, sync_directory
from node.io.log_file.parts import entry_parts, first_records
from node.io.log_file.record import frame
from node.io.log_file.recovery import Folded, RecoveredLog, encode_record, recover_segments
from node.io.log_file.snapshots import FoundSnapshots
from node.model.session import NO_POSITION

INCARNATION_LEAP = 1_000_000
"""How far above anything seen a lost incarnation goes on."""


def remove(path: Path) -> None:
    """Delete what isn't needed; a file that can't be deleted is looked at again at start."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def set_aside(paths: list[Path], target: Path) -> None:
    """Move files of a log out of the way."""
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in paths:
        path.replace(target / path.name)
    sync_directory(target.parent.parent)


def start_over(
    directory: Path, incarnation: int, damaged: RecoveredLog, found: FoundSnapshots
) -> RecoveredLog:
    """Write what could be read of a damaged log into a fresh segment, and set the rest aside.

    Entries that don't lead to the snapshot become orphans, so that they are offered again.
    """
    old = damaged.folded
    fresh = Folded()
    fresh.cluster, fresh.session = old.cluster, old.session
    fresh.term_highest, fresh.orphans = old.term_highest, old.orphans
    usable = found.is_fitting or (found.image is None and old.base_index == 0)
    entries = tuple(old.entries) if usable else ()
    if not usable:
        events = (entry for entry in old.entries if entry.id.sequence > 0)
        fresh.orphans.update((entry.id, entry) for entry in events)
    position = found.image.position if found.image else NO_POSITION
    first = entries[0].index if entries else position.index + 1
    fresh.reset_to(first, position if first == position.index + 1 else NO_POSITION)
    # The name sorts behind every segment, damaged ones too: its header makes them not count.
    numbers = [int(path.stem.removeprefix("segment-")) for path in damaged.segments]
    start = max([damaged.counter_next, *numbers]) + 1
    content, counter = first_records(fresh, start, log_reset=True)
    for part in entry_parts(entries):
        content += frame(counter, encode_record(Appended(part)))
        counter += 1
    path = directory / f"segment-{start:016d}.log"
    replace_file(path, content)
    left = [*damaged.segments, *found.foreign, *found.unreadable]
    set_aside(left, directory / "damaged" / f"{incarnation:08d}")
    fresh.entries = list(entries)
    fresh.next_index = first + len(entries)
    return RecoveredLog(
        folded=fresh,
        segments=[path],
        counter_next=counter,
        ends={path: fresh.next_index},
        tail_bytes=len(content),
    )


def raise_incarnation(directory: Path) -> int:
    """Count this start, on disk, before anything else: sessions are unique by it.

    A lost counter (its file, or the whole directory) goes on above anything that this node can have
    been before: else its events would be taken for known ones. The clock serves for that alone.
    """
    path = directory / "incarnation"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""
    if len(content) == 12 and zlib.crc32(content[:8]) == int.from_bytes(content[8:], "big"):
        previous = int.from_bytes(content[:8], "big")
    else:
        seen = _incarnation_seen(recover_segments(directory).folded)
        previous = max(seen + INCARNATION_LEAP, int(clock.wall()))
    raised = (previous + 1).to_bytes(8, "big")
    replace_file(path, raised + zlib.crc32(raised).to_bytes(4, "big"))
    return previous + 1


def _incarnation_seen(folded: Folded) -> int:
    entries = (*folded.entries, *folded.orphans.values())
    sessions = (folded.session, *(entry.session for entry in entries))
    return max(
        *(session.incarnation for session in sessions),
        *(entry.id.incarnation for entry in entries),
        0,
    )
