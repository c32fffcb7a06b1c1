"""Streams through a third node: in order, bounded, and only for those who have a link with it."""

from collections import deque
from typing import cast

import anyio
import pytest
from anyio.abc import ByteStream

from node.core.peer_table import PeerTable
from node.io.mesh.channel import Channel
from node.io.mesh.event import MeshEvent
from node.io.mesh.limits import MeshLimits
from node.io.mesh.link import Link, LinkFacts
from node.io.mesh.links import Links
from node.io.mesh.outbox import Outbox
from node.io.mesh.relay import CHUNK_BYTES, STREAMS_MAX, WINDOW_BYTES, Relay, RelayStream
from node.io.mesh.standing import Standing
from node.model.ids import NodeId
from node.model.machine import Address
from node.wire.codec import Codec
from node.wire.frame import FrameReader
from node.wire.message import Leaving, Relayed

ONE, TWO, MIDDLE, STRANGER = (NodeId(letter * 52) for letter in "12ms")


class Wires:
    """Relays of three nodes; the first two have a link with the third only."""

    def __init__(self) -> None:
        self.opened: list[RelayStream] = []
        self.down: set[NodeId] = set()
        self.passed_on: list[Relayed] = []
        self._waiting: deque[tuple[NodeId, NodeId, Relayed]] = deque()
        self._is_delivering = False
        self.relays = {node: self._relay(node) for node in (ONE, TWO, MIDDLE)}
        self.relays[TWO].on_open = self.opened.append

    def _relay(self, own: NodeId) -> Relay:
        def send(peer: NodeId, message: Relayed) -> bool:
            if MIDDLE not in (own, peer) or peer in self.down or peer not in self.relays:
                return False
            if own == MIDDLE:
                self.passed_on.append(message)
            self._waiting.append((own, peer, message))
            self._deliver()
            return True

        return Relay(own, send, send, lambda node: node in (ONE, TWO, MIDDLE))

    def _deliver(self) -> None:
        if self._is_delivering:
            return
        self._is_delivering = True
        while self._waiting:
            sender, receiver, message = self._waiting.popleft()
            self.relays[receiver].take(sender, message)
        self._is_delivering = False

    def pair(self) -> tuple[RelayStream, RelayStream]:
        near = self.relays[ONE].open(MIDDLE, TWO)
        assert near is not None
        return near, self.opened[-1]


async def read(stream: RelayStream, count: int) -> bytes:
    received = b""
    with anyio.fail_after(5):
        while len(received) < count:
            received += await stream.receive(7000)
    return received


async def test_bytes_arrive_in_order_in_both_directions():
    near, far = Wires().pair()
    assert (far.via, far.peer) == (MIDDLE, ONE)
    words = bytes(range(256)) * 3000  # three windows
    async with anyio.create_task_group() as group:
        group.start_soon(near.send, words)
        assert await read(far, len(words)) == words
    await far.send(b"back")
    assert await read(near, 4) == b"back"


async def test_a_sender_waits_once_a_window_is_on_its_way():
    near, far = Wires().pair()
    async with anyio.create_task_group() as group:
        group.start_soon(near.send, bytes(2 * WINDOW_BYTES))
        await anyio.sleep(0.05)
        assert far.waiting_bytes == WINDOW_BYTES
        assert len(await read(far, 2 * WINDOW_BYTES)) == 2 * WINDOW_BYTES


