"""The mesh of a node: listens, dials, and keeps one proved link with every other member."""

from collections.abc import Callable, Collection, Mapping, Sequence

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketListener, TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream

from node.core.peer_table import PeerPolicy, PeerTable
from node.io import clock
from node.io.identity import Identity, is_node_id
from node.io.interfaces import (
    advertised_addresses,
    dial_order,
    hardware_ports,
    list_interfaces,
    plain_host,
)
from node.io.mesh.calls import Calls
from node.io.mesh.channel import CONNECTION_ERRORS, close_stream, describe
from node.io.mesh.door import Door, OnDecline, OnJoin
from node.io.mesh.event import JoinGranted, MeshEvent, PeerMessage
from node.io.mesh.greeting import Dialler, GreetingStream, Met, code_proof, proofs_equal
from node.io.mesh.invitations import Invitations, code_key
from node.io.mesh.limits import MeshLimits
from node.io.mesh.links import Links, OnIntroduced
from node.io.mesh.listen import listen
from node.io.mesh.reach import Missed, Reached, Reacher
from node.io.mesh.standing import Standing
from node.model.errors import (
    BusyError,
    ConflictError,
    Failure,
    RefusedError,
    TimeoutExpiredError,
    UnreachableError,
    UsageError,
)
from node.model.ids import ClusterId, NodeId
from node.model.machine import Address
from node.model.register import LinkRecord
from node.wire.handshake import (
    PROTOCOL,
    Granted,
    Verdict,
    cluster_hint,
    printable,
    printable_failure,
)


class MeshSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a mesh is told at its start."""

    name: str
    cluster: ClusterId
    cluster_name: str = ""
    bind: str = ""
    """Host to listen on; empty: every address of the machine."""
    port: int = 0
    """0 asks for a free one."""
    trust: str = "invite"
    """`invite`, or `lan`: whoever proves an id may join."""
    version: str = ""
    limits: MeshLimits = MeshLimits()
    policy: PeerPolicy = PeerPolicy()


class Mesh:
    """Lives as long as the node, whatever cluster it belongs to. Everything runs on one loop."""

    def __init__(self, identity: Identity, settings: MeshSettings) -> None:
        self._identity = identity
        self._settings = settings
        self._standing = Standing(
            identity.node,
            clock.random_hex(32),
            settings.name,
            settings.trust,
            settings.version,
        )
        self._standing.set_cluster(settings.cluster, settings.cluster_name)
        events, received = anyio.create_memory_object_stream[MeshEvent](
            settings.limits.received_max
        )
        self._events, self._received = events, received
        self._table = PeerTable(identity.node, settings.policy)
        self._links = Links(self._standing, self._table, settings.limits, events)
        self._invitations = Invitations()
        self._reacher = Reacher(settings.limits)
        self._door = Door(self._links, identity, self._invitations)
        self._calls = Calls(self._links, identity, self._reacher)
        self._ports: dict[str, str] = {}
        self._address: Address | None = None

    @property
    def received(self) -> MemoryObjectReceiveStream[MeshEvent]:
        """What happens, in order; ends with `run`. The owner must read it (links wait while it is
        full) and close it.
        """
        return self._received

    @property
    def node(self) -> NodeId:
        """This node's id."""
        return self._identity.node

    @property
    def on_join(self) -> OnJoin | None:
        """Called for a node that proved its right to join: (node, name, addresses, proof).

        It has the admission decided and returns whether it is committed; only then is the joiner
        told. Without it nobody can join.
        """
        return self._door.on_join

    @on_join.setter
    def on_join(self, on_join: OnJoin | None) -> None:
        self._door.on_join = on_join

    @property
    def on_decline(self) -> OnDecline | None:
        """Called for a node that was admitted but did not come over: (node, name)."""
        return self._door.on_decline

    @on_decline.setter
    def on_decline(self, on_decline: OnDecline | None) -> None:
        self._door.on_decline = on_decline

    @property
    def on_introduced(self) -> OnIntroduced | None:
        """Called with nodes that a member speaks of and that this node does not know; set while it
        has no log that names the members.
        """
        return self._links.on_introduced

    @on_introduced.setter
    def on_introduced(self, on_introduced: OnIntroduced | None) -> None:
        self._links.on_introduced = on_introduced

    def set_master(self, master: NodeId) -> None:
        """Name the member that one that joins should know first."""
        self._standing.master = master

    @property
    def address(self) -> Address:
        """Where it listens; with the free port that was found. Set once `run` has started."""
        assert self._address is not None, "the mesh does not listen yet"
        return self._address

    def addresses(self) -> tuple[Address, ...]:
        """Where others may reach this node, the fastest medium first."""
        port = self._address.port if self._address else self._settings.port
        return advertised_addresses(self._links.interfaces, self._settings.bind, port)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Listen and dial until cancelled; then say goodbye to every peer.

        Raises:
            ConflictError: the port is taken; names who has it where that can be told.
            UsageError: the host to listen on is none of this machine's.
        """
        try:
            listeners = await listen(self._settings.bind, self._settings.port)
            try:
                await self._serve(listeners, task_status)
            finally:
                with anyio.CancelScope(shield=True):
                    for listener in listeners:
                        await listener.aclose()
                    self._door.close()
        finally:
            self._events.close()

    def send(self, peer: NodeId, message: PeerMessage) -> bool:
        """Queue a message for a peer; never waits. False where it can't go.

        A peer whose control queue is full loses its link, so that both know what was lost.
        Registers that still wait are replaced by later ones. Snapshot chunks have a queue of their
        own, which only refuses.
        """
        return self._links.send(peer, message)

    def set_cluster(self, cluster: ClusterId, name: str = "") -> None:
        """Belong to this cluster from now on; links with members of another are cut."""
        is_change = cluster != self._standing.cluster
        self._standing.set_cluster(cluster, name)
        if is_change:
            self._table.set_admitted({}, clock.monotonic())
            self._links.cut_all("this node has joined another cluster")
            self._links.forget_strangers()
            self._invitations.clear()
            self._retry()

    def set_admitted(
        self,
        nodes: Mapping[NodeId, tuple[Address, ...]],
        revoked: Collection[NodeId] | None = None,
    ) -> None:
        """Link with exactly these nodes. Links with others are cut at once.

        Those among `revoked` are told that they were removed; without it, those that were members
        of this cluster before and are none now.
        """
        members = {node: addresses for node, addresses in nodes.items() if node != self.node}
        is_change = set(members) != set(self._table.peers())
        self._standing.set_members(members, revoked)
        self._invitations.forget(self._standing.revoked)
        self._table.set_admitted(members, clock.monotonic())
        for node in members:
            self._links.heard.forget(node)
        self._links.cut_unwanted()
        if is_change:
            self._table.retry_strangers(clock.monotonic())
        self._links.bell.ring()

    def add_candidate(self, node: NodeId | None, address: Address, source: str) -> None:
        """A node may be there. `source` as in `core.peer_table`: `mdns`, `option`, `book` …

        Nothing is believed: whoever is there must prove its id. Bounded, and dialled slowly.
        """
        self._table.add_candidate(node, address, source, clock.monotonic())
        self._links.bell.ring()

    def network_changed(self) -> None:
        """Interfaces came or went, or the machine woke up: look again, dial again at once."""
        self._links.interfaces = list_interfaces(self._ports)
        self._table.network_changed(clock.monotonic())
        self._links.bell.ring()

    def links(self) -> tuple[LinkRecord, ...]:
        """The link with every member, or why there is none."""
        return self._links.records()

    def heard(self) -> tuple[LinkRecord, ...]:
        """Nodes that were met and are no members, and named addresses that don't answer, each with
        the reason.
        """
        return self._links.heard_records()

    def where_to_join(self) -> Address | None:
        """Where both sides trust the network and this node is alone: a node of the cluster to
        adopt. The larger one is adopted, of two single nodes the one with the lesser hint.
        """
        return self._links.where_to_join()

    def has_bulk(self, peer: NodeId) -> bool:
        """Whether snapshots for the peer have a connection of their own."""
        link = self._links.get(peer)
        return link is not None and link.has_bulk

    def ignored(self) -> Mapping[str, int]:
        """What members said that this version does not know, counted by kind."""
        return dict(self._links.codec.ignored)

    def proved_addresses(self) -> dict[NodeId, Address]:
        """Where members last answered: what an address book keeps."""
        return {
            node: address
            for node in self._table.peers()
            if (address := self._table.proved_address(node)) is not None
        }

    def discovery_text(self) -> dict[str, str]:
        """What is told on the network before anything is proved."""
        return {
            "v": str(PROTOCOL),
            "id": self.node,
            "cid": cluster_hint(self._standing.cluster)[:8],
            "n": printable(self._standing.name),
        }

    def create_invite(self, lifetime_seconds: float, now: float) -> tuple[str, float]:
        """A one-time code for another machine, and when it expires; `now` by the wall clock.

        Raises:
            BusyError: too many codes are open.
        """
        return self._invitations.create_invite(lifetime_seconds, now)

    async def join(
        self, code: str, address: Address, is_free: Callable[[], bool] = lambda: True
    ) -> JoinGranted:
        """Ask the node at an address to let this node into its cluster.

        The code proves the right to; empty where both sides trust the network. Changes nothing
        here: `set_cluster` and `set_admitted` follow. Meanwhile the door lets nobody in, and what
        is granted is given back where `is_free` has become false.

        Raises:
            BusyError: this node joins or lets in another one at this moment.
            ConflictError: it was granted, but this node is not free to go over any more.
            UsageError: the code is no code, or the address is this node's own.
            UnreachableError: no node answers there.
            RefusedError: it says no, or does not know the code either.
            TimeoutExpiredError: the cluster did not decide in time.
        """
        if not code and self._settings.trust != "lan":
            raise UsageError.because(
                "invite_needed", "a code is needed to join", "`exoctl cluster invite` makes one"
            )
        key = code_key(code) if code else b""
        if self._door.is_joining or self._door.is_admitting:
            doing = "joins a cluster" if self._door.is_joining else "lets another node in"
            raise BusyError.because(
                "join_busy", f"{self._settings.name} {doing} at this moment", "try again"
            )
        self._door.is_joining = True
        try:
            return await self._join(key, address, is_free)
        finally:
            self._door.is_joining = False

    async def _join(self, key: bytes, address: Address, is_free: Callable[[], bool]) -> JoinGranted:
        reached = await self._reach(address)
        try:
            with anyio.fail_after(self._settings.limits.join_seconds):
                return await self._ask_to_join(reached, key, is_free)
        except TimeoutError:
            raise TimeoutExpiredError.because(
                "join_timeout",
                f"{address} did not answer within {self._settings.limits.join_seconds:.0f} s",
                "check that the cluster has a master, then try again: the code is still good",
            ) from None
        except CONNECTION_ERRORS as error:
            raise UnreachableError.because(
                "join_interrupted", f"{address}: {describe(error)}", "try again"
            ) from error
        finally:
            with anyio.CancelScope(shield=True):
                await close_stream(reached.stream)

    async def _reach(self, address: Address) -> Reached:
        missed: list[Missed] = []
        addresses = dial_order((address,), self._links.interfaces)
        reached = await self._reacher.reach_first(addresses, None, missed.append)
        if reached is None:
            raise UnreachableError(
                missed[-1].failure
                if missed
                else Failure(code="unreachable", message=f"{address}: no interface leads there")
            )
        return reached

    async def _ask_to_join(
        self, reached: Reached, key: bytes, is_free: Callable[[], bool]
    ) -> JoinGranted:
        own = self._standing
        wire = GreetingStream(reached.stream)
        dialler = Dialler(wire, self._identity)
        met = await dialler.introduce(own.bearing(), "join", reached.server, reached.certificate)
        self._check_host(met, reached.address, key)
        answer = await dialler.prove(met, code_key=key)
        if isinstance(answer, Verdict):
            refusal = answer.refusal or Failure(code="refused", message="no reason was given")
            raise RefusedError(printable_failure(refusal))
        if key and not proofs_equal(answer.code_proof, code_proof(key, met.exchange, "server")):
            raise RefusedError.because(
                "wrong_cluster",
                f"the node at {reached.address} does not know the code",
                "check the address; somebody may pose as the cluster",
            )
        if not is_free():
            declined = Failure(
                code="join_declined",
                message=f"{own.name} is not alone any more: it stays in its own cluster",
                node=own.name,
            )
            await wire.send(Verdict(refusal=declined))
            raise ConflictError(declined)
        return _granted(answer, met, reached.address)

    def _check_host(self, met: Met, address: Address, key: bytes) -> None:
        if met.peer == self.node:
            raise UsageError.because(
                "join_self", f"{address} is this node itself, or a copy of its state directory"
            )
        if met.bearing.protocol != PROTOCOL:
            refusal = self._standing.judge(met.peer, met.bearing)
            assert refusal is not None, "another protocol is always refused"
            raise RefusedError(refusal)
        if not key and met.bearing.trust != "lan":
            raise RefusedError.because(
                "invite_needed",
                f"{printable(met.bearing.name)} at {address} admits nodes by invitation only",
                "on it: `exoctl cluster invite`; here: `exoctl cluster join CODE`",
            )

    async def _serve(
        self, listeners: Sequence[SocketListener], task_status: TaskStatus[None]
    ) -> None:
        host, port = listeners[0].extra(SocketAttribute.local_address)[:2]  # noqa: S610 - anyio's
        self._address = Address(plain_host(str(host)), int(port))
        self._standing.port = int(port)
        self.network_changed()
        async with anyio.create_task_group() as group:
            for listener in listeners:
                group.start_soon(self._door.serve, listener, group)
            group.start_soon(self._calls.run, group)
            group.start_soon(self._watch_network)
            task_status.started()

    async def _watch_network(self) -> None:
        """Notice interfaces that come and go, and that the machine has slept."""
        self._ports = await hardware_ports()
        watch_seconds = self._settings.limits.watch_seconds
        ticked_at, ticked_wall = clock.monotonic(), clock.wall()
        while True:
            known = self._links.interfaces
            current = list_interfaces(self._ports)
            now, wall = clock.monotonic(), clock.wall()
            # While a machine sleeps only the wall clock goes on.
            if (wall - ticked_wall) - (now - ticked_at) > self._settings.limits.sleep_seconds:
                self._links.cut_all("this machine has slept")
                self.network_changed()
            elif current != known:
                if {one.name for one in current} != {one.name for one in known}:
                    self._ports = await hardware_ports()
                self.network_changed()
            ticked_at, ticked_wall = now, wall
            await anyio.sleep(watch_seconds)

    def _retry(self) -> None:
        self._table.retry_all(clock.monotonic())
        self._links.bell.ring()


def _granted(answer: Granted, met: Met, address: Address) -> JoinGranted:
    others = ((NodeId(node), where) for node, where in answer.addresses if is_node_id(node))
    return JoinGranted(
        cluster=ClusterId(answer.cluster),
        cluster_name=printable(answer.cluster_name),
        member=met.peer,
        addresses=((met.peer, address), *others),
    )
