"""Links between meshes over real TLS on loopback."""

import os
import socket
from pathlib import Path

import anyio
import pytest

from node.core.peer_table import PeerPolicy
from node.core.replica.messages import SnapshotChunk
from node.io.mesh.event import MeshEvent, PeerDown, PeerUp, Received
from node.io.mesh.limits import MeshLimits
from node.io.mesh.mesh import Mesh, MeshSettings
from node.model.errors import ConflictError, UsageError
from node.model.ids import ClusterId, NodeId, RequestId
from node.model.machine import Address
from node.model.register import LinkFigures, Register
from node.model.session import NO_POSITION, NO_SESSION
from node.wire.handshake import Verdict
from node.wire.message import AddressesKnown, Leaving, RegistersChanged, StreamCredit
from tests.fakes.mesh_lab import CLUSTER, LabNode, call, eventually, members, open_lab


def credit(number: int) -> StreamCredit:
    return StreamCredit(request=RequestId("q-1"), consumed=number)


async def receive_credits(node: LabNode, count: int) -> list[int]:
    numbers: list[int] = []
    while len(numbers) < count:
        received = await node.next_of(Received)
        if isinstance(received.message, StreamCredit):
            numbers.append(received.message.consumed)
    return numbers


async def test_two_members_link_and_messages_go_both_ways_in_order(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        await lab.link(one, two)
        for number in range(1000):
            assert one.mesh.send(two.node, credit(number))
            assert two.mesh.send(one.node, credit(-number))
        assert await receive_credits(two, 1000) == list(range(1000))
        assert await receive_credits(one, 1000) == [-number for number in range(1000)]


async def test_three_members_link_each_with_each(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        nodes = [await lab.start(name) for name in ("one", "two", "three")]
        await lab.link(*nodes)
        for node in nodes:
            others = {other.node for other in nodes if other is not node}
            assert {link.peer for link in node.mesh.links() if link.up} == others
            assert all(link.medium == "loopback" for link in node.mesh.links())


async def test_one_address_is_enough_to_find_every_member(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        nodes = [await lab.start(name) for name in ("one", "two", "three")]
        seed = nodes[0]
        for node in nodes:
            node.mesh.set_admitted({other.node: () for other in nodes})
        for node in nodes[1:]:
            node.mesh.add_candidate(None, seed.address, "option")
        for node in nodes:
            peers = {(await node.next_of(PeerUp)).peer for _ in range(2)}
            assert len(peers) == 2


async def test_a_stopped_member_is_told_as_down_then_refused_then_up_again(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        await lab.link(one, two)
        port = two.address.port
        await two.stop()
        down = await one.next_of(PeerDown)
        assert (down.peer, down.refused) == (two.node, False)
        assert "closed" in down.reason
        refused = await one.next_of(PeerDown)
        assert (refused.peer, refused.refused) == (two.node, True)
        assert str(port) in refused.reason
        (record,) = one.mesh.links()
        assert record.failure is not None
        assert record.failure.code == "refused"
        assert not one.mesh.send(two.node, credit(0))
        again = await lab.start("two", port=port)
        again.mesh.set_admitted(members(one, again))
        assert (await one.next_of(PeerUp)).peer == two.node
        assert not any(isinstance(event, PeerDown) and event.refused for event in again.told)


async def test_refusal_is_told_once_while_it_lasts(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one = await lab.start("one")
        gone = lab.identity("gone").node
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        one.mesh.set_admitted({gone: (Address("127.0.0.1", port),)})
        assert await one.next_of(PeerDown) == PeerDown(
            peer=gone, refused=True, reason=f"127.0.0.1:{port} refuses: nothing listens there"
        )
        for _ in range(3):
            one.mesh.network_changed()  # dials at once
            await anyio.sleep(0.05)
        with pytest.raises(anyio.WouldBlock):
            one.mesh.received.receive_nowait()


async def test_what_was_sent_before_a_clean_stop_arrives(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        await lab.link(one, two)
        for number in range(500):
            assert one.mesh.send(two.node, credit(number))
        assert one.mesh.send(two.node, Leaving(reason="quit"))
        await one.stop()
        assert await receive_credits(two, 500) == list(range(500))
        assert (await two.next_of(Received)).message == Leaving(reason="quit")
        assert "this node stops" in (await two.next_of(PeerDown)).reason


async def test_both_dialling_at_once_leaves_exactly_one_link(tmp_path: Path):
    eager = PeerPolicy(higher_waits_seconds=0.0, higher_waits_seconds_at_start=0.0)
    async with open_lab(tmp_path) as lab:
        for attempt in range(15):
            cluster = ClusterId(f"{attempt:032x}")
            one = await lab.start("one", cluster=cluster, policy=eager)
            two = await lab.start("two", cluster=cluster, policy=eager)
            for node in (one, two):
                node.mesh.set_admitted(members(one, two))
            # Whichever connection each side ends up with, it must be the same one.
            for sender, receiver in ((one, two), (two, one)):
                await receiver.next_of(PeerUp)
                await send_until_received(sender, receiver)
            for node in (one, two):
                ups = sum(isinstance(event, PeerUp) for event in node.told)
                downs = sum(isinstance(event, PeerDown) for event in node.told)
                assert ups - downs == 1
            await one.stop()
            await two.stop()


async def send_until_received(sender: LabNode, receiver: LabNode) -> None:
    await eventually(lambda: sender.mesh.send(receiver.node, credit(7)))
    assert await receive_credits(receiver, 1) == [7]


async def test_a_taken_port_is_an_error_that_names_its_owner(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with open_lab(tmp_path) as lab:
            with pytest.raises(ConflictError) as caught:
                await lab.start("one", port=port)
    message = caught.value.failure.message
    assert str(port) in message
    assert f"process {os.getpid()}" in message


async def test_a_host_that_is_not_of_this_machine_is_an_error_that_names_it(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        settings = MeshSettings(name="one", cluster=CLUSTER, bind="192.0.2.77")
        mesh = Mesh(lab.identity("one"), settings)
        with pytest.raises(UsageError, match=r"192\.0\.2\.77"):
            await mesh.run()
        mesh.received.close()


async def test_registers_reach_the_peer_with_their_latest_value_only(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        await lab.link(one, two)
        for sequence in range(1, 5001):
            value = LinkFigures(discovery=str(sequence))
            register = Register(node=one.node, incarnation=1, sequence=sequence, value=value)
            assert one.mesh.send(two.node, RegistersChanged(registers=(register,)))
        seen: list[int] = []
        while not seen or seen[-1] < 5000:
            received = await two.next_of(Received)
            if isinstance(received.message, RegistersChanged):
                seen += [register.sequence for register in received.message.registers]
        assert seen == sorted(set(seen))
        assert len(seen) < 50


async def test_a_full_queue_cuts_the_link_and_both_sides_come_back(tmp_path: Path):
    limits = MeshLimits(control_frames_max=100)
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one", limits=limits), await lab.start("two")
        await lab.link(one, two)
        sent = sum(one.mesh.send(two.node, credit(number)) for number in range(1000))
        assert sent == 100
        assert not one.mesh.send(two.node, credit(0))
        down = await one.next_of(PeerDown)
        assert "queue is full" in down.reason
        await one.next_of(PeerUp)
        await two.next_of(PeerUp)
        await send_until_received(one, two)


async def test_nothing_of_a_cut_link_comes_after_it_was_told(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        await lab.link(one, two)
        for number in range(4000):
            two.mesh.send(one.node, credit(number))
        await one.next_of(Received)
        one.mesh.set_admitted({})
        await one.next_of(PeerDown)
        await two.next_of(PeerDown)
        rest: list[MeshEvent] = []
        with anyio.move_on_after(0.3):
            while True:
                rest.append(await one.next_event())
        assert rest == []


async def test_snapshot_chunks_have_a_connection_of_their_own(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        await lab.link(one, two)
        await eventually(lambda: one.mesh.has_bulk(two.node) and two.mesh.has_bulk(one.node))
        for sender, receiver in ((one, two), (two, one)):
            chunk = SnapshotChunk(CLUSTER, NO_SESSION, NO_POSITION, 0, 65_536, bytes(65_536))
            assert sender.mesh.send(receiver.node, chunk)
            received = await receiver.next_of(Received)
            assert received == Received(sender.node, chunk)


async def test_bulk_does_not_hold_up_control_and_its_full_queue_only_refuses(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        await lab.link(one, two)
        await eventually(lambda: one.mesh.has_bulk(two.node))
        chunk = SnapshotChunk(CLUSTER, NO_SESSION, NO_POSITION, 0, 65_536, bytes(65_536))
        taken = [one.mesh.send(two.node, chunk) for _ in range(200)]
        assert taken.count(True) == 64
        assert one.mesh.send(two.node, credit(1))
        first = await two.next_of(Received)
        assert isinstance(first.message, StreamCredit)


async def test_addresses_from_a_member_are_hints_for_members_only(tmp_path: Path):
    eager = PeerPolicy(higher_waits_seconds=0.0)
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one", policy=eager), await lab.start("two")
        await lab.link(one, two)
        third, stranger = lab.identity("third").node, lab.identity("stranger").node
        one.mesh.set_admitted(members(one, two) | {third: ()})
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = Address("127.0.0.1", unused.getsockname()[1])
        known = ((third, address), (stranger, address), ("x", Address("", -5)))
        two.mesh.send(one.node, AddressesKnown(addresses=known))
        refused = await one.next_of(PeerDown)
        assert (refused.peer, refused.refused) == (third, True)
        assert one.mesh.heard() == ()


async def test_round_trips_are_measured(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        limits = MeshLimits(ping_seconds=0.05)
        one, two = await lab.start("one", limits=limits), await lab.start("two", limits=limits)
        await lab.link(one, two)
        await eventually(lambda: one.mesh.links()[0].rtt_seconds is not None)
        rtt = one.mesh.links()[0].rtt_seconds
        assert rtt is not None
        assert 0 < rtt < 1


async def test_a_silent_link_is_closed(tmp_path: Path):
    limits = MeshLimits(ping_seconds=0.1, silence_seconds=0.3)
    async with open_lab(tmp_path) as lab:
        one = await lab.start("one", limits=limits)
        mute = lab.identity("mute")
        one.mesh.set_admitted({mute.node: ()})
        async with call(one.address, mute) as stranger:
            assert await stranger.greet() == Verdict()
            await one.next_of(PeerUp)
            down = await one.next_of(PeerDown)
            assert "silent for 0." in down.reason


async def test_an_owner_that_is_slow_to_read_does_not_take_its_peer_for_silent(tmp_path: Path):
    limits = MeshLimits(ping_seconds=0.05, silence_seconds=0.2, received_max=2)
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one", limits=limits), await lab.start("two", limits=limits)
        await lab.link(one, two)
        for number in range(50):
            two.mesh.send(one.node, credit(number))
        await anyio.sleep(1.0)  # five times the limit of silence
        assert await receive_credits(one, 50) == list(range(50))
        await send_until_received(two, one)
        assert not any(isinstance(event, PeerDown) for event in [*one.told, *two.told])


async def test_sending_to_nobody_is_refused(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one = await lab.start("one")
        assert not one.mesh.send(NodeId("x" * 52), credit(0))
        one.mesh.set_admitted({NodeId("x" * 52): ()})
        assert not one.mesh.send(NodeId("x" * 52), credit(0))
        (record,) = one.mesh.links()
        assert record.failure is not None
        assert record.failure.code == "not_tried"
