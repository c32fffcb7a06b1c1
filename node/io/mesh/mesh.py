"""The mesh of a node: listens, dials, and keeps one proved link with every other member."""

from collections.abc import Callable, Collection, Mapping, Sequence

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketListener, TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream

from node.core.peer_table import PeerPolicy, PeerTable
from node.io import clock
from node.io.identity import Identity
from node.io.interfaces import (
    advertised_addresses,
    hardware_ports,
    list_interfaces,
    plain_host,
)
from node.io.mesh.approvals import Approvals
from node.io.mesh.calls import Calls
from node.io.mesh.copy_stream import CopyStream
from node.io.mesh.door import Door, OnDecline, OnJoin
from node.io.mesh.event import JoinGranted, MeshEvent, PeerMessage
from node.io.mesh.invitations import Invitations
from node.io.mesh.joining import Joining
from node.io.mesh.limits import MeshLimits
from node.io.mesh.links import Links, OnCopy, OnIntroduced
from node.io.mesh.listen import listen
from node.io.mesh.reach import Reacher
from node.io.mesh.standing import Standing
from node.model.errors import Failure, UnreachableError
from node.model.ids import ClusterId, NodeId, short
from node.model.machine import Address
from node.model.register import JoinFigures, JoinRequest, LinkRecord
from node.wire.handshake import (
    PROTOCOL,
    cluster_hint,
    printable,
)

PINGS = 5
"""Round trips of which the best is told."""


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
    secret_key: bytes = b""
    """As from `load_secret`: whoever knows it may join."""
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
        self.set_secret(settings.secret_key)
        events, received = anyio.create_memory_object_stream[MeshEvent](
            settings.limits.received_max
        )
        self._events, self._received = events, received
        self._table = PeerTable(identity.node, settings.policy)
        self._links = Links(self._standing, self._table, settings.limits, events)
        self._invitations = Invitations()
        self._reacher = Reacher(settings.limits)
        self._approvals = Approvals(settings.limits)
        self._door = Door(self._links, identity, self._invitations, self._approvals)
        self._calls = Calls(self._links, identity, self._reacher)
        self.joining = Joining(self._links, identity, self._reacher, self._door)
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
            self._approvals.clear()
            self._retry()

    @property
    def trust(self) -> str:
        """`invite`, `lan`, or `secret`: whoever has the file joins."""
        return self._standing.trust

    def set_secret(self, key: bytes) -> None:
        """Let whoever knows this secret join, and nobody by the one before."""
        self._standing.set_secret(key)

    def withdraw_invites(self) -> int:
        """No open code and no waiting machine gets in any more; how many there were."""
        count = self._invitations.open_count(clock.wall()) + len(self._approvals.requests())
        self._invitations.clear()
        self._approvals.clear()
        return count

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
        self._calls.improve_bell.ring()

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

    async def ping(self, peer: NodeId, measure_seconds: float = 0.0) -> LinkRecord:
        """The link with a member, its round trip (and what it carries) measured now.

        Raises:
            UnreachableError: there is no link; says why.
        """
        link = self._links.get(peer)
        if link is None:
            known = [one for one in self.links() if one.peer == peer]
            failure = known[0].failure if known else None
            raise UnreachableError(
                failure or Failure(code="no_link", message=f"{short(peer)} is no member")
            )
        for _ in range(PINGS):
            await link.probe()
        if measure_seconds:
            await link.measure(measure_seconds)
        return link.record()

    def has_bulk(self, peer: NodeId) -> bool:
        """Whether snapshots for the peer have a connection of their own."""
        link = self._links.get(peer)
        return link is not None and link.has_bulk

    def serve_copies(self, on_copy: OnCopy) -> None:
        """Let members that are linked open connections for copies of files."""
        self._links.on_copy = on_copy

    async def open_copy(self, peer: NodeId) -> CopyStream | None:
        """A connection for copies of a linked peer's files, cut when the link ends; None where it
        offers none, or can't be dialled. The caller must close it.
        """
        return await self._calls.open_copy(peer)

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
        """Ask the node at an address to let this node into its cluster; see `Joining.join`."""
        return await self.joining.join(code, address, is_free)

    def judge_request(self, request: str, *, approve: bool) -> JoinRequest:
        """Let a machine in that asks this node, or send it away.

        Raises:
            NotFoundError: nobody asks by that id.
        """
        return self._approvals.judge(request, approve=approve)

    def watch_requests(self, on_change: Callable[[], None]) -> None:
        """Have it called whenever somebody asks to be let in, or does not any more."""
        self._approvals.on_change = on_change

    def join_figures(self) -> JoinFigures:
        """Who asks this node, and whom it asks."""
        return JoinFigures(requests=self._approvals.requests(), asking=self.joining.asking)

    async def _serve(
        self, listeners: Sequence[SocketListener], task_status: TaskStatus[None]
    ) -> None:
        host, port = listeners[0].extra(SocketAttribute.local_address)[:2]  # noqa: S610 - anyio's
        self._address = Address(plain_host(str(host)), int(port))
        self._standing.port = int(port)
        self.network_changed()
        async with anyio.create_task_group() as group:
            self.joining.group = group
            for listener in listeners:
                group.start_soon(self._door.serve, listener, group)
            group.start_soon(self._calls.run, group)
            group.start_soon(self._calls.improve, group)
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
