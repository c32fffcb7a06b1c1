"""Who gets in, who does not, and what each side is told."""

import socket
import ssl
import struct
from pathlib import Path
from unittest.mock import MagicMock

import anyio
import anyio.lowlevel
import psutil
import pytest
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSStream

from node.io import clock
from node.io.mesh import tls
from node.io.mesh.event import PeerDown, PeerUp
from node.io.mesh.invitations import Invitations, code_key
from node.io.mesh.limits import MeshLimits
from node.io.mesh.listen import listen
from node.model.errors import RefusedError, UnreachableError, UsageError
from node.model.ids import ClusterId, NodeId
from node.model.machine import Address
from node.model.register import LinkRecord
from node.wire.frame import GREETING_BYTES_MAX, FrameKind, encode_frame
from node.wire.handshake import ALPN, Granted, Proof, Verdict, encode_greeting
from node.wire.message import Leaving
from tests.fakes.mesh_lab import (
    CLUSTER,
    OTHER_CLUSTER,
    Lab,
    LabNode,
    bearing_of,
    call,
    eventually,
    members,
    open_lab,
)


def codes(records: tuple[LinkRecord, ...]) -> dict[NodeId, str]:
    return {record.peer: record.failure.code for record in records if record.failure}


def refusal_code(verdict: Verdict | Granted) -> str:
    assert isinstance(verdict, Verdict)
    return verdict.refusal.code if verdict.refusal else ""


async def still_links(lab: Lab, node: LabNode, name: str = "friend") -> None:
    """The node takes a proper peer after whatever was done to it."""
    friend = await lab.start(name)
    node.mesh.set_admitted(members(friend))
    friend.mesh.set_admitted(members(node))
    assert (await node.next_of(PeerUp)).peer == friend.node


# Strangers on the port


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\x00" * 5000, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\xff" * 70_000],
)
async def test_garbage_on_the_port_costs_its_sender_the_connection_only(
    tmp_path: Path, garbage: bytes
):
    limits = MeshLimits(handshake_seconds=0.5)
    async with open_lab(tmp_path) as lab:
        node = await lab.start("one", limits=limits)
        async with await anyio.connect_tcp(node.address.host, node.address.port) as stream:
            with anyio.fail_after(5):
                try:
                    await stream.send(garbage or b"\x00")
                    while await stream.receive():
                        pass
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    pass
        await still_links(lab, node)


