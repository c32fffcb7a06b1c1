"""Token streams from the node of rank 0 to the node that took the request, point to point.

Items are numbered without a gap. The sender keeps what the reader has not consumed, a window at
most, so that a link that comes back goes on where it was: no token is lost or shown twice.
"""

import collections
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import anyio
import msgspec
from anyio.abc import TaskGroup

from node.io import clock
from node.io.wakeup import Wakeup
from node.log import logger
from node.model.errors import ExoctlError, Failure
from node.model.ids import NodeId, RequestId
from node.model.request import Failed, Finished, GenerationItem, GenerationRequest
from node.wire.frame import FRAME_BYTES_MAX
from node.wire.message import (
    STREAM_WINDOW,
    ServiceMessage,
    StreamCancelled,
    StreamClosed,
    StreamCredit,
    StreamItems,
    StreamOpened,
)
from node.wire.surface import kind_of

LINK_LOST_SECONDS = 5.0
"""How long a stream outlives its link before it ends with an error."""
SILENCE_SECONDS_MAX = 600.0
"""A stream without any item for this long is given up."""
LINGER_SECONDS = 10.0
"""How long a finished stream's last items are kept for a reader whose link is down."""
SERVED_MAX = 512
"""Streams served to other nodes at once; further ones are refused."""
CREDIT_EVERY = STREAM_WINDOW // 4
REQUEST_BYTES_MAX = FRAME_BYTES_MAX - 4096
"""Of a request that goes to another node: it goes in one frame."""

_log = logger("streams")

StreamMessage = StreamOpened | StreamItems | StreamCredit | StreamCancelled | StreamClosed
Serve = Callable[[GenerationRequest], AsyncGenerator[GenerationItem, None]]
Send = Callable[[NodeId, ServiceMessage], bool]
Cancel = Callable[[RequestId], object]


def failed(code: str, message: str, remedy: str = "", kind: str = "ExoctlError") -> Failed:
    """The last item of a stream that could not go on."""
    return Failed(kind=kind, failure=Failure(code=code, message=message, remedy=remedy))


