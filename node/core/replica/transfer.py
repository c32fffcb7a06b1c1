"""A snapshot on its way from the master to a peer, in chunks within a window."""

import math
import zlib

import msgspec

from node.core.replica.durable import SnapshotImage
from node.core.replica.messages import SnapshotChunk
from node.core.replica.timing import Limits
from node.model.ids import ClusterId
from node.model.session import Position, Session

_decoder: msgspec.msgpack.Decoder[SnapshotImage] = msgspec.msgpack.Decoder(SnapshotImage)
_COMPRESSION_LEVEL = 1


def pack_image(image: SnapshotImage) -> bytes:
    """An image as it travels."""
    return zlib.compress(msgspec.msgpack.encode(image), _COMPRESSION_LEVEL)


def unpack_image(packed: bytes, bytes_max: int) -> SnapshotImage | None:
    """An image that came from a peer; None where it is damaged or unpacks to more than allowed."""
    decompressor = zlib.decompressobj()
    try:
        unpacked = decompressor.decompress(packed, bytes_max)
        if not decompressor.eof:
            return None
        image = _decoder.decode(unpacked)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    sound = image.position.index >= 0 and all(
        1 <= run.first <= run.last for writer in image.known for run in writer.intervals
    )
    return image if sound else None


class SnapshotSender:
    """The master's side: sends on as the peer acknowledges, again from there when it is silent."""

    def __init__(self, cluster: ClusterId, session: Session, image: SnapshotImage, packed: bytes):
        self._cluster = cluster
        self._session = session
        self._packed = packed
        self.position = image.position
        self._acknowledged = 0
        self._next = 0
        self._progress_at = -math.inf

    def chunks(self, now: float, limits: Limits, retransmit_seconds: float) -> list[SnapshotChunk]:
        """What to send now."""
        if self._next > self._acknowledged and now - self._progress_at >= retransmit_seconds:
            self._next = self._acknowledged
        size = limits.snapshot_chunk_bytes
        window_end = self._acknowledged + size * limits.snapshot_chunks_in_flight
        chunks: list[SnapshotChunk] = []
        while self._next < min(len(self._packed), window_end):
            chunk = self._packed[self._next : self._next + size]
            chunks.append(
                SnapshotChunk(
                    self._cluster,
                    self._session,
                    self.position,
                    self._next,
                    len(self._packed),
                    chunk,
                )
            )
            self._next += len(chunk)
        if chunks:
            self._progress_at = now
        return chunks

    def acknowledge(self, now: float, bytes_received: int) -> None:
        """The peer has so many bytes; fewer than before where it began anew."""
        if 0 <= bytes_received <= len(self._packed):
            self._acknowledged = bytes_received
            self._next = max(self._next, bytes_received)
            self._progress_at = now


class SnapshotReceiver:
    """The peer's side: takes the chunks in order."""

    def __init__(self, position: Position, bytes_total: int) -> None:
        self.position = position
        self._bytes_total = bytes_total
        self._packed = bytearray()

    @property
    def bytes_received(self) -> int:
        """How much is here."""
        return len(self._packed)

    def is_for(self, chunk: SnapshotChunk) -> bool:
        """Whether the chunk belongs to the same image."""
        return chunk.position == self.position and chunk.bytes_total == self._bytes_total

    def take(self, chunk: SnapshotChunk) -> bytes | None:
        """Add a chunk if it is the next; returns the whole once it is complete."""
        fits = len(self._packed) + len(chunk.chunk) <= self._bytes_total
        if chunk.offset == len(self._packed) and fits:
            self._packed += chunk.chunk
        return bytes(self._packed) if len(self._packed) == self._bytes_total else None
