"""The links of this node, one per peer: which connection survives, and what is told of each."""

from collections.abc import Awaitable, Callable, Mapping

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from node.core.peer_table import SOURCE_EXCHANGE, HeardTable, PeerTable
from node.io import clock
from node.io.identity import is_node_id
from node.io.interfaces import Interface, without_scope
from node.io.mesh.channel import Channel
from node.io.mesh.copy_stream import CopyStream
from node.io.mesh.event import MeshEvent, PeerDown, PeerMessage, PeerUp, Received
from node.io.mesh.greeting import GreetingStream
from node.io.mesh.limits import MeshLimits
from node.io.mesh.link import Link, LinkFacts
from node.io.mesh.outbox import Outbox
from node.io.mesh.relay import Relay
from node.io.mesh.standing import Standing
from node.io.wakeup import Wakeup
from node.log import logger
from node.model.errors import Failure
from node.model.ids import NodeId, short
from node.model.machine import Address
from node.model.register import LinkRecord
from node.wire.codec import Codec
from node.wire.frame import FrameError
from node.wire.handshake import Bearing, printable_failure
from node.wire.message import AddressesKnown, Relayed

ADDRESSES_PER_MESSAGE = 64
ADOPTABLE_MAX = 64
CLOCK_SKEW_SECONDS_WARN = 30.0
ADOPTABLE_SECONDS = 60.0

OnCopy = Callable[[NodeId, CopyStream], Awaitable[None]]
"""Serves copies of files over a connection, until it ends, and closes it."""
OnIntroduced = Callable[[Mapping[NodeId, tuple[Address, ...]]], None]

_log = logger("mesh")


