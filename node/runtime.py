"""Composition root: everything a node is made of, made once, in one place.

    open_node(config) ─▶ lock, identity, log ─▶ mesh ─▶ event router ─▶ state store ─▶ worker, API

The result is a `NodeHandle`. Nothing here is made anew while the node lives: a session, a peer, a
join or a full disk are values that flow through these parts.
"""

import os
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from node.api.server import serve
from node.config import Config, environment_for_child
from node.core.peer_table import SOURCE_BOOK, SOURCE_DISCOVERY, SOURCE_OPTION
from node.core.replica.durable import Recovered
from node.core.replica.messages import ReplicaMessage
from node.handle import LocalView, NodeHandle
from node.io import clock
from node.io.address_book import AddressBook
from node.io.file_limit import raise_file_limit
from node.io.former_life import leave_former_life
from node.io.identity import Identity, has_identity, load_or_create_identity
from node.io.log_file import LogFile, open_log
from node.io.machine_probe import probe_figures, probe_machine
from node.io.mdns import Discovery
from node.io.mesh.event import MeshEvent, PeerDown, PeerMessage, PeerUp, Received
from node.io.mesh.mesh import Mesh, MeshSettings
from node.io.node_lock import LockRecord, NodeLock
from node.io.runner_files import RunnerFiles
from node.io.secret_file import load_secret
from node.log import NodeLog, logger
from node.model.errors import ConflictError
from node.model.event import NodeDescribed
from node.model.ids import NodeId
from node.model.machine import Address, Machine
from node.model.register import LinkFigures, MachineFigures
from node.model.state import State
from node.services.admission import Admission
from node.services.background import background_tasks
from node.services.burst import burst
from node.services.control_plane import ControlPlane
from node.services.embedded import EmbeddedHandle, Surroundings
from node.services.remote_logs import RemoteLogs
from node.services.reporter import Reporter
from node.services.streams import StreamMessage
from node.services.work_plane import WorkPlane
from node.version import __version__
from node.wire.message import (
    AdmissionRotated,
    CommandAnswered,
    CommandSent,
    JoinJudged,
    Leaving,
    ListingAsked,
    ListingTold,
    LogAnswered,
    LogAsked,
    OrderAnswered,
    OrderSent,
    PieceAsked,
    PieceSent,
    PlanAnswered,
    PlanAsked,
    RegistersChanged,
    ServiceMessage,
)

TICK_SECONDS = 1.0
LOCK_TRIES = 5
LOCK_SECONDS = 0.05
GOODBYE_SECONDS = 0.2
"""After `Leaving` was queued: what the links get to send it."""
OVERLOAD_SECONDS = 0.05

_log = logger("node")


@asynccontextmanager
async def open_node(config: Config, *, log_to_stderr: bool = False) -> AsyncGenerator[NodeHandle]:
    """Run a node for the length of an `async with`; its end is clean, runners included.

    Raises:
        ConflictError: a node runs on this state directory, a port is taken, the log can't be used.
        RefusedError: the API is to listen beyond loopback without a token.
    """
    raise_file_limit()
    config.state_directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = NodeLock(config.state_directory)
    await _acquire(lock)
    try:
        node_log = NodeLog(config.state_directory, config.log_level, to_stderr=log_to_stderr)
        try:
            if not has_identity(config.state_directory):
                await anyio.to_thread.run_sync(leave_former_life, config.state_directory)
            identity = load_or_create_identity(config.state_directory)
            log, recovered = await anyio.to_thread.run_sync(
                open_log, config.state_directory / "log"
            )
            async with background_tasks() as tasks:
                node = Node(config, identity, log, recovered, tasks)
                node.handle.attach_logs(node_log, RunnerFiles(config.state_directory))
                try:
                    await node.start(lock)
                    yield node.handle
                finally:
                    with anyio.CancelScope(shield=True):
                        await node.stop()
        finally:
            node_log.close()
    finally:
        lock.release()


