"""One connection after its greeting: a reader, a writer that joins frames, and a watch."""

import contextlib
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream
from anyio.streams.tls import TLSAttribute

from node.io import clock
from node.io.mesh.event import PeerMessage
from node.io.mesh.limits import MeshLimits
from node.io.mesh.outbox import Outbox
from node.io.wakeup import Wakeup
from node.model.register import Register
from node.wire.codec import Codec, CodecError
from node.wire.frame import FRAME_BYTES_MAX, Frame, FrameError, FrameKind, FrameReader, encode_frame
from node.wire.handshake import HandshakeError, printable

RECEIVE_BYTES = 65_536
ROUND_TRIPS_KEPT = 8
PROBE_BYTES = 60_000
PROBE_PAUSE_SECONDS = 0.001
_MEASUREMENT_BYTES = 8
_PING_BYTES = 8
_REASON_CHARACTERS_MAX = 200

CONNECTION_ERRORS = (
    OSError,  # ssl.SSLError among them
    anyio.EndOfStream,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.BusyResourceError,  # a renegotiating peer makes the reader write
    FrameError,
    CodecError,
    HandshakeError,
)
"""All that a peer or the network may do to a connection."""


OnMessage = Callable[[PeerMessage], Awaitable[None]]


class _ByeError(Exception):
    """The peer says that it closes, and why."""


