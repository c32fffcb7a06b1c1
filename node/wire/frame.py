"""Frames: the unit that links carry, `u32 length | u8 kind | u8 flags | payload`.

The length counts what follows it. A frame can be forwarded, counted or dropped by its kind alone.
"""

import enum
from collections.abc import Iterator

import msgspec

FRAME_BYTES_MAX = 1024 * 1024
"""Longest frame between members, the header counted in."""
GREETING_BYTES_MAX = 4096
"""Longest frame from somebody who has not yet proved who it is."""
HEADER_BYTES = 6
_LENGTH_BYTES = 4


class FrameKind(enum.IntEnum):
    """What a frame carries. A number, once given, is never used again."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    VERDICT = 4
    GRANTED = 5
    COMMITMENT = 6
    REVELATION = 7
    WAITING = 8

    PING = 16
    PONG = 17
    BYE = 18
    PROBE = 19
    """Filling, to measure how much goes over a connection."""
    PROBE_END = 20
    PROBE_ARRIVED = 21

    REPLICA = 32
    """The log's own messages."""
    SNAPSHOT = 33
    """The log's bulk: large, and never in the way of the others."""
    SERVICE = 34
    """Commands, plans, addresses."""
    REGISTERS = 35
    """Latest values; a later one replaces one that still waits."""
    STREAM = 36
    """Tokens, point to point, with credit."""
    PIECE = 37
    """Bytes of models, over the bulk connection."""
    RANGE = 38
    """Over a connection for copies: how many bytes of a file follow the frame, as they are."""


class FrameError(Exception):
    """Bytes that can't be frames: the connection they came over is of no more use."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame as it came."""

    kind: int
    """Maybe one that this version does not know."""
    flags: int
    payload: bytes


def encode_frame(kind: FrameKind, payload: bytes) -> bytes:
    """The bytes of a frame.

    Raises:
        FrameError: it is longer than a frame may be.
    """
    size = HEADER_BYTES + len(payload)
    if size > FRAME_BYTES_MAX:
        raise FrameError(f"a frame of {size} bytes; {FRAME_BYTES_MAX} are allowed")
    return (size - _LENGTH_BYTES).to_bytes(_LENGTH_BYTES, "big") + bytes((kind, 0)) + payload


class FrameReader:
    """Cuts a stream of bytes into frames, holding little more than one that is not yet whole."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        """May be changed between two frames."""
        self._buffer = bytearray()
        self._start = 0
        """Where the next frame begins: what lies before is dropped once for many frames."""

    def feed(self, received: bytes) -> None:
        """Take bytes as they come; take the frames out before feeding more."""
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += received

    @property
    def bytes_missing(self) -> int:
        """Of the next frame, as far as is known: none where it is whole."""
        held = len(self._buffer) - self._start
        if held < _LENGTH_BYTES:
            return _LENGTH_BYTES - held
        size = int.from_bytes(self._buffer[self._start : self._start + _LENGTH_BYTES], "big")
        return max(0, _LENGTH_BYTES + size - held)

    def next_frame(self) -> Frame | None:
        """The next frame, or None until more bytes come.

        Raises:
            FrameError: a length is below the header's or above the limit.
        """
        buffer, start = self._buffer, self._start
        if len(buffer) - start < _LENGTH_BYTES:
            return None
        size = _LENGTH_BYTES + int.from_bytes(buffer[start : start + _LENGTH_BYTES], "big")
        if size < HEADER_BYTES or size > self.frame_bytes_max:
            raise FrameError(
                f"a frame of {size} bytes; {HEADER_BYTES} to {self.frame_bytes_max} are allowed"
            )
        end = start + size
        if len(buffer) < end:
            return None
        payload = bytes(buffer[start + HEADER_BYTES : end])
        self._start = end
        return Frame(buffer[start + 4], buffer[start + 5], payload)

    def frames(self) -> Iterator[Frame]:
        """Every frame that is whole now.

        Raises:
            FrameError: as `next_frame`.
        """
        while (frame := self.next_frame()) is not None:
            yield frame
