"""Records cut to a size that is read back, whatever the number of entries."""

from collections.abc import Iterator

import msgspec

from node.core.replica.durable import Appended, DurableRecord, Orphaned
from node.io.log_file.record import frame
from node.io.log_file.recovery import Folded, encode_record
from node.model.session import Entry

PART_BYTES = 8 * 1024 * 1024
"""Records with more entries than this are written as several, far below what a record may be."""


def parts_of(record: DurableRecord) -> Iterator[DurableRecord]:
    """The record, or several that say the same where it would get too large."""
    match record:
        case Appended(entries=entries):
            yield from (Appended(part) for part in entry_parts(entries))
        case Orphaned(entries=entries):
            yield from (Orphaned(part) for part in entry_parts(entries))
        case _:
            yield record


def entry_parts(entries: tuple[Entry, ...]) -> Iterator[tuple[Entry, ...]]:
    """The same entries in order, in at least one part; a part holds one or fits `PART_BYTES`."""
    first, size = 0, 0
    for place, entry in enumerate(entries):
        if size + len(entry.payload) > PART_BYTES and place > first:
            yield entries[first:place]
            first, size = place, 0
        size += len(entry.payload)
    yield entries[first:]


def first_records(folded: Folded, counter: int, *, log_reset: bool) -> tuple[bytes, int]:
    """What a segment begins with, and the counter that follows."""
    orphans, *more = entry_parts(tuple(folded.orphans.values()))
    header = msgspec.structs.replace(folded.header(log_reset=log_reset), orphans=orphans)
    content = b""
    for record in (header, *(Orphaned(part) for part in more)):
        content += frame(counter, encode_record(record))
        counter += 1
    return content, counter
