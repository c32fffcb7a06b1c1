"""Frames between a node and its runner: a 4-byte length and the msgpack of one message."""

from typing import Generic, TypeVar

import msgspec

from node.runner.protocol import FRAME_BYTES_MAX

Message = TypeVar("Message")
_LENGTH_BYTES = 4


class FrameError(Exception):
    """The other side sent something that is no frame of the protocol."""


def encode_frame(message: msgspec.Struct) -> bytes:
    """One message, ready to be sent."""
    payload = msgspec.msgpack.encode(message)
    return len(payload).to_bytes(_LENGTH_BYTES, "big") + payload


class FrameBuffer(Generic[Message]):
    """Bytes in, whole messages out. `kind` is the union that the other side may send."""

    def __init__(self, kind: type[Message]) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._buffer = bytearray()

    def feed(self, received: bytes) -> list[Message]:
        """Take what was received and return the messages it completes.

        Raises:
            FrameError: a frame is too long or holds no known message.
        """
        self._buffer += received
        messages: list[Message] = []
        while len(self._buffer) >= _LENGTH_BYTES:
            length = int.from_bytes(self._buffer[:_LENGTH_BYTES], "big")
            if length > FRAME_BYTES_MAX:
                raise FrameError(f"a frame of {length} bytes, {FRAME_BYTES_MAX} at most")
            end = _LENGTH_BYTES + length
            if len(self._buffer) < end:
                break
            payload = bytes(self._buffer[_LENGTH_BYTES:end])
            del self._buffer[:end]
            try:
                messages.append(self._decoder.decode(payload))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise FrameError(str(error)) from error
        return messages
