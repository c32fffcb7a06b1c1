"""Messages between members to frames and back.

What a newer version may say is counted and ignored: an unknown kind, flag, tag or enum value. Bytes
that no version would send are an error, and end the link that they came over.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar, get_args

import msgspec

from node.core.replica.messages import ReplicaMessage, SnapshotChunk
from node.model.register import Register
from node.wire.frame import FRAME_BYTES_MAX, HEADER_BYTES, Frame, FrameKind, encode_frame
from node.wire.message import (
    PieceSent,
    RegistersChanged,
    ServiceMessage,
    StreamCancelled,
    StreamCredit,
    StreamItems,
    StreamOpened,
)

REGISTERS_PER_FRAME = 64
_PAYLOAD_BYTES_MAX = FRAME_BYTES_MAX - HEADER_BYTES

_T = TypeVar("_T")
_KINDS: dict[type, FrameKind] = {
    **dict.fromkeys(get_args(ReplicaMessage), FrameKind.REPLICA),
    **dict.fromkeys(get_args(ServiceMessage), FrameKind.SERVICE),
    SnapshotChunk: FrameKind.SNAPSHOT,
    RegistersChanged: FrameKind.REGISTERS,
    StreamOpened: FrameKind.STREAM,
    StreamItems: FrameKind.STREAM,
    StreamCredit: FrameKind.STREAM,
    StreamCancelled: FrameKind.STREAM,
    PieceSent: FrameKind.PIECE,
}


class CodecError(Exception):
    """A frame's payload is not what its kind says."""


class _RawRegisters(msgspec.Struct, frozen=True, tag="registers", kw_only=True):
    """Registers one by one, so that an unknown one does not take the others with it."""

    registers: tuple[msgspec.Raw, ...]


class Codec:
    """Encoders and decoders, made once, and counts of what was ignored."""

    def __init__(self) -> None:
        self.ignored: Counter[str] = Counter()
        """By reason, such as `kind 77`."""
        self._encoder = msgspec.msgpack.Encoder()
        self._replica = msgspec.msgpack.Decoder(ReplicaMessage)
        self._service = msgspec.msgpack.Decoder(ServiceMessage)
        self._registers = msgspec.msgpack.Decoder(_RawRegisters)
        self._register = msgspec.msgpack.Decoder(Register)

    def encode(self, message: ReplicaMessage | ServiceMessage) -> bytes:
        """The frame of a message.

        Raises:
            FrameError: it is longer than a frame may be.
        """
        return encode_frame(frame_kind(message), self._encoder.encode(message))

    def encode_registers(self, registers: Iterable[Register]) -> list[bytes]:
        """Frames that hold the registers; one that no frame can hold is counted and left out."""
        frames: list[bytes] = []
        batch: list[msgspec.Raw] = []
        batch_bytes = 0
        for register in registers:
            raw = self._encoder.encode(register)
            if len(raw) > _PAYLOAD_BYTES_MAX // 2:
                self.ignored["register too large"] += 1
                continue
            if batch and (
                len(batch) == REGISTERS_PER_FRAME
                or batch_bytes + len(raw) > _PAYLOAD_BYTES_MAX // 2
            ):
                frames.append(self._register_frame(batch))
                batch, batch_bytes = [], 0
            batch.append(msgspec.Raw(raw))
            batch_bytes += len(raw)
        if batch:
            frames.append(self._register_frame(batch))
        return frames

    def decode(self, frame: Frame) -> ReplicaMessage | ServiceMessage | None:
        """The message in a frame; None where this version can't know it, which is counted.

        Raises:
            CodecError: the payload is damaged or of wrong shape.
        """
        if frame.flags:
            self.ignored[f"flags {frame.flags}"] += 1
            return None
        match frame.kind:
            case FrameKind.REPLICA | FrameKind.SNAPSHOT:
                return self._guarded(self._replica, frame)
            case FrameKind.SERVICE | FrameKind.STREAM | FrameKind.PIECE:
                return self._guarded(self._service, frame)
            case FrameKind.REGISTERS:
                return self._decode_registers(frame)
            case _:
                self.ignored[f"kind {frame.kind}"] += 1
                return None

    def _register_frame(self, batch: list[msgspec.Raw]) -> bytes:
        payload = self._encoder.encode(_RawRegisters(registers=tuple(batch)))
        return encode_frame(FrameKind.REGISTERS, payload)

    def _decode_registers(self, frame: Frame) -> RegistersChanged | None:
        raw = self._guarded(self._registers, frame)
        if raw is None:
            return None
        decoded = (
            self._guarded(self._register, Frame(frame.kind, 0, bytes(register)))
            for register in raw.registers
        )
        registers = tuple(register for register in decoded if register is not None)
        return RegistersChanged(registers=registers) if registers else None

    def _guarded(self, decoder: msgspec.msgpack.Decoder[_T], frame: Frame) -> _T | None:
        try:
            return decoder.decode(frame.payload)
        except msgspec.ValidationError as error:
            text = str(error)
            # msgspec says so of an unknown tag or enum value, and of nothing else.
            if text.startswith(("Invalid value ", "Invalid enum value ")):
                self.ignored[f"unknown value in kind {frame.kind}"] += 1
                return None
            raise CodecError(f"a frame of kind {frame.kind}: {text}") from error
        except (msgspec.DecodeError, RecursionError) as error:
            raise CodecError(f"a frame of kind {frame.kind}: {error}") from error


def frame_kind(message: ReplicaMessage | ServiceMessage) -> FrameKind:
    """The kind of the frame that carries a message."""
    return _KINDS[type(message)]
