"""The Unix socket between a node and one of its runners: frames in, frames out."""

import struct
from pathlib import Path

import anyio
import anyio.abc
import msgspec

from node.io import clock
from node.io.unix_stream import connect_unix
from node.model.ids import RunnerId
from node.runner.claim import NONCE_BYTES, is_proof, proof
from node.runner.protocol import (
    FRAME_BYTES_MAX,
    Challenge,
    Claim,
    Introduced,
    NodeMessage,
    RunnerMessage,
)

_LENGTH = struct.Struct(">I")
_CHUNK_BYTES = 64 * 1024

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[RunnerMessage] = msgspec.msgpack.Decoder(RunnerMessage)


class RunnerFaultError(Exception):
    """The runner sent something that is no message of the protocol."""


class FrameTooLargeError(Exception):
    """A message is longer than a frame may be."""


def encode_frame(message: NodeMessage) -> bytes:
    """A message as it goes over the socket.

    Raises:
        FrameTooLargeError: it is longer than a frame may be; says both sizes.
    """
    payload = _encode(message)
    if len(payload) > FRAME_BYTES_MAX:
        raise FrameTooLargeError(f"{len(payload)} bytes, at most {FRAME_BYTES_MAX}")
    return _LENGTH.pack(len(payload)) + payload


class FrameReader:
    """Cuts what comes in into messages. Never holds more than one frame and one chunk."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[RunnerMessage]:
        """The messages that are whole now.

        Raises:
            RunnerFaultError: a frame is too long or no message.
        """
        buffer = self._buffer
        buffer += chunk
        messages: list[RunnerMessage] = []
        begin = 0
        while len(buffer) - begin >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, begin)
            if length > FRAME_BYTES_MAX:
                raise RunnerFaultError(f"a frame of {length} bytes, at most {FRAME_BYTES_MAX}")
            end = begin + _LENGTH.size + length
            if len(buffer) < end:
                break
            messages.append(_decode(bytes(buffer[begin + _LENGTH.size : end])))
            begin = end
        del buffer[:begin]
        return messages


def _decode(payload: bytes) -> RunnerMessage:
    try:
        return _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RunnerFaultError(f"a frame of {len(payload)} bytes is no message: {error}") from error


class RunnerLink:
    """One connection to a runner."""

    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        self._stream = stream
        self._reader = FrameReader()

    async def send(self, frame: bytes) -> None:
        """Send a frame.

        Raises:
            anyio.BrokenResourceError: the runner is gone.
        """
        await self._stream.send(frame)

    async def receive(self) -> list[RunnerMessage]:
        """The next messages, maybe none yet.

        Raises:
            anyio.EndOfStream, anyio.BrokenResourceError: the runner is gone.
            RunnerFaultError: it sent nonsense.
        """
        return self._reader.feed(await self._stream.receive(_CHUNK_BYTES))

    async def aclose(self) -> None:
        """Close the connection; the runner then waits for its node for a while."""
        await self._stream.aclose()


async def dial(path: Path) -> RunnerLink:
    """Connect to a runner's socket.

    Raises:
        OSError: nobody listens there.
    """
    return RunnerLink(await connect_unix(path))


class RunnerClaim:
    """This node's side of proving that a runner is its own, on one connection."""

    def __init__(self, runner: RunnerId, secret: bytes, incarnation: int) -> None:
        self._runner = runner
        self._secret = secret
        self._incarnation = incarnation
        self._nonce = bytes.fromhex(clock.random_hex(2 * NONCE_BYTES))

    def answer(self, challenge: Challenge) -> bytes:
        """The frame that claims the runner."""
        shown = proof("node", self._secret, self._runner, challenge.nonce, self._incarnation)
        return encode_frame(Claim(incarnation=self._incarnation, nonce=self._nonce, proof=shown))

    def holds_for(self, introduced: Introduced) -> bool:
        """Whether whoever introduces itself is the runner that this node has started."""
        expected = proof("runner", self._secret, self._runner, self._nonce, self._incarnation)
        return introduced.runner == self._runner and is_proof(introduced.proof, expected)
