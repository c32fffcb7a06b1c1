"""The link with one peer: a control connection, and a bulk connection beside it."""

import msgspec

from node.core.replica.messages import SnapshotChunk
from node.io import clock
from node.io.mesh.channel import Channel, OnMessage
from node.io.mesh.copy_stream import CopyStream
from node.io.mesh.event import PeerMessage
from node.io.wakeup import Wakeup
from node.model.ids import NodeId
from node.model.machine import Address
from node.model.register import LinkRecord
from node.wire.codec import Codec
from node.wire.message import PieceSent, RegistersChanged, Relayed


class LinkFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a link from its greeting on."""

    peer: NodeId
    name: str
    version: str
    process: str
    """Tells a restarted peer from the same one."""
    address: Address
    """Where the peer listens."""
    is_dialled: bool
    """By this node; else the peer dialled."""
    medium: str
    via: NodeId = NodeId("")
    """The member that passes everything on; empty where the link is direct."""
    clock_skew_seconds: float | None = None


class Link:
    """Sends never block; the reader runs in `run`."""

    def __init__(self, facts: LinkFacts, control: Channel, codec: Codec) -> None:
        self.facts = facts
        self._control = control
        self._bulk: Channel | None = None
        self._copies: set[CopyStream] = set()
        self._codec = codec
        self._since = clock.wall()
        self.bits_per_second: float | None = None
        """As last measured."""
        self._is_over = False
        self._over = Wakeup()

    @property
    def is_open(self) -> bool:
        """Whether messages still go."""
        return self._control.is_open

    @property
    def has_bulk(self) -> bool:
        """Whether a bulk connection stands beside the control connection."""
        return self._bulk is not None and self._bulk.is_open

    def record(self) -> LinkRecord:
        """The link as others are told of it."""
        return LinkRecord(
            peer=self.facts.peer,
            address=self.facts.address,
            up=True,
            medium=self.facts.medium,
            rtt_seconds=self._control.rtt_seconds,
            bits_per_second=self.bits_per_second,
            clock_skew_seconds=self.facts.clock_skew_seconds,
            via=self.facts.via,
            since=self._since,
        )

    def send(self, message: PeerMessage) -> bool:
        """Queue a message; False where it can't go.

        A full control queue ends the link: what was lost is told by its fall, and comes again. A
        full bulk queue only refuses. Bytes of models never take the control connection.

        Raises:
            FrameError: the message is longer than a frame may be.
        """
        if not self._control.is_open:
            return False
        if isinstance(message, RegistersChanged):
            self._control.put_registers(message.registers)
            return True
        if isinstance(message, PieceSent):
            bulk = self._bulk
            return bulk is not None and bulk.is_open and bulk.put(self._codec.encode(message))
        frame = self._codec.encode(message)
        if isinstance(message, SnapshotChunk) and self._bulk is not None and self._bulk.is_open:
            return self._bulk.put(frame)
        if self._control.put(frame):
            return True
        self.end("the peer reads too slowly: its queue is full")
        return False

    def pass_on(self, message: Relayed) -> bool:
        """Queue what is another's; False where half of the queue is taken already: what this node
        has to say itself must never find it full.

        Raises:
            FrameError: the message is longer than a frame may be.
        """
        control = self._control
        return control.has_ample_room and control.put(self._codec.encode(message))

    async def probe(self) -> bool:
        """Whether the peer answers over this link now."""
        return await self._control.probe()

    async def measure(self, seconds: float) -> float | None:
        """Fill the bulk connection for this long: bits per second, None where there is none."""
        if self._bulk is None or not self._bulk.is_open:
            return None
        self.bits_per_second = await self._bulk.measure(seconds) or self.bits_per_second
        return self.bits_per_second

    def end(self, reason: str) -> None:
        """Cut the link; `run` returns."""
        self._control.end(reason)

    async def run(self, on_message: OnMessage) -> str:
        """Carry messages until the end; returns why it ended."""
        try:
            return await self._control.run(on_message)
        finally:
            if self._bulk is not None:
                self._bulk.end("the link has ended")
            for copy in self._copies:
                copy.cut()

    async def run_bulk(self, channel: Channel, on_message: OnMessage) -> None:
        """Carry bulk over a second connection until it or the link ends."""
        if not self._control.is_open:
            await channel.abort()
            return
        previous, self._bulk = self._bulk, channel
        if previous is not None:
            previous.end("a newer bulk connection took its place")
        try:
            await channel.run(on_message)
        finally:
            if self._bulk is channel:
                self._bulk = None
            await channel.farewell(flush=False)

    @property
    def copies(self) -> int:
        """Connections for copies of files that stand beside it."""
        return len(self._copies)

    def hold(self, copy: CopyStream) -> None:
        """Let a connection for copies live no longer than the link."""
        self._copies.add(copy)
        copy.on_close = lambda: self._copies.discard(copy)
        if not self.is_open:
            copy.cut()

    def over(self) -> None:
        """Its fall was told: a link that follows may begin."""
        self._is_over = True
        self._over.ring()

    async def wait_over(self) -> None:
        """Return once `over` was called; for one waiter."""
        if not self._is_over:
            await self._over.wait(None)

    async def close(self, *, flush: bool) -> None:
        """Say goodbye and close; what waits goes first where `flush`."""
        await self._control.farewell(flush=flush)
