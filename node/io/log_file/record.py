"""One record's bytes: length, checksum, counter, payload.

The counter rises by one from record to record over all segments: so a record that survives behind a
damaged one is told from a torn tail.
"""

import struct
import zlib
from collections.abc import Iterator

import msgspec

from node.model.errors import RefusedError

HEADER = struct.Struct(">IIQ")
PAYLOAD_BYTES_MAX = 96 * 1024 * 1024
"""Larger lengths are damage: no record is written that large. Above any peer's snapshot."""
COUNTER_JUMP_MAX = 1 << 20
"""A record behind damage is believed only if its counter is this near."""


class TornTail(msgspec.Struct, frozen=True):
    """The file ends in the middle of a record, as after a crash: cut at `offset`."""

    offset: int


class Damage(msgspec.Struct, frozen=True):
    """A record is bad although valid ones follow: the disk or a person changed the file."""

    offset: int
    reason: str


class CleanEnd(msgspec.Struct, frozen=True):
    """Every byte was a valid record."""

    offset: int


class Framed(msgspec.Struct, frozen=True):
    """A valid record."""

    counter: int
    payload: bytes


def frame(counter: int, payload: bytes) -> bytes:
    """Bytes of one record.

    Raises:
        RefusedError: it is larger than what would be read back.
    """
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise RefusedError.because(
            "record_too_large",
            f"a record of {len(payload)} bytes can't be kept; at most {PAYLOAD_BYTES_MAX} are",
        )
    body = counter.to_bytes(8, "big") + payload
    return HEADER.pack(len(payload), zlib.crc32(body), counter) + payload


def read_records(
    content: bytes, counter: int | None = None
) -> Iterator[Framed | CleanEnd | TornTail | Damage]:
    """Yield records in order, then exactly one of the three endings.

    Args:
        content: a whole segment.
        counter: what the first record must be numbered; None takes it from the first record.
    """
    offset = 0
    while offset < len(content):
        record = _record_at(content, offset)
        if record is None or (counter is not None and record.counter != counter):
            yield _ending(content, offset, counter or 0)
            return
        yield record
        counter = record.counter + 1
        offset += HEADER.size + len(record.payload)
    yield CleanEnd(offset)


def _record_at(content: bytes, offset: int) -> Framed | None:
    if offset + HEADER.size > len(content):
        return None
    length, checksum, counter = HEADER.unpack_from(content, offset)
    start = offset + HEADER.size
    if length > PAYLOAD_BYTES_MAX or start + length > len(content):
        return None
    if zlib.crc32(content[offset + 8 : start + length]) != checksum:
        return None
    return Framed(counter, content[start : start + length])


def _ending(content: bytes, offset: int, expected: int) -> TornTail | Damage:
    for later in range(offset + 1, len(content) - HEADER.size + 1):
        length, _, counter = HEADER.unpack_from(content, later)
        if not expected < counter <= expected + COUNTER_JUMP_MAX:
            continue
        if length <= len(content) - later - HEADER.size and _record_at(content, later):
            return Damage(offset, f"a bad record before the valid one at byte {later}")
    return TornTail(offset)
