"""A way through a third node: bytes between two members that can't reach each other.

Each end does its own TLS and greeting over the stream, so the node in between sees neither words
nor keys; it only passes frames on, from a link of its own to another, and keeps nothing.
"""

from collections import deque
from collections.abc import Callable

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from node.io import clock
from node.io.wakeup import Wakeup
from node.model.ids import NodeId
from node.model.machine import Address
from node.wire.message import Relayed

STREAMS_MAX = 64
"""Ends at this node; further ones are refused."""
CHUNK_BYTES = 16 * 1024
WINDOW_BYTES = 256 * 1024
"""On its way in one direction of one stream; beyond it the sender waits."""
_ID_CHARACTERS = 16
RELAYED = Address("relay", 0)
"""Stands where a link has no address: nobody can be dialled there."""

Send = Callable[[NodeId, Relayed], bool]
Key = tuple[NodeId, NodeId, str]


class RelayStream(ByteStream):
    """One end. Its bytes arrive in order, since both links that carry it do so."""

    def __init__(self, relay: "Relay", via: NodeId, peer: NodeId, stream: str) -> None:
        self.via = via
        self.peer = peer
        self._relay = relay
        self._stream = stream
        self._received: deque[bytes] = deque()
        self._received_bytes = 0
        self._consumed_bytes = 0
        self._room_bytes = WINDOW_BYTES
        self._is_over = False
        self._readable = Wakeup()
        self._writable = Wakeup()

    @property
    def key(self) -> Key:
        """What the messages of this stream are told by."""
        return (self.via, self.peer, self._stream)

    @property
    def waiting_bytes(self) -> int:
        """What has come and was not read yet; at most a window."""
        return self._received_bytes

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """The next bytes.

        Raises:
            EndOfStream: the other end has closed, or there is no way to it any more.
        """
        await anyio.lowlevel.checkpoint()
        while not self._received:
            if self._is_over:
                raise anyio.EndOfStream
            await self._readable.wait(None)
        chunk = self._received.popleft()
        if len(chunk) > max_bytes:
            self._received.appendleft(chunk[max_bytes:])
            chunk = chunk[:max_bytes]
        self._received_bytes -= len(chunk)
        self._consumed_bytes += len(chunk)
        if self._consumed_bytes >= WINDOW_BYTES // 2:
            self._say("credit", count=self._consumed_bytes)
            self._consumed_bytes = 0
        return chunk

    async def send(self, item: bytes) -> None:
        """Send bytes, waiting while too many are on their way.

        Raises:
            BrokenResourceError: the stream is over.
        """
        await anyio.lowlevel.checkpoint()
        data = memoryview(item)
        while data:
            if self._is_over:
                raise anyio.BrokenResourceError
            if self._room_bytes <= 0:
                await self._writable.wait(None)
                continue
            chunk = bytes(data[: min(CHUNK_BYTES, self._room_bytes)])
            if not self._say("data", chunk):
                self.end()
                raise anyio.BrokenResourceError
            data = data[len(chunk) :]
            self._room_bytes -= len(chunk)

    async def send_eof(self) -> None:
        """Close: half a stream is of no use here."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close, and tell the other end."""
        if not self._is_over:
            self._say("close")
            self.end()
        await anyio.lowlevel.checkpoint()

    def refuse(self) -> None:
        """Close at once: there is no room for it here."""
        self._say("close")
        self.end()

    def take(self, message: Relayed) -> None:
        """What came for this end."""
        match message.kind:
            case "data" if not message.data:
                return
            case "data":
                self._received_bytes += len(message.data)
                if self._received_bytes > WINDOW_BYTES:
                    self._say("close")
                    self.end()  # it does not keep to the window
                    return
                self._received.append(message.data)
                self._readable.ring()
            case "credit":
                self._room_bytes = min(WINDOW_BYTES, self._room_bytes + max(0, message.count))
                self._writable.ring()
            case _:
                self.end()

    def end(self) -> None:
        """Nothing goes or comes any more, but what has come may still be read."""
        self._is_over = True
        self._relay.forget(self)
        self._readable.ring()
        self._writable.ring()

    def _say(self, kind: str, data: bytes = b"", count: int = 0) -> bool:
        return self._relay.say(self.via, self.peer, self._stream, kind, data, count)


class Relay:
    """The ends at this node, and what it passes on for others."""

    def __init__(
        self, own: NodeId, send: Send, pass_on: Send, is_member: Callable[[NodeId], bool]
    ) -> None:
        """`pass_on` sends what is another's, and refuses before that costs this node anything."""
        self._own = own
        self._send = send
        self._pass_on = pass_on
        self._is_member = is_member
        self._streams: dict[Key, RelayStream] = {}
        self.on_open: Callable[[RelayStream], None] | None = None
        """Called with a stream that another member has opened."""

    def open(self, via: NodeId, peer: NodeId) -> RelayStream | None:
        """A stream to a member through another; None where it can't be asked for."""
        if len(self._streams) >= STREAMS_MAX:
            return None
        stream = RelayStream(self, via, peer, clock.random_hex(_ID_CHARACTERS))
        self._streams[stream.key] = stream
        if not self.say(*stream.key, "open"):
            stream.end()
            return None
        return stream

    def take(self, sender: NodeId, message: Relayed) -> None:
        """A message over the link with `sender`: for this node, or to be passed on one hop."""
        if message.target != self._own:
            # Only for the one that it came from, and for a member: never any further.
            is_honest = message.source == sender and self._is_member(message.target)
            if (
                not (is_honest and self._pass_on(message.target, message))
                and message.kind != "close"
            ):
                self._refuse(sender, message)
            return
        key = (sender, message.source, message.stream)
        stream = self._streams.get(key)
        if stream is not None:
            stream.take(message)
        elif message.kind == "open" and self._may_open(message):
            stream = self._streams[key] = RelayStream(self, sender, message.source, message.stream)
            assert self.on_open is not None, "it may open"
            self.on_open(stream)
        elif message.kind != "close":
            self.say(*key, "close")

    def link_down(self, via: NodeId) -> None:
        """Nothing comes through that node any more."""
        for stream in [one for one in self._streams.values() if one.via == via]:
            stream.end()

    def forget(self, stream: RelayStream) -> None:
        """The stream is over."""
        if self._streams.get(stream.key) is stream:
            del self._streams[stream.key]

    def say(
        self, via: NodeId, peer: NodeId, stream: str, kind: str, data: bytes = b"", count: int = 0
    ) -> bool:
        """Send a message of a stream on its way; False where there is none."""
        return self._send(
            via,
            Relayed(
                source=self._own, target=peer, stream=stream, kind=kind, data=data, count=count
            ),
        )

    def _may_open(self, message: Relayed) -> bool:
        return (
            self.on_open is not None
            and len(self._streams) < STREAMS_MAX
            and self._is_member(message.source)
        )

    def _refuse(self, sender: NodeId, message: Relayed) -> None:
        """Tell the sender, in the name of the one that it can't reach, that there is no way."""
        self._send(
            sender,
            Relayed(
                source=message.target, target=message.source, stream=message.stream, kind="close"
            ),
        )