class Channel:
    """Carries frames both ways until one side or the network ends it."""

    def __init__(
        self,
        stream: ByteStream,
        reader: FrameReader,
        codec: Codec,
        limits: MeshLimits,
        outbox: Outbox,
    ) -> None:
        reader.frame_bytes_max = FRAME_BYTES_MAX
        self._stream = stream
        self._reader = reader
        self._codec = codec
        self._limits = limits
        self._outbox = outbox
        self._bell = Wakeup()
        self._arrived = Wakeup()
        self._measurement = 0
        self._measuring = anyio.Lock()
        self._scope = anyio.CancelScope()
        self._end_reason = ""
        self._heard_at = clock.monotonic()
        self._sending_since: float | None = None
        self._ping_number = 0
        self._ping_at = self._heard_at
        self._is_peer_gone = False
        self._is_handing_over = False
        self._probes: list[Wakeup] = []
        self._round_trips: deque[float] = deque(maxlen=ROUND_TRIPS_KEPT)

    @property
    def rtt_seconds(self) -> float | None:
        """The shortest of the last round trips; None before the first."""
        return min(self._round_trips, default=None)

    @property
    def is_open(self) -> bool:
        """Whether anything put into it may still be sent."""
        return not self._end_reason

    @property
    def has_ample_room(self) -> bool:
        """Whether it is open and less than half of what may wait to be sent does."""
        return self.is_open and self._outbox.is_half_empty

    def put(self, frame: bytes) -> bool:
        """Send a frame soon; False where too much waits already."""
        if not self._outbox.put(frame):
            return False
        self._bell.ring()
        return True

    def put_registers(self, registers: Iterable[Register]) -> None:
        """Send the latest of these when there is room."""
        self._outbox.put_registers(registers)
        self._bell.ring()

    def end(self, reason: str) -> None:
        """Close it; `run` returns with the first reason given."""
        self._end_reason = self._end_reason or reason
        self._scope.cancel()

    async def run(self, on_message: OnMessage) -> str:
        """Carry frames until the end, whose reason is returned; nothing is given on after it."""
        try:
            with self._scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._read, on_message)
                    group.start_soon(self._write)
                    group.start_soon(self._watch)
        finally:
            self._end_reason = self._end_reason or "this node stops"
        return self._end_reason

    async def farewell(self, *, flush: bool) -> None:
        """Close: say why and let the peer close first, so that what was sent arrives.

        Frames that wait go first where `flush`.
        """
        bye = encode_frame(FrameKind.BYE, self._end_reason[:_REASON_CHARACTERS_MAX].encode())
        with anyio.CancelScope(shield=True):
            if not self._is_peer_gone:
                with anyio.move_on_after(self._limits.farewell_seconds):
                    await self._say_goodbye(bye, flush=flush)
            await self.abort()

    async def abort(self) -> None:
        """Close without a word."""
        self.end("closed")
        await close_stream(self._stream)

    async def probe(self) -> bool:
        """Whether the peer answers over this connection now."""
        asked_at, bell = clock.monotonic(), Wakeup()
        self._probes.append(bell)
        self._ping()
        try:
            await bell.wait(self._limits.probe_seconds)
        finally:
            self._probes.remove(bell)
        return self.is_open and self._heard_at > asked_at

    async def measure(self, seconds: float) -> float | None:
        """Fill the connection for this long; bits per second that arrived, None where it ended.

        One at a time: the next waits, as long as one may take. An answer counts for its own alone.
        """
        async with self._measuring:
            return await self._measure(seconds)

    async def _measure(self, seconds: float) -> float | None:
        self._arrived = Wakeup()
        self._measurement += 1
        frame = encode_frame(FrameKind.PROBE, bytes(PROBE_BYTES))
        started_at, sent_bytes = clock.monotonic(), 0
        while clock.monotonic() - started_at < seconds and self.is_open:
            if self.put(frame):
                sent_bytes += len(frame)
                await anyio.lowlevel.checkpoint()
            else:
                await anyio.sleep(PROBE_PAUSE_SECONDS)
        last = encode_frame(
            FrameKind.PROBE_END, self._measurement.to_bytes(_MEASUREMENT_BYTES, "big")
        )
        while not self.put(last) and self.is_open:  # noqa: ASYNC110 - the outbox has no bell
            await anyio.sleep(PROBE_PAUSE_SECONDS)
        if not await self._arrived.wait(self._limits.stall_seconds):
            return None
        return 8 * sent_bytes / (clock.monotonic() - started_at)

    async def _say_goodbye(self, bye: bytes, *, flush: bool) -> None:
        try:
            while flush and (waiting := self._outbox.take(self._limits.cork_bytes)):
                await self._stream.send(waiting)
            await self._stream.send(bye)
            while not any(frame.kind == FrameKind.BYE for frame in self._reader.frames()):
                self._reader.feed(await self._stream.receive(RECEIVE_BYTES))
        except CONNECTION_ERRORS:
            return  # the peer has closed too, or is gone

    async def _read(self, on_message: OnMessage) -> None:
        reader = self._reader
        tls = self._stream.extra(TLSAttribute.ssl_object, None)  # noqa: S610 - anyio's, not Django's
        try:
            while True:
                for frame in reader.frames():
                    await self._take(frame, on_message)
                reader.feed(await self._stream.receive(RECEIVE_BYTES))
                for record in decrypted(tls):
                    reader.feed(record)
                self._heard_at = clock.monotonic()
                for bell in self._probes:
                    bell.ring()
        except _ByeError as bye:
            self._is_peer_gone = True
            self.end(f"the peer closed the link: {bye}")
        except CONNECTION_ERRORS as error:
            self._is_peer_gone = isinstance(error, (anyio.EndOfStream, anyio.BrokenResourceError))
            self.end(describe(error))

    async def _take(self, frame: Frame, on_message: OnMessage) -> None:
        match frame.kind:
            case FrameKind.PING:
                if len(frame.payload) > _PING_BYTES:
                    raise FrameError(f"a ping of {len(frame.payload)} bytes")
                self._outbox.put_urgent("pong", encode_frame(FrameKind.PONG, frame.payload))
                self._bell.ring()
            case FrameKind.PONG:
                self._pong(frame.payload)
            case FrameKind.PROBE:
                pass
            case FrameKind.PROBE_END:
                number = frame.payload[:_MEASUREMENT_BYTES]
                self._outbox.put_urgent("probe", encode_frame(FrameKind.PROBE_ARRIVED, number))
                self._bell.ring()
            case FrameKind.PROBE_ARRIVED:
                if frame.payload == self._measurement.to_bytes(_MEASUREMENT_BYTES, "big"):
                    self._arrived.ring()
            case FrameKind.BYE:
                reason = frame.payload[:_REASON_CHARACTERS_MAX].decode(errors="replace")
                raise _ByeError(printable(reason, _REASON_CHARACTERS_MAX))
            case _:
                message = self._codec.decode(frame)
                if message is not None:
                    self._is_handing_over = True
                    await on_message(message)
                    self._is_handing_over = False

    async def _write(self) -> None:
        try:
            while True:
                # What is taken must be sent: an end that has come is noticed before.
                await anyio.lowlevel.checkpoint_if_cancelled()
                waiting = self._outbox.take(self._limits.cork_bytes)
                if waiting:
                    self._sending_since = clock.monotonic()
                    await self._stream.send(waiting)
                    self._sending_since = None
                else:
                    await self._bell.wait(None)
        except CONNECTION_ERRORS as error:
            self._is_peer_gone = True
            self.end(describe(error))

    async def _watch(self) -> None:
        """Ping, and end a connection over which nothing comes or nothing goes."""
        limits, ticked_at = self._limits, clock.monotonic()
        while True:
            self._ping()
            await anyio.sleep(limits.ping_seconds)
            now = clock.monotonic()
            if now - ticked_at > 2 * limits.ping_seconds or self._is_handing_over:
                # This process was frozen, or its owner is slow: the peer's words wait to be read.
                self._heard_at = now
            ticked_at = now
            if now - self._heard_at > limits.silence_seconds:
                self._is_peer_gone = True
                self.end(f"silent for {now - self._heard_at:.1f} s")
            since = self._sending_since
            if since is not None and now - since > limits.stall_seconds:
                self._is_peer_gone = True
                self.end(f"the peer has taken nothing for {now - since:.1f} s")

    def _ping(self) -> None:
        self._ping_number += 1
        self._ping_at = clock.monotonic()
        payload = self._ping_number.to_bytes(_PING_BYTES, "big")
        self._outbox.put_urgent("ping", encode_frame(FrameKind.PING, payload))
        self._bell.ring()

    def _pong(self, payload: bytes) -> None:
        if int.from_bytes(payload[:_PING_BYTES], "big") == self._ping_number:
            self._round_trips.append(clock.monotonic() - self._ping_at)


def decrypted(tls: ssl.SSLObject | None) -> Iterator[bytes]:
    """What has come beside the one record that a receive gives: a fast sender fills many at once.

    Whatever ends the connection is left to the next receive.
    """
    with contextlib.suppress(ssl.SSLError):
        while tls is not None and (record := tls.read(RECEIVE_BYTES)):
            yield record


async def close_stream(stream: ByteStream) -> None:
    """Close at once, whatever state the stream is in."""
    try:
        await anyio.aclose_forcefully(stream)
    except CONNECTION_ERRORS:
        return


def describe(error: BaseException) -> str:
    """An end of a connection in words."""
    match error:
        case anyio.EndOfStream():
            return "the peer closed the connection without a word"
        case anyio.BrokenResourceError() | anyio.ClosedResourceError():
            cause = error.__cause__
            return f"connection lost: {cause}" if cause else "connection lost"
        case anyio.BusyResourceError():
            return "the peer renegotiates TLS"
        case _:
            return str(error) or type(error).__name__