class _Incoming:
    """The reader's end."""

    def __init__(self, target: NodeId, request: GenerationRequest) -> None:
        self.target = target
        self.request = request
        self.next_number = 0
        self.consumed = -1
        self.credited = -1
        self.link_lost_at: float | None = None
        self.send, self.receive = anyio.create_memory_object_stream[GenerationItem](
            2 * STREAM_WINDOW
        )

    def push(self, item: GenerationItem) -> None:
        """Hand an item to the reader; past the window the sender has broken its word."""
        try:
            self.send.send_nowait(item)
        except anyio.WouldBlock:
            self.fail(failed("stream_overrun", "the stream's sender ignored its window"))
        except anyio.BrokenResourceError:
            return
        else:
            self.next_number += 1

    def fail(self, item: Failed) -> None:
        """End the stream: what is buffered is dropped in favour of the reason."""
        while True:
            try:
                self.receive.receive_nowait()
            except (anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
                break
        try:
            self.send.send_nowait(item)
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return


class _Served:
    """The sender's end."""

    def __init__(self, peer: NodeId, request: GenerationRequest) -> None:
        self.peer = peer
        self.request = request
        self.pending: collections.deque[tuple[int, GenerationItem]] = collections.deque()
        self.next_number = 0
        self.wakeup = Wakeup()
        self.scope = anyio.CancelScope()
        self.reader_gone = False
        self.ended_at: float | None = None
        self.link_lost_at: float | None = None

    def consumed(self, number: int) -> None:
        """Forget what the reader has."""
        while self.pending and self.pending[0][0] <= number:
            self.pending.popleft()
        self.wakeup.ring()


class Streams:
    """Both ends of every stream of this node; made once, no session touches it."""

    def __init__(self, tasks: TaskGroup, send: Send, serve: Serve, cancel: Cancel) -> None:
        """`serve` generates on a runner of this node; `cancel` ends what this node generates or
        has taken.
        """
        self._tasks = tasks
        self._send = send
        self._serve = serve
        self._cancel = cancel
        self._incoming: dict[RequestId, _Incoming] = {}
        self._served: dict[RequestId, _Served] = {}
        self._lost_at: dict[NodeId, float] = {}
        """When the link with a peer ended that has none now."""

    @property
    def open_count(self) -> int:
        """Streams that are read or served now."""
        return len(self._incoming) + len(self._served)

    async def read(
        self, target: NodeId, request: GenerationRequest
    ) -> AsyncGenerator[GenerationItem, None]:
        """Have `target` generate; yields until `Finished` or `Failed`. Closing it cancels there.

        A link that ended a moment ago is waited for, as in the middle of a stream.
        """
        size = len(msgspec.msgpack.encode(request))
        if size > REQUEST_BYTES_MAX:
            yield failed(
                "request_too_large",
                f"the request has {size:,} bytes; at most {REQUEST_BYTES_MAX:,} go to another node",
                "ask the node whose layers are the first, or shorten the prompt",
                kind="UsageError",
            )
            return
        incoming = _Incoming(target, request)
        self._incoming[request.id] = incoming
        ended = False
        try:
            if not self._send(target, StreamOpened(request=request)) and not self._waits(incoming):
                ended = True
                yield failed(
                    "node_unreachable", f"no link to the node that runs it ({target[:12]})"
                )
                return
            while not ended:
                item = await self._next_item(incoming)
                incoming.consumed += 1
                ended = isinstance(item, Finished | Failed)
                if ended or incoming.consumed - incoming.credited >= CREDIT_EVERY:
                    incoming.credited = incoming.consumed
                    self._send(target, StreamCredit(request=request.id, consumed=incoming.consumed))
                yield item
        finally:
            del self._incoming[request.id]
            incoming.send.close()
            incoming.receive.close()
            if not ended:
                self._send(target, StreamClosed(request=request.id))

    def _waits(self, incoming: _Incoming) -> bool:
        """Whether the link was there lately, so that it may soon be again."""
        lost_at = self._lost_at.get(incoming.target)
        if lost_at is None or clock.monotonic() - lost_at > LINK_LOST_SECONDS:
            return False
        incoming.link_lost_at = lost_at
        return True

    def cancel(self, target: NodeId, request: RequestId) -> None:
        """Have `target` end a generation that it runs or has taken, with a last item."""
        self._send(target, StreamCancelled(request=request))

    async def _next_item(self, incoming: _Incoming) -> GenerationItem:
        with anyio.move_on_after(SILENCE_SECONDS_MAX):
            return await incoming.receive.receive()
        return failed(
            "stream_silent",
            f"nothing came from the runner for {SILENCE_SECONDS_MAX:.0f} s",
            kind="TimeoutExpiredError",
        )

    # -- what the mesh brings ----------------------------------------------------------------------

    def on_message(self, peer: NodeId, message: StreamMessage) -> None:
        """Take a message of a stream; one that fits nothing here is ignored."""
        match message:
            case StreamOpened(request=request):
                self._open(peer, request)
            case StreamItems():
                self._take_items(peer, message)
            case StreamCredit():
                self._take_credit(peer, message)
            case StreamCancelled(request=request_id):
                self._cancel(request_id)
            case StreamClosed(request=request_id):
                served = self._served.get(request_id)
                if served is not None and served.peer == peer:
                    served.reader_gone = True
                    served.scope.cancel()

    def _open(self, peer: NodeId, request: GenerationRequest) -> None:
        if request.id in self._served:
            return
        if len(self._served) >= SERVED_MAX:
            refusal = failed(
                "too_many_streams", f"this node serves {SERVED_MAX} streams already",
                "try again shortly", kind="BusyError",
            )  # fmt: skip
            self._send(peer, StreamItems(request=request.id, first=0, items=(refusal,)))
            return
        served = _Served(peer, request)
        self._served[request.id] = served
        self._tasks.start_soon(self._serve_one, served)

    def _take_items(self, peer: NodeId, message: StreamItems) -> None:
        incoming = self._incoming.get(message.request)
        if incoming is None:
            self._send(peer, StreamClosed(request=message.request))
            return
        if incoming.target != peer:
            return
        fresh = message.items[max(0, incoming.next_number - message.first) :]
        if message.first > incoming.next_number:
            self._send(
                peer,
                StreamCredit(
                    request=message.request, consumed=incoming.next_number - 1, resume=True
                ),
            )
            return
        for item in fresh:
            incoming.push(item)

    def _take_credit(self, peer: NodeId, message: StreamCredit) -> None:
        served = self._served.get(message.request)
        if served is None:
            if message.resume:
                gone = failed("stream_gone", "the node that ran it was restarted meanwhile")
                self._send(
                    peer,
                    StreamItems(request=message.request, first=message.consumed + 1, items=(gone,)),
                )
            return
        if served.peer != peer:
            return
        served.consumed(message.consumed)
        if message.resume:
            served.link_lost_at = None
            for number, item in served.pending:
                self._send(peer, StreamItems(request=message.request, first=number, items=(item,)))

    def on_peer_up(self, peer: NodeId) -> None:
        """A link is there again: go on where each stream was.

        Of a stream without an item yet, the request itself may be lost: it is sent again, and
        ignored where it is known.
        """
        self._lost_at.pop(peer, None)
        for request_id, incoming in self._incoming.items():
            if incoming.target == peer:
                incoming.link_lost_at = None
                if incoming.next_number == 0:
                    self._send(peer, StreamOpened(request=incoming.request))
                self._send(
                    peer,
                    StreamCredit(
                        request=request_id, consumed=incoming.next_number - 1, resume=True
                    ),
                )

    def on_peer_down(self, peer: NodeId) -> None:
        """A link is gone: its streams have a little time to see it again."""
        now = clock.monotonic()
        self._lost_at.setdefault(peer, now)
        for stream in (*self._incoming.values(), *self._served.values()):
            other = stream.target if isinstance(stream, _Incoming) else stream.peer
            if other == peer and stream.link_lost_at is None:
                stream.link_lost_at = now

    def tick(self, now: float) -> None:
        """Once a second: end what waited too long."""
        for incoming in self._incoming.values():
            if (
                incoming.link_lost_at is not None
                and now - incoming.link_lost_at > LINK_LOST_SECONDS
            ):
                incoming.link_lost_at = None
                incoming.fail(
                    failed("node_lost", f"the node that runs it was lost ({incoming.target[:12]})")
                )
        for request_id, served in list(self._served.items()):
            if served.link_lost_at is not None and now - served.link_lost_at > LINK_LOST_SECONDS:
                served.scope.cancel()
            if served.ended_at is not None and (
                not served.pending or now - served.ended_at > LINGER_SECONDS
            ):
                del self._served[request_id]

    # -- serving -----------------------------------------------------------------------------------

    async def _serve_one(self, served: _Served) -> None:
        with served.scope:
            try:
                async with aclosing(self._serve(served.request)) as items:
                    async for item in items:
                        await self._room(served)
                        self._pass_on(served, item)
            except ExoctlError as error:
                self._pass_on(served, Failed(kind=kind_of(error), failure=error.failure))
            except Exception:  # noqa: BLE001 - a mistake of ours in one request must not end the node
                _log.exception("stream %s", served.request.id)
                self._pass_on(
                    served,
                    failed(
                        "internal",
                        "the node made a mistake",
                        "see its log: exoctl logs",
                        kind="InternalError",
                    ),
                )
        if served.scope.cancel_called and not served.reader_gone:
            # A reader whose link came back a moment later would else wait for ever more.
            seconds = f"{LINK_LOST_SECONDS:g} s"
            self._pass_on(
                served, failed("link_lost", f"the link to the reader was lost for {seconds}")
            )
        served.ended_at = clock.monotonic()
        if served.reader_gone:
            _log.info("stream %s was closed by its reader", served.request.id)
            served.pending.clear()

    def _pass_on(self, served: _Served, item: GenerationItem) -> None:
        number = served.next_number
        served.next_number += 1
        served.pending.append((number, item))
        message = StreamItems(request=served.request.id, first=number, items=(item,))
        self._send(served.peer, message)

    async def _room(self, served: _Served) -> None:
        while len(served.pending) >= STREAM_WINDOW:
            await served.wakeup.wait(SILENCE_SECONDS_MAX)