class Links:
    """Shared by the side that dials and the side that listens; everything runs on one loop."""

    def __init__(
        self,
        standing: Standing,
        table: PeerTable,
        limits: MeshLimits,
        events: MemoryObjectSendStream[MeshEvent],
    ) -> None:
        self.standing = standing
        self.table = table
        self.limits = limits
        self.heard = HeardTable()
        self.codec = Codec()
        self.interfaces: tuple[Interface, ...] = ()
        self.bell = Wakeup()
        """Rung when there may be something to dial."""
        self.greeting: set[NodeId] = set()
        """Peers that this node is greeting, as the one that dialled."""
        self.on_introduced: OnIntroduced | None = None
        self.on_copy: OnCopy | None = None
        self.relay = Relay(standing.node, self.send, self._pass_on, table.is_admitted)
        self._events = events
        self._links: dict[NodeId, Link] = {}
        self._failures: dict[NodeId, tuple[Address, Failure]] = {}
        self._unreached: dict[Address, LinkRecord] = {}
        self._adoptable: dict[NodeId, tuple[Address, float]] = {}
        self._told_refused: set[NodeId] = set()

    def get(self, peer: NodeId) -> Link | None:
        """The link with a peer, where one stands."""
        link = self._links.get(peer)
        return link if link is not None and link.is_open else None

    def open_links(self) -> list[Link]:
        """Every link that stands."""
        return [link for link in self._links.values() if link.is_open]

    def send(self, peer: NodeId, message: PeerMessage) -> bool:
        """Queue a message; False where it can't go."""
        link = self._links.get(peer)
        if link is None:
            return False
        try:
            return link.send(message)
        except FrameError as error:
            _log.error("%s to %s not sent: %s", type(message).__name__, short(peer), error)
            return False

    def _pass_on(self, peer: NodeId, message: Relayed) -> bool:
        """Send what is another's: over a direct link only, and while that has ample room."""
        link = self._links.get(peer)
        if link is None or link.facts.via:
            return False
        try:
            return link.pass_on(message)
        except FrameError as error:
            _log.debug("not passed on to %s: %s", short(peer), error)
            return False

    def records(self) -> tuple[LinkRecord, ...]:
        """Every wanted peer: its link, or why there is none."""
        return tuple(self._record(peer) for peer in self.table.peers())

    def cut_unwanted(self) -> None:
        """End the links with everybody who is no member any more."""
        for peer, link in self._links.items():
            if not self.table.is_admitted(peer):
                link.end("not a member of the cluster any more")

    def cut_all(self, reason: str) -> None:
        """End every link."""
        for link in self._links.values():
            link.end(reason)

    def note_failure(self, peer: NodeId, address: Address, failure: Failure) -> None:
        """A peer was not reached, or one side wants no link; shown until there is one."""
        if self.table.is_admitted(peer):
            if self.get(peer) is None:
                self._failures[peer] = (address, failure)
        elif failure.code not in ("already_linked", "unreachable", "timeout", "refused"):
            self.heard.record(peer, address, failure, clock.monotonic(), clock.wall())

    def note_refusal(self, peer: NodeId, address: Address, failure: Failure) -> None:
        """The same, in the words of the peer."""
        self.note_failure(peer, address, printable_failure(failure))

    def note_unreached(self, address: Address, failure: Failure | None) -> None:
        """An address that a person named was not reached, or (None) was."""
        if failure is None:
            self._unreached.pop(address, None)
        elif self.table.is_asked(address):
            self._unreached[address] = LinkRecord(
                peer=NodeId(""), address=address, up=False, failure=failure
            )

    def heard_records(self) -> tuple[LinkRecord, ...]:
        """Nodes that this node has no business with, then named addresses that don't answer."""
        return (*self.heard.records(clock.monotonic()), *self._unreached.values())

    def note_open(self, peer: NodeId, address: Address, bearing: Bearing) -> None:
        """A node of another cluster was met: it may be one to adopt."""
        self._adoptable.pop(peer, None)
        if self.standing.would_adopt(bearing):
            self._adoptable[peer] = (address, clock.monotonic())
            while len(self._adoptable) > ADOPTABLE_MAX:
                del self._adoptable[next(iter(self._adoptable))]

    def where_to_join(self) -> Address | None:
        """Where the latest node to adopt was met, if that was lately."""
        if not self._adoptable or self.table.peers():
            return None
        address, met_at = next(reversed(self._adoptable.values()))
        return address if clock.monotonic() - met_at < ADOPTABLE_SECONDS else None

    def forget_strangers(self) -> None:
        """This node has changed its cluster: what was heard holds no longer."""
        self.heard.clear()
        self._adoptable.clear()
        self._failures.clear()

    def is_refusal_news(self, peer: NodeId) -> bool:
        """Whether the owner still has to be told that the peer's address refuses."""
        return peer not in self._told_refused and self.get(peer) is None

    async def tell_refused(self, peer: NodeId, address: Address) -> None:
        """Nothing listens where the peer was."""
        if self.is_refusal_news(peer):
            self._told_refused.add(peer)
            reason = f"{address} refuses: nothing listens there"
            await self.deliver(PeerDown(peer=peer, refused=True, reason=reason))

    async def deliver(self, event: MeshEvent) -> None:
        """Hand an event to the owner, waiting while it has too many."""
        try:
            self._events.send_nowait(event)
        except anyio.WouldBlock:
            await self._events.send(event)

    async def contend(self, facts: LinkFacts) -> Failure | None:
        """Whether a new, proved connection may become the link; None where it may.

        Both ends come to the same result: of two directions the one dialled by the lower id stays;
        of one direction the later. A link that does not answer makes room in any case.
        """
        link = self.get(facts.peer)
        if link is None:
            return None
        is_same_process = link.facts.process == facts.process
        if is_same_process and link.facts.via and not facts.via:
            return None  # a direct way is better than one through another node
        if is_same_process and bool(link.facts.via) == bool(facts.via):
            is_by_lower = facts.is_dialled == (self.standing.node < facts.peer)
            if link.facts.is_dialled == facts.is_dialled or is_by_lower:
                return None
        if not await link.probe():
            return None
        if is_same_process:
            return Failure(code="already_linked", message="there is a link already")
        return Failure(
            code="duplicate_id",
            message=f"another process with the id {short(facts.peer)} has a link from"
            f" {link.facts.address}: a state directory was copied",
            remedy="give the copy a new identity: stop it, remove `identity` from its state"
            " directory",
            node=self.standing.name,
        )

    def make_link(self, facts: LinkFacts, wire: GreetingStream) -> Link:
        """A link over a greeted connection; `run` must follow."""
        return Link(facts, self._control_channel(wire), self.codec)

    async def run(self, link: Link) -> None:
        """Be the link with its peer until it ends, in place of the one before."""
        peer, address = link.facts.peer, link.facts.address
        previous = self._links.get(peer)
        self._links[peer] = link
        flush = True
        try:
            if previous is not None:
                previous.end("a newer connection took its place")
                await previous.wait_over()
            if self._links.get(peer) is link and link.is_open:
                flush = await self._run_in_place(link)
        finally:
            link.over()
            if self._links.get(peer) is link:
                del self._links[peer]
                self.table.lost(peer, clock.monotonic())
                self.bell.ring()
            _log.debug("connection with %s at %s closed", short(peer), address)
            await link.close(flush=flush)

    async def run_bulk(self, link: Link, wire: GreetingStream) -> None:
        """Carry bulk for a link over a second connection, until it or the link ends."""
        limits = self.limits
        outbox = Outbox(self.codec, limits.bulk_frames_max, limits.control_bytes_max, 0)
        channel = Channel(wire.stream, wire.reader, self.codec, limits, outbox)
        await link.run_bulk(channel, lambda message: self._receive(link, message))

    def _control_channel(self, wire: GreetingStream) -> Channel:
        limits = self.limits
        outbox = Outbox(
            self.codec, limits.control_frames_max, limits.control_bytes_max, limits.registers_max
        )
        return Channel(wire.stream, wire.reader, self.codec, limits, outbox)

    async def _run_in_place(self, link: Link) -> bool:
        facts = link.facts
        self._failures.pop(facts.peer, None)
        self._told_refused.discard(facts.peer)
        self.heard.forget(facts.peer)
        self.table.linked(facts.peer, None if facts.via else facts.address)
        skew = facts.clock_skew_seconds
        if skew is not None and abs(skew) > CLOCK_SKEW_SECONDS_WARN:
            side = "ahead of" if skew > 0 else "behind"
            _log.warning("the clock of %s is %.0f s %s this one's", facts.name, abs(skew), side)
        await self.deliver(
            PeerUp(peer=facts.peer, address=facts.address, name=facts.name, version=facts.version)
        )
        _log.debug("link with %s (%s) at %s", facts.name, short(facts.peer), facts.address)
        self._exchange_addresses(facts)
        reason = await link.run(lambda message: self._receive(link, message))
        _log.debug("link with %s (%s) ended: %s", facts.name, short(facts.peer), reason)
        self.relay.link_down(facts.peer)
        await self.deliver(PeerDown(peer=facts.peer, refused=False, reason=reason))
        return False

    async def _receive(self, link: Link, message: PeerMessage) -> None:
        if isinstance(message, Relayed):
            self.relay.take(link.facts.peer, message)
            return
        if isinstance(message, AddressesKnown):
            self._learn(message)
        if link.is_open:
            await self.deliver(Received(link.facts.peer, message))

    def _exchange_addresses(self, facts: LinkFacts) -> None:
        """Tell the new peer where the others are, and the others where the new peer is."""
        known = [
            (str(other), without_scope(address))
            for other in self.table.peers()
            if other != facts.peer and (address := self.table.proved_address(other)) is not None
        ]
        if known:
            self.send(facts.peer, AddressesKnown(addresses=tuple(known[:ADDRESSES_PER_MESSAGE])))
        if facts.via:
            return
        news = AddressesKnown(addresses=((str(facts.peer), without_scope(facts.address)),))
        for other in list(self._links):
            if other != facts.peer:
                self.send(other, news)

    def _learn(self, message: AddressesKnown) -> None:
        now = clock.monotonic()
        if self.on_introduced is not None:
            self.on_introduced(
                {
                    NodeId(node): (address,)
                    for node, address in message.addresses[:ADDRESSES_PER_MESSAGE]
                    if is_node_id(node) and not self.table.is_admitted(NodeId(node))
                }
            )
        for node, address in message.addresses[:ADDRESSES_PER_MESSAGE]:
            if self.table.is_admitted(NodeId(node)):
                self.table.add_candidate(NodeId(node), address, SOURCE_EXCHANGE, now)
        self.bell.ring()

    def _record(self, peer: NodeId) -> LinkRecord:
        link = self.get(peer)
        if link is not None:
            return link.record()
        address, failure = self._failures.get(peer, (None, None))
        if failure is None:
            failure = Failure(
                code="not_tried", message=f"{short(peer)} was not dialled yet: no link so far"
            )
        return LinkRecord(
            peer=peer,
            address=address or next(iter(self.table.addresses(peer)), Address("", 0)),
            up=False,
            failure=failure,
        )