async def _acquire(lock: NodeLock) -> None:
    """Take the lock; a command that looks whether a node runs here holds it for a moment."""
    for _ in range(LOCK_TRIES - 1):
        try:
            lock.acquire()
        except ConflictError:
            await anyio.sleep(LOCK_SECONDS)
        else:
            return
    lock.acquire()


class Node:
    """The parts of a node and the messages between them."""

    def __init__(
        self,
        config: Config,
        identity: Identity,
        log: LogFile,
        recovered: Recovered,
        tasks: TaskGroup,
    ) -> None:
        self.config = config
        self.node = identity.node
        self.name = config.name or socket.gethostname().partition(".")[0] or "node"
        self._recovered = recovered
        self._tasks = tasks
        self._started_at = clock.wall()
        self._machine: Machine = probe_machine()
        self._api: Address | None = None
        self._lost: frozenset[NodeId] = frozenset()
        self._links_up: set[NodeId] = set()
        self._book = AddressBook(config.state_directory)
        self.mesh = Mesh(identity, self._mesh_settings())
        self.control = ControlPlane(config, self.mesh, log, recovered, self._describe)
        self.work = WorkPlane(config, environment_for_child(), self.mesh, self.control, tasks)
        self.admission = Admission(config, self.mesh, self.control, self._book, self._peers_up)
        self.discovery = Discovery(
            describe=self.mesh.discovery_text,
            addresses=self.mesh.addresses,
            on_candidate=self._heard_of,
        )
        self.reporter = self._make_reporter()
        self.mesh.watch_requests(lambda: self.reporter.gather_now("joins"))
        self.work.on_models_changed = self._models_changed
        self.remote_logs = RemoteLogs(self.mesh.send, tasks)
        self.handle = EmbeddedHandle(self.control, self.work.requests, self._surroundings())
        self.remote_logs.read = self.handle.own_logs
        self.control.store.on_change(self._state_changed)

    def _mesh_settings(self) -> MeshSettings:
        secret_file = self.config.cluster_secret_file
        return MeshSettings(
            name=self.name,
            cluster=self._recovered.cluster,
            bind=self.config.bind,
            port=self.config.cluster_port,
            trust=self.config.trust,
            secret_key=load_secret(Path(secret_file).expanduser()) if secret_file else b"",
            version=__version__,
        )

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            local=self._local,
            invite=self.admission.invite,
            join=self.admission.join,
            heard=lambda: tuple(link.address for link in self.mesh.heard()),
            ask=self.mesh.joining.ask,
            finish=self.admission.finish,
            withdraw=self.mesh.joining.withdraw,
            judge=self.admission.judge,
            ping=self.mesh.ping,
            rotate=self.admission.rotate,
            cancel=self.work.cancel,
            order=self.work.orders.order,
            search=self.work.hub.search,
            describe=self.work.cards.describe,
            stop=_ask_own_process_to_stop,
            remote_logs=self.remote_logs.ask,
        )

    def _make_reporter(self) -> Reporter:
        second = 1.0
        return Reporter(
            self.control.registers,
            lambda: tuple(self._links_up),
            self.mesh.send,
            {
                "router": (self.control.router.figures, second),
                "links": (self._link_figures, 2 * second),
                "joins": (self.mesh.join_figures, second),
                "models": (self.work.models.figures, second),
                "downloads": (self.work.downloads, second / 2),
                "runners": (self.work.supervisor.figures, second / 2),
                "requests": (self.work.requests.figures, second / 2),
            },
            self._probe,
        )

    # -- start and stop ----------------------------------------------------------------------------

    async def start(self, lock: NodeLock) -> None:
        """Start everything, in the order in which the parts need each other."""
        tasks = self._tasks
        self.mesh.on_join = self.control.membership.admit
        self.control.membership.recovered(self.control.router.recovered_state(self._recovered))
        await tasks.start(self._run_mesh)
        self.control.router.on_wake = self.mesh.network_changed
        self.control.router.start(self._recovered, self.name)
        self.mesh.set_cluster(self.control.router.cluster, self.control.store.state.cluster_name)
        self._name_candidates()
        self._resume_join()
        tasks.start_soon(self._pump)
        tasks.start_soon(self.control.router.run)
        tasks.start_soon(self.control.master.run)
        tasks.start_soon(self.control.commands.run)
        await tasks.start(self.work.supervisor.run)
        tasks.start_soon(self.work.models.run)
        tasks.start_soon(self.work.downloader.run)
        tasks.start_soon(self.work.worker.run)
        tasks.start_soon(self.control.membership.run)
        tasks.start_soon(self.reporter.run)
        tasks.start_soon(self._tick)
        if self.config.discovery:
            tasks.start_soon(self.discovery.run)
        if self.config.api_port >= 0:
            server = await tasks.start(serve, self.handle, self.config)
            self._api = server.address
        lock.publish(
            LockRecord(
                process_id=os.getpid(),
                node=self.node,
                name=self.name,
                api=self._api,
                cluster_address=self.mesh.address,
                version=__version__,
                started_at=self._started_at,
            )
        )
        _log.info("%s (%s) is up: cluster port %s", self.name, self.node[:12], self.mesh.address)

    async def stop(self) -> None:
        """End cleanly: hand mastership over, end the runners, say goodbye, keep the log."""
        await self.control.router.step_down()
        for peer in tuple(self._links_up):
            self.mesh.send(peer, Leaving(reason=f"{self.name} stops"))
        await self.work.supervisor.stop_all()
        await anyio.sleep(GOODBYE_SECONDS)
        self._tasks.cancel_scope.cancel()
        await self.control.router.close()

    def _peers_up(self) -> tuple[NodeId, ...]:
        return tuple(self._links_up)

    async def _run_mesh(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with self.mesh.received:
            await self.mesh.run(task_status=task_status)

    def _heard_of(self, node: NodeId, address: Address) -> None:
        self.mesh.add_candidate(node, address, SOURCE_DISCOVERY)

    def _resume_join(self) -> None:
        """Go on with a cluster whose log is not here: lost, or not received before the end."""
        self.control.membership.on_members = self._book.keep_only
        recovered = self._recovered
        if recovered.snapshot is not None or recovered.entries:
            return
        members = dict(self._book.load())
        cluster = recovered.cluster or self._book.cluster
        if cluster and members:
            if not recovered.cluster:
                _log.error("this node's log is gone; asking the members of its cluster for theirs")
            self.control.membership.joined(cluster, "", members)
        elif recovered.cluster:
            _log.warning("nothing is left of the cluster that was begun or joined; beginning anew")
            self.control.router.found_cluster(self.name)

    def _name_candidates(self) -> None:
        for address in self.config.peers:
            self.mesh.add_candidate(None, address, SOURCE_OPTION)
        for node, addresses in self._book.load().items():
            for address in addresses:
                self.mesh.add_candidate(node, address, SOURCE_BOOK)

    # -- messages ----------------------------------------------------------------------------------

    async def _pump(self) -> None:
        received = self.mesh.received
        async for first in received:
            for event in burst(first, received.receive_nowait):
                self._take(event)
            while self.control.router.overloaded:  # noqa: ASYNC110 - the disk has no bell
                await anyio.sleep(OVERLOAD_SECONDS)

    def _take(self, event: MeshEvent) -> None:
        match event:
            case PeerUp(peer=peer, name=name):
                is_member = peer in self.control.state().nodes
                _log.info("link with %s is up", self.control.name_of(peer) if is_member else name)
                self._links_up.add(peer)
                self.control.router.peer_up(peer)
                self.work.streams.on_peer_up(peer)
                self.reporter.peer_up(peer)
                self.reporter.gather_now("links")
            case PeerDown(peer=peer, refused=refused, reason=reason):
                _log.info("link with %s is down: %s", self.control.name_of(peer), reason)
                self._links_up.discard(peer)
                self.control.router.peer_down(peer, refused=refused)
                self.work.streams.on_peer_down(peer)
                self.reporter.gather_now("links")
            case Received(peer=peer, message=message):
                self._receive(peer, message)

    def _receive(self, peer: NodeId, message: PeerMessage) -> None:
        if isinstance(message, ReplicaMessage):
            self.control.router.receive(peer, message)
        elif isinstance(message, LogAsked | LogAnswered):
            self.remote_logs.on_message(peer, message)
        elif isinstance(message, StreamMessage):
            self.work.streams.on_message(peer, message)
        else:
            self._receive_service(peer, message)

    def _receive_service(self, peer: NodeId, message: ServiceMessage | PeerMessage) -> None:
        match message:
            case CommandSent() | PlanAsked():
                self.control.master.asked(peer, message)
            case CommandAnswered(answer=answer):
                self.control.commands.answered(peer, answer)
            case PlanAnswered():
                self.control.commands.answered(peer, message)
            case RegistersChanged(registers=registers):
                for register in registers:
                    self.control.registers.take(peer, register)
            case OrderSent() | OrderAnswered():
                self.work.orders.on_message(peer, message)
            case ListingAsked() | ListingTold() | PieceAsked() | PieceSent():
                self.work.pieces.on_message(peer, message)
            case AdmissionRotated() | JoinJudged():
                self.admission.take(message)
            case Leaving(reason=reason):
                _log.info("%s", reason)
                self.control.router.peer_down(peer, refused=True)
                self.control.master.node_left(peer)
            case _:
                pass  # addresses are the mesh's own business

    # -- changes -----------------------------------------------------------------------------------

    def _state_changed(self, before: State, after: State) -> None:
        self.control.membership.state_changed(before, after)
        if after.session != before.session:
            self.control.commands.master_changed()
            self.reporter.repeat()
        if after.nodes is not before.nodes:
            gone = {node for node, record in after.nodes.items() if record.lost}
            gone |= before.nodes.keys() - after.nodes.keys()
            for node in gone - self._lost:
                self.control.registers.forget(node)
            if self._lost - gone:
                self.reporter.repeat()
            self._lost = frozenset(gone)
        if after.cluster != before.cluster and after.cluster:
            self.mesh.set_cluster(after.cluster, after.cluster_name)
            self._book.belong_to(after.cluster)
        self.work.worker.wake()

    def _models_changed(self) -> None:
        self.reporter.gather_now("models")
        self.reporter.gather_now("downloads")

    async def _tick(self) -> None:
        while True:
            await anyio.sleep(TICK_SECONDS)
            self.work.streams.tick(clock.monotonic())
            await anyio.to_thread.run_sync(self._book.remember, self.mesh.proved_addresses())
            await self.admission.join_trusted()

    # -- figures and facts -------------------------------------------------------------------------

    def _probe(self) -> MachineFigures:
        return probe_figures(self.config.state_directory, self.config.model_directories[0])

    def _link_figures(self) -> LinkFigures:
        discovery = self.discovery.state if self.config.discovery else "off"
        return LinkFigures(links=self.mesh.links(), heard=self.mesh.heard(), discovery=discovery)

    def _describe(self) -> NodeDescribed:
        return NodeDescribed(
            node=self.node,
            name=self.name,
            machine=self._machine,
            version=__version__,
            incarnation=self._recovered.incarnation,
            addresses=self.mesh.addresses(),
        )

    def _local(self) -> LocalView:
        waiting: list[str] = []
        if self.control.router.master is None:
            waiting.append("no master: an election is running")
        joining = self.control.membership.join_trouble()
        if joining:
            waiting.append(joining)
        trouble = self.control.router.disk_trouble()
        if trouble:
            waiting.append(f"the disk: {trouble}")
        record = self.control.state().nodes.get(self.node)
        return LocalView(
            node=self.node,
            name=record.name if record is not None and record.own_name else self.name,
            version=__version__,
            process_id=os.getpid(),
            started_at=self._started_at,
            state_directory=str(self.config.state_directory),
            api=self._api,
            cluster_address=self.mesh.address,
            trust=self.mesh.trust,
            waiting=tuple(waiting),
            commands_pending=self.control.commands.pending_count,
        )


def _ask_own_process_to_stop() -> None:
    """The process has a way to stop, whoever runs it: screen, command or service manager."""
    os.kill(os.getpid(), signal.SIGTERM)