async def test_one_that_does_not_keep_to_the_window_is_cut_off():
    wires = Wires()
    near, far = wires.pair()
    for _ in range(WINDOW_BYTES // CHUNK_BYTES + 1):
        wires.relays[ONE].say(*near.key, "data", bytes(CHUNK_BYTES))
    with pytest.raises(anyio.BrokenResourceError):
        await far.send(b"x")
    with pytest.raises(anyio.BrokenResourceError):
        await near.send(b"x")


async def test_the_end_of_one_side_and_of_the_link_between_ends_the_stream():
    wires = Wires()
    near, far = wires.pair()
    await near.send(b"last")
    await near.aclose()
    assert await far.receive() == b"last"
    with pytest.raises(anyio.EndOfStream):
        await far.receive()
    near, far = wires.pair()
    wires.relays[ONE].link_down(MIDDLE)
    with pytest.raises(anyio.EndOfStream):
        await near.receive()


async def test_without_a_way_on_the_stream_ends_at_once():
    wires = Wires()
    wires.down.add(TWO)
    stream = wires.relays[ONE].open(MIDDLE, TWO)
    assert stream is not None
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()
    wires.down.add(MIDDLE)
    assert wires.relays[ONE].open(MIDDLE, TWO) is None


async def test_nothing_is_passed_on_under_another_name_or_to_a_stranger():
    wires = Wires()
    forged = Relayed(source=TWO, target=ONE, stream="s", kind="open")
    wires.relays[MIDDLE].take(STRANGER, forged)
    wires.relays[MIDDLE].take(ONE, Relayed(source=ONE, target=STRANGER, stream="s", kind="open"))
    assert [one.kind for one in wires.passed_on] == ["close"]
    wires.relays[TWO].take(MIDDLE, Relayed(source=STRANGER, target=TWO, stream="s", kind="open"))
    assert wires.opened == []


async def test_streams_are_bounded():
    wires = Wires()
    for _ in range(STREAMS_MAX):
        assert wires.relays[ONE].open(MIDDLE, TWO) is not None
    assert wires.relays[ONE].open(MIDDLE, TWO) is None
    assert len(wires.opened) == STREAMS_MAX


async def test_nothing_is_kept_of_chunks_without_a_byte():
    wires = Wires()
    near, far = wires.pair()
    for _ in range(1000):
        wires.relays[ONE].say(*near.key, "data", b"")
    wires.relays[ONE].say(*near.key, "data", b"x")
    assert await far.receive() == b"x"


def link_with(peer: NodeId, limits: MeshLimits, via: NodeId | None = None) -> Link:
    """A link whose peer reads nothing."""
    facts = LinkFacts(
        peer=peer,
        name="peer",
        version="",
        process="p",
        address=Address("10.0.0.1", 1),
        is_dialled=True,
        medium="",
        via=via or NodeId(""),
    )
    outbox = Outbox(Codec(), limits.control_frames_max, limits.control_bytes_max, 0)
    stream = cast("ByteStream", None)
    return Link(facts, Channel(stream, FrameReader(), Codec(), limits, outbox), Codec())


@pytest.mark.parametrize("size", [0, CHUNK_BYTES])
async def test_what_is_passed_on_for_others_never_costs_a_link_of_ones_own(size: int):
    limits = MeshLimits(control_frames_max=64, control_bytes_max=32 * CHUNK_BYTES)
    events, received = anyio.create_memory_object_stream[MeshEvent](8)
    with events, received:
        table = PeerTable(MIDDLE)
        table.set_admitted({ONE: (), TWO: ()}, 0.0)
        links = Links(Standing(MIDDLE, "process", "middle", "invite", "1"), table, limits, events)
        link = links._links[TWO] = link_with(TWO, limits)  # pyright: ignore[reportPrivateUsage]
        for _ in range(100):
            flood = Relayed(source=ONE, target=TWO, stream="s", kind="data", data=bytes(size))
            links.relay.take(ONE, flood)
        assert link.is_open
        assert links.send(TWO, Leaving(reason="still goes"))


async def test_a_way_through_a_third_node_is_no_way_for_a_fourth():
    limits = MeshLimits()
    events, received = anyio.create_memory_object_stream[MeshEvent](8)
    with events, received:
        table = PeerTable(MIDDLE)
        table.set_admitted({ONE: (), TWO: ()}, 0.0)
        links = Links(Standing(MIDDLE, "process", "middle", "invite", "1"), table, limits, events)
        known = links._links  # pyright: ignore[reportPrivateUsage]
        known[ONE] = link_with(ONE, limits)
        known[TWO] = link_with(TWO, limits, via=ONE)
        passed_on = Relayed(source=ONE, target=TWO, stream="s", kind="open")
        links.relay.take(ONE, passed_on)
        waiting = known[TWO]._control._outbox  # pyright: ignore[reportPrivateUsage]
        assert waiting.bytes_waiting == 0