async def test_a_connection_that_is_reset_before_it_is_greeted_disturbs_nobody(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        node = await lab.start("one")
        for _ in range(3):
            # Nothing runs in between: the node accepts what is already gone.
            with socket.create_connection((node.address.host, node.address.port)) as gone:
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await still_links(lab, node)


PATIENT = MeshLimits(handshake_seconds=60.0)
"""No deadline closes a connection within a test."""


async def test_an_oversize_frame_before_the_proof_closes_the_connection(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        node = await lab.start("one", limits=PATIENT)
        async with call(node.address, lab.identity("stranger")) as stranger:
            await stranger.stream.send((GREETING_BYTES_MAX + 1).to_bytes(4, "big"))
            assert await stranger.is_closed_by_peer()
        await still_links(lab, node)


async def test_any_other_frame_before_the_proof_closes_the_connection(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        node = await lab.start("one", limits=PATIENT)
        for kind in (FrameKind.PING, FrameKind.REPLICA, FrameKind.VERDICT):
            async with call(node.address, lab.identity("stranger")) as stranger:
                await stranger.stream.send(encode_frame(kind, b"\x00"))
                assert await stranger.is_closed_by_peer()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_1_3_is_needed(tmp_path: Path, version: ssl.TLSVersion):
    async with open_lab(tmp_path) as lab:
        node = await lab.start("one")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = version
        context.set_alpn_protocols([ALPN])
        connection = await anyio.connect_tcp(node.address.host, node.address.port)
        outcome = "taken"
        try:
            await TLSStream.wrap(connection, server_side=False, ssl_context=context)
        except (ssl.SSLError, anyio.BrokenResourceError):
            outcome = "refused"
        await anyio.aclose_forcefully(connection)
    assert outcome == ("taken" if version is ssl.TLSVersion.TLSv1_3 else "refused")


@pytest.mark.parametrize("protocols", [[], ["http/1.1"]])
async def test_tls_without_our_protocol_is_refused(tmp_path: Path, protocols: list[str]):
    async with open_lab(tmp_path) as lab:
        node = await lab.start("one")
        context = tls.client_context()
        context.set_alpn_protocols(protocols)
        connection = await anyio.connect_tcp(node.address.host, node.address.port)
        stream = await TLSStream.wrap(
            connection, server_side=False, ssl_context=context, standard_compatible=False
        )
        with anyio.fail_after(5), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()
        await anyio.aclose_forcefully(stream)


async def test_who_does_not_finish_the_greeting_is_dropped_at_the_deadline(tmp_path: Path):
    limits = MeshLimits(handshake_seconds=0.3)
    async with open_lab(tmp_path) as lab:
        node = await lab.start("one", limits=limits)
        async with call(node.address, lab.identity("stranger")) as stranger:
            await stranger.introduce()
            assert await stranger.is_closed_by_peer()


@pytest.mark.parametrize(
    "limits",
    [
        MeshLimits(handshake_seconds=60.0, unauthenticated_per_host_max=4),
        MeshLimits(handshake_seconds=60.0, unauthenticated_max=4),
    ],
)
async def test_unproved_connections_are_bounded_and_further_ones_closed_at_once(
    tmp_path: Path, limits: MeshLimits
):
    async with open_lab(tmp_path) as lab:
        node = await lab.start("one", limits=limits)
        ended: list[int] = []

        async def idle(number: int) -> None:
            async with await anyio.connect_tcp(node.address.host, node.address.port) as stream:
                try:
                    await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    ended.append(number)

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(idle, number)
            await eventually(lambda: len(ended) == 36)
            group.cancel_scope.cancel()
        await still_links(lab, node)


async def test_a_flood_before_the_proof_takes_no_memory(tmp_path: Path):
    limits = MeshLimits(handshake_seconds=1.0)
    async with open_lab(tmp_path) as lab:
        node = await lab.start("one", limits=limits)
        async with call(node.address, lab.identity("stranger")) as stranger:
            before = psutil.Process().memory_info().rss
            # A frame of 4 KiB that never ends, then as much as the other side lets through.
            await stranger.stream.send((GREETING_BYTES_MAX - 4).to_bytes(4, "big") + b"\x01\x00")
            pushed, chunk = 0, bytes(64 * 1024)
            try:
                while pushed < 200 * 1024 * 1024:
                    await stranger.stream.send(chunk)
                    pushed += len(chunk)
            except (anyio.BrokenResourceError, OSError):
                pass
            grown = psutil.Process().memory_info().rss - before
        assert pushed < 32 * 1024 * 1024
        assert grown < 32 * 1024 * 1024


# Members and others


async def test_two_clusters_that_meet_are_named_on_both_sides(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two", cluster=OTHER_CLUSTER)
        one.mesh.add_candidate(None, two.address, "mdns")
        await eventually(lambda: bool(one.mesh.heard()) and bool(two.mesh.heard()))
        assert codes(one.mesh.heard()) == {two.node: "other_cluster"}
        assert codes(two.mesh.heard()) == {one.node: "other_cluster"}
        (record,) = one.mesh.heard()
        assert record.failure is not None
        assert "two" in record.failure.message
        assert "cluster d" in record.failure.message
        assert record.address == two.address
        assert "exoctl cluster invite" in record.failure.remedy


async def test_a_node_that_is_not_admitted_is_named_on_both_sides(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        two.mesh.set_admitted(members(one))
        await eventually(lambda: bool(one.mesh.heard()))
        assert codes(one.mesh.heard()) == {two.node: "not_admitted"}
        await eventually(lambda: codes(two.mesh.links()) == {one.node: "not_admitted"})
        one.mesh.set_admitted(members(two))
        assert (await one.next_of(PeerUp)).peer == two.node
        assert one.mesh.heard() == ()


async def test_a_revoked_member_is_cut_at_once_and_told_why(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        await lab.link(one, two)
        one.mesh.set_admitted({})
        assert not one.mesh.send(two.node, _any_message())
        assert (await one.next_of(PeerDown)).peer == two.node
        assert "not a member" in (await two.next_of(PeerDown)).reason
        await eventually(lambda: codes(two.mesh.links()) == {one.node: "revoked"})
        await eventually(lambda: codes(one.mesh.heard()) == {two.node: "revoked"})


async def test_a_node_revoked_while_it_was_away_is_refused_by_name(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        one.mesh.set_admitted({}, revoked=(two.node,))
        two.mesh.set_admitted(members(one))
        await eventually(lambda: codes(two.mesh.links()) == {one.node: "revoked"})


async def test_another_protocol_version_is_named_on_both_sides(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        node = await lab.start("one")
        newer = lab.identity("newer")
        node.mesh.set_admitted({newer.node: ()})
        async with call(node.address, newer) as stranger:
            verdict = await stranger.greet(bearing_of(protocol=9))
        assert refusal_code(verdict) == "protocol_mismatch"
        assert codes(node.mesh.links()) == {newer.node: "protocol_mismatch"}


async def test_a_copied_identity_is_told_on_both_sides_and_the_original_keeps_its_link(
    tmp_path: Path,
):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        await lab.link(one, two)
        copy = await lab.start("two")
        copy.mesh.add_candidate(None, one.address, "option")
        copy.mesh.set_admitted(members(one))
        await eventually(lambda: codes(copy.mesh.links()) == {one.node: "duplicate_id"})
        await eventually(lambda: codes(one.mesh.heard()) == {two.node: "duplicate_id"})
        assert one.mesh.send(two.node, _any_message())
        copy.mesh.add_candidate(None, two.address, "mdns")
        await eventually(lambda: codes(copy.mesh.heard()) == {two.node: "duplicate_id"})
        assert codes(two.mesh.heard()) == {two.node: "duplicate_id"}
        assert not any(isinstance(event, PeerDown) for event in [*one.told, *two.told])


async def test_a_node_that_finds_itself_says_nothing_of_it(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two", cluster=OTHER_CLUSTER)
        one.mesh.add_candidate(None, one.address, "mdns")
        one.mesh.add_candidate(None, two.address, "mdns")
        await eventually(lambda: bool(one.mesh.heard()))
        assert codes(one.mesh.heard()) == {two.node: "other_cluster"}


async def test_a_named_address_that_does_not_answer_is_shown_with_the_reason(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        nowhere = Address("127.0.0.1", two.address.port)
        await two.stop()
        one.mesh.add_candidate(None, nowhere, "option")
        await eventually(lambda: bool(one.mesh.heard()))
        (record,) = one.mesh.heard()
        assert (record.peer, record.address) == ("", nowhere)
        assert codes(one.mesh.heard()) == {NodeId(""): "refused"}


# Attacks on the proof


async def test_a_server_with_another_key_is_not_taken_for_the_peer(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, impostor = await lab.start("one"), await lab.start("impostor")
        wanted = lab.identity("wanted").node
        impostor.mesh.set_admitted(members(one))
        one.mesh.set_admitted({wanted: (impostor.address,)})
        await eventually(lambda: codes(one.mesh.links()) == {wanted: "wrong_identity"})
        assert not one.mesh.send(wanted, _any_message())


async def test_a_proof_relayed_live_to_another_server_is_refused(tmp_path: Path):
    """The man in the middle ends TLS with his own certificate and passes the greeting on."""
    async with open_lab(tmp_path) as lab:
        victim = await lab.start("victim")
        member, middle = lab.identity("member"), lab.identity("middle")
        victim.mesh.set_admitted({member.node: ()})
        (listener,) = await listen("127.0.0.1", 0)
        port = int(listener.extra(SocketAttribute.local_port))

        async def relay() -> None:
            async with await listener.accept() as connection:
                context = tls.server_context(middle)
                caller = await tls.wrap(connection, context, server_side=True)
                async with (
                    call(victim.address, middle) as onward,
                    anyio.create_task_group() as both,
                ):
                    both.start_soon(_pump, caller, onward.stream)
                    both.start_soon(_pump, onward.stream, caller)

        async with listener, anyio.create_task_group() as group:
            group.start_soon(relay)
            async with call(Address("127.0.0.1", port), member) as fooled:
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    await fooled.greet()
        assert codes(victim.mesh.links()) == {member.node: "not_tried"}
        with pytest.raises(anyio.WouldBlock):
            victim.mesh.received.receive_nowait()


async def test_a_proof_seen_before_is_refused(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        node = await lab.start("one")
        member = lab.identity("member")
        node.mesh.set_admitted({member.node: ()})
        async with call(node.address, member) as first:
            met = await first.introduce()
            old = Proof(signature=member.sign(met.exchange.transcript("dialler")))
        async with call(node.address, member) as again:
            await again.introduce()
            await again.stream.send(encode_greeting(old))
            assert await again.is_closed_by_peer()
        assert codes(node.mesh.links()) == {member.node: "not_tried"}


async def test_a_key_that_is_shown_but_not_held_is_refused(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        node = await lab.start("one")
        member, thief = lab.identity("member"), lab.identity("thief")
        node.mesh.set_admitted({member.node: ()})
        async with call(node.address, member) as stranger:
            met = await stranger.introduce()
            forged = Proof(signature=thief.sign(met.exchange.transcript("dialler")))
            await stranger.stream.send(encode_greeting(forged))
            assert await stranger.is_closed_by_peer()
        assert codes(node.mesh.links()) == {member.node: "not_tried"}


# Joining


class Admissions:
    """Stands in for the master: decides, and says whether the decision is committed."""

    def __init__(self, *, committed: bool = True) -> None:
        self.committed = committed
        self.asked: list[tuple[NodeId, str, tuple[Address, ...]]] = []
        self.proofs: list[str] = []

    async def __call__(
        self, node: NodeId, name: str, addresses: tuple[Address, ...], proof: str
    ) -> bool:
        self.asked.append((node, name, addresses))
        self.proofs.append(proof)
        return self.committed


async def open_cluster(lab: Lab, admissions: Admissions, trust: str = "invite") -> LabNode:
    member = await lab.start("member", trust=trust)
    member.mesh.on_join = admissions
    return member


async def test_a_code_lets_a_node_of_another_cluster_join_and_link(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        admissions = Admissions()
        member = await open_cluster(lab, admissions)
        joiner = await lab.start("joiner", cluster=OTHER_CLUSTER)
        code, expires = member.mesh.create_invite(600.0, clock.wall())
        assert expires > clock.wall() + 590
        granted = await joiner.mesh.join(code.lower().replace("-", " "), member.address)
        assert (granted.cluster, granted.cluster_name) == (CLUSTER, "cluster c")
        assert granted.member == member.node
        assert granted.addresses[0] == (member.node, member.address)
        assert admissions.asked == [(joiner.node, "joiner", (joiner.address,))]
        joiner.mesh.set_cluster(granted.cluster, granted.cluster_name)
        joiner.mesh.set_admitted(members(member))
        member.mesh.set_admitted(members(joiner))
        assert (await joiner.next_of(PeerUp)).peer == member.node
        assert (await member.next_of(PeerUp)).peer == joiner.node


async def test_a_joiner_learns_where_the_other_members_are(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        member, other = await open_cluster(lab, Admissions()), await lab.start("other")
        await lab.link(member, other)
        joiner = await lab.start("joiner", cluster=OTHER_CLUSTER)
        code, _ = member.mesh.create_invite(600.0, clock.wall())
        granted = await joiner.mesh.join(code, member.address)
        assert dict(granted.addresses) == {
            member.node: member.address,
            other.node: other.address,
        }


async def refused(joiner: LabNode, code: str, address: Address) -> str:
    with pytest.raises(RefusedError) as caught:
        await joiner.mesh.join(code, address)
    return caught.value.failure.code


async def test_wrong_used_and_expired_codes_are_refused(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        admissions = Admissions()
        member = await open_cluster(lab, admissions)
        one = await lab.start("joiner", cluster=OTHER_CLUSTER)
        two = await lab.start("second", cluster=OTHER_CLUSTER)
        assert await refused(one, "AAAAA-AAAAA-AAAAA-AAAAA", member.address) == "wrong_code"
        code, _ = member.mesh.create_invite(600.0, clock.wall())
        await one.mesh.join(code, member.address)
        assert await refused(two, code, member.address) == "wrong_code"
        member.mesh.set_admitted(members(one))
        await one.mesh.join(code, member.address)  # its answer may have been lost
        expired, _ = member.mesh.create_invite(600.0, clock.wall() - 601)
        assert await refused(two, expired, member.address) == "wrong_code"
        assert {node for node, _, _ in admissions.asked} == {one.node}


async def test_an_admission_that_is_not_committed_gives_the_code_back(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        admissions = Admissions(committed=False)
        member = await open_cluster(lab, admissions)
        joiner = await lab.start("joiner", cluster=OTHER_CLUSTER)
        code, _ = member.mesh.create_invite(600.0, clock.wall())
        assert await refused(joiner, code, member.address) == "join_not_committed"
        admissions.committed = True
        second = await lab.start("second", cluster=OTHER_CLUSTER)
        assert (await second.mesh.join(code, member.address)).member == member.node


async def test_wrong_codes_make_their_sender_wait_after_five(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        member = await open_cluster(lab, Admissions())
        joiner = await lab.start("joiner", cluster=OTHER_CLUSTER)
        for _ in range(5):
            assert await refused(joiner, "A" * 20, member.address) == "wrong_code"
        code, _ = member.mesh.create_invite(600.0, clock.wall())
        assert await refused(joiner, code, member.address) == "too_many_failures"


async def test_a_server_that_does_not_know_the_code_can_not_take_a_joiner_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with open_lab(tmp_path) as lab:
        # It admits whoever comes, whatever the code; the joiner must notice.
        trap = await open_cluster(lab, Admissions())
        joiner = await lab.start("joiner", cluster=OTHER_CLUSTER)
        trap_code, _ = trap.mesh.create_invite(600.0, clock.wall())
        key = code_key(trap_code)

        monkeypatch.setattr(Invitations, "redeem", MagicMock(return_value=key))
        assert await refused(joiner, "A" * 20, trap.address) == "wrong_cluster"


async def test_joining_without_a_code_needs_trust_in_the_network_on_both_sides(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        open_member = await open_cluster(lab, Admissions(), trust="lan")
        strict = await lab.start("strict")
        strict.mesh.on_join = Admissions()
        trusting = await lab.start("trusting", cluster=OTHER_CLUSTER, trust="lan")
        careful = await lab.start("careful", cluster=OTHER_CLUSTER)
        assert (await trusting.mesh.join("", open_member.address)).member == open_member.node
        assert await refused(trusting, "", strict.address) == "invite_needed"
        with pytest.raises(UsageError):
            await careful.mesh.join("", open_member.address)


async def test_of_two_lone_nodes_that_trust_the_network_exactly_one_is_to_join(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one = await lab.start("one", trust="lan")
        two = await lab.start("two", trust="lan", cluster=OTHER_CLUSTER)
        careful = await lab.start("careful", cluster=ClusterId("e" * 32))
        for node in (two, careful):
            one.mesh.add_candidate(None, node.address, "mdns")
        await eventually(lambda: len(one.mesh.heard()) == 2 and bool(two.mesh.heard()))
        assert [one.mesh.where_to_join(), two.mesh.where_to_join()].count(None) == 1
        assert careful.mesh.where_to_join() is None
        assert careful.address not in (one.mesh.where_to_join(), two.mesh.where_to_join())
        joiner, host = (one, two) if one.mesh.where_to_join() else (two, one)
        assert joiner.mesh.where_to_join() == host.address
        joiner.mesh.set_cluster(CLUSTER if host is one else OTHER_CLUSTER)
        joiner.mesh.set_admitted(members(host))
        assert joiner.mesh.where_to_join() is None


async def test_a_lone_node_joins_the_larger_cluster(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one = await lab.start("one", trust="lan")
        two, three = await lab.start("two", trust="lan"), await lab.start("three", trust="lan")
        for cluster in (OTHER_CLUSTER, ClusterId("e" * 32)):
            for node in (two, three):
                node.mesh.set_cluster(cluster)
            await lab.link(two, three)
            one.mesh.add_candidate(None, two.address, "mdns")
            one.mesh.network_changed()
            await eventually(lambda: one.mesh.where_to_join() == two.address)
            assert two.mesh.where_to_join() is None
            assert three.mesh.where_to_join() is None


async def test_the_same_cluster_named_again_changes_nothing(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        await lab.link(one, two)
        one.mesh.set_cluster(CLUSTER, "renamed")
        assert one.mesh.send(two.node, _any_message())
        one.mesh.set_cluster(OTHER_CLUSTER)
        assert not one.mesh.send(two.node, _any_message())
        assert "another cluster" in (await two.next_of(PeerDown)).reason


async def test_only_those_named_as_removed_are_told_so(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        await lab.link(one, two)
        one.mesh.set_admitted({}, revoked=())
        await eventually(lambda: codes(two.mesh.links()) == {one.node: "not_admitted"})


async def test_a_stranger_that_asks_to_join_without_a_code_is_told_how(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        admissions = Admissions()
        member = await open_cluster(lab, admissions)
        async with call(member.address, lab.identity("stranger")) as stranger:
            verdict = await stranger.greet(purpose="join")
        assert refusal_code(verdict) == "invite_needed"
        assert admissions.asked == []


@pytest.mark.parametrize("code", ["12345", "A" * 19, "A" * 21, "é" * 20, "9" * 20])
async def test_what_is_no_code_is_refused_before_anybody_is_asked(tmp_path: Path, code: str):
    async with open_lab(tmp_path) as lab:
        joiner = await lab.start("joiner", cluster=OTHER_CLUSTER)
        with pytest.raises(UsageError, match="no invite code"):
            await joiner.mesh.join(code, Address("127.0.0.1", 1))


async def test_joining_where_nobody_listens_is_an_error_with_the_address(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        joiner, gone = await lab.start("joiner"), await lab.start("gone")
        await gone.stop()
        with pytest.raises(UnreachableError, match=str(gone.address.port)):
            await joiner.mesh.join("A" * 20, gone.address)


async def test_a_node_can_not_join_itself(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        node = await lab.start("one")
        code, _ = node.mesh.create_invite(600.0, clock.wall())
        with pytest.raises(UsageError, match="itself"):
            await node.mesh.join(code, node.address)


# A member that misbehaves


async def test_a_member_that_sends_garbage_loses_its_link_only(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        await lab.link(one, two)
        bad = lab.identity("bad")
        one.mesh.set_admitted(members(one, two) | {bad.node: ()})
        for payload in (
            encode_frame(FrameKind.REPLICA, b"\xc1"),
            encode_frame(FrameKind.SERVICE, b"\x91" * 100_000),
            encode_frame(FrameKind.PING, bytes(9)),
            b"\xff\xff\xff\xff",
        ):
            async with call(one.address, bad) as member:
                assert refusal_code(await member.greet(bearing_of(process=str(len(payload))))) == ""
                assert (await one.next_of(PeerUp)).peer == bad.node
                await member.stream.send(payload)
                down = await one.next_of(PeerDown)
                assert down.peer == bad.node
        assert one.mesh.send(two.node, _any_message())


async def test_unknown_kinds_from_a_member_are_counted_and_ignored(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one = await lab.start("one")
        newer = lab.identity("newer")
        one.mesh.set_admitted({newer.node: ()})
        async with call(one.address, newer) as member:
            assert refusal_code(await member.greet()) == ""
            await one.next_of(PeerUp)
            await member.stream.send(b"\x00\x00\x00\x04\xc8\x00hi" * 3)
            await eventually(lambda: one.mesh.ignored() == {"kind 200": 3})
            assert one.mesh.links()[0].up


async def test_a_member_that_reads_nothing_is_cut_and_memory_stays_bounded(tmp_path: Path):
    limits = MeshLimits(control_bytes_max=2 * 1024 * 1024, stall_seconds=1.0, ping_seconds=0.2)
    async with open_lab(tmp_path) as lab:
        one = await lab.start("one", limits=limits)
        stuck = lab.identity("stuck")
        one.mesh.set_admitted({stuck.node: ()})
        async with call(one.address, stuck) as member:
            assert refusal_code(await member.greet()) == ""
            await one.next_of(PeerUp)
            before = psutil.Process().memory_info().rss
            message, sent = _any_message(100_000), 0
            while one.mesh.send(stuck.node, message) and sent < 1000:
                sent += 1
                await anyio.lowlevel.checkpoint()  # the writer runs
            down = await one.next_of(PeerDown)
            grown = psutil.Process().memory_info().rss - before
        assert "too slowly" in down.reason
        assert sent * 100_000 < 16 * 1024 * 1024, "what the kernel and the queue hold"
        assert grown < 24 * 1024 * 1024


async def test_a_member_that_is_stuck_with_little_to_read_is_cut_too(tmp_path: Path):
    limits = MeshLimits(stall_seconds=0.5, ping_seconds=0.1)
    async with open_lab(tmp_path) as lab:
        one = await lab.start("one", limits=limits)
        stuck = lab.identity("stuck")
        one.mesh.set_admitted({stuck.node: ()})
        async with call(one.address, stuck) as member:
            assert refusal_code(await member.greet()) == ""
            await one.next_of(PeerUp)
            for _ in range(75):
                one.mesh.send(stuck.node, _any_message(100_000))

            async def chatter() -> None:
                while True:
                    await member.stream.send(encode_frame(FrameKind.PONG, b"0"))
                    await anyio.sleep(0.05)

            async with anyio.create_task_group() as group:
                group.start_soon(chatter)
                assert "has taken nothing for" in (await one.next_of(PeerDown)).reason
                group.cancel_scope.cancel()


def _any_message(size: int = 1) -> Leaving:
    return Leaving(reason="x" * size)


async def _pump(source: ByteStream, target: ByteStream) -> None:
    try:
        while True:
            await target.send(await source.receive())
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await anyio.aclose_forcefully(target)
