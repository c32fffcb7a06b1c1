"""Meshes on loopback in one process, and strangers that talk to them as they like."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from node.core.peer_table import PeerPolicy
from node.io.identity import Identity, load_or_create_identity
from node.io.mesh import tls
from node.io.mesh.event import MeshEvent, PeerUp, Received
from node.io.mesh.greeting import Dialler, GreetingStream, Met, Purpose
from node.io.mesh.limits import MeshLimits
from node.io.mesh.mesh import Mesh, MeshSettings
from node.io.mesh.tls_stream import TlsStream
from node.model.ids import ClusterId, NodeId
from node.model.machine import Address
from node.wire.handshake import PROTOCOL, Bearing, Granted, Verdict, cluster_hint

CLUSTER = ClusterId("c" * 32)
OTHER_CLUSTER = ClusterId("d" * 32)
PATIENCE_SECONDS = 30.0
E = TypeVar("E", bound=MeshEvent)


class LabNode:
    """A mesh that runs, and what it has told."""

    def __init__(self, mesh: Mesh, name: str) -> None:
        self.mesh = mesh
        self.name = name
        self.told: list[MeshEvent] = []
        self._scope = anyio.CancelScope()
        self._ended, self._end = anyio.create_memory_object_stream[None](1)

    @property
    def node(self) -> NodeId:
        return self.mesh.node

    @property
    def address(self) -> Address:
        return self.mesh.address

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        try:
            with self._scope:
                await self.mesh.run(task_status=task_status)
        finally:
            self._ended.close()

    async def stop(self) -> None:
        self._scope.cancel()
        with anyio.fail_after(PATIENCE_SECONDS):
            try:
                await self._end.receive()
            except anyio.EndOfStream:
                return

    async def next_event(self) -> MeshEvent:
        with anyio.fail_after(PATIENCE_SECONDS):
            event = await self.mesh.received.receive()
        self.told.append(event)
        return event

    async def next_of(self, kind: type[E]) -> E:
        """The next event of this type; others before it are only kept in `told`."""
        while True:
            event = await self.next_event()
            if isinstance(event, kind):
                return event

    async def next_from(self, peer: NodeId) -> Received:
        while True:
            received = await self.next_of(Received)
            if received.peer == peer:
                return received

    def close(self) -> None:
        self.mesh.received.close()
        self._end.close()


class Lab:
    """Starts nodes; they stop with it."""

    def __init__(self, group: TaskGroup, directory: Path) -> None:
        self._group = group
        self._directory = directory
        self._nodes: list[LabNode] = []

    def identity(self, name: str) -> Identity:
        """The same for the same name."""
        return load_or_create_identity(self._directory / name)

    async def start(
        self,
        name: str,
        *,
        cluster: ClusterId = CLUSTER,
        port: int = 0,
        limits: MeshLimits | None = None,
        policy: PeerPolicy | None = None,
        trust: str = "invite",
    ) -> LabNode:
        settings = MeshSettings(
            name=name,
            cluster=cluster,
            cluster_name=f"cluster {cluster[0]}",
            bind="127.0.0.1",
            port=port,
            trust=trust,
            version="1",
            limits=limits or MeshLimits(),
            policy=policy or PeerPolicy(),
        )
        node = LabNode(Mesh(self.identity(name), settings), name)
        self._nodes.append(node)
        await self._group.start(node.run)
        return node

    async def link(self, *nodes: LabNode) -> None:
        """Admit each to each, and return once every pair has told of its link."""
        for node in nodes:
            node.mesh.set_admitted(members(*nodes))
        for node in nodes:
            for _ in nodes[1:]:
                await node.next_of(PeerUp)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            for node in self._nodes:
                await node.stop()
                node.close()


async def eventually(condition: Callable[[], bool]) -> None:
    """Return once the condition holds; for what no event tells of."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - there is nothing to wait on
            await anyio.sleep(0.005)


def members(*nodes: LabNode) -> dict[NodeId, tuple[Address, ...]]:
    return {node.node: (node.address,) for node in nodes}


@asynccontextmanager
async def open_lab(directory: Path) -> AsyncGenerator[Lab, None]:
    async with anyio.create_task_group() as group:
        lab = Lab(group, directory)
        try:
            yield lab
        finally:
            await lab.close()
            group.cancel_scope.cancel()


class Stranger:
    """A TLS connection to a mesh from somebody who is free to misbehave."""

    def __init__(self, stream: TlsStream, identity: Identity) -> None:
        self.stream = stream
        self.identity = identity
        self.wire = GreetingStream(stream)
        self.dialler = Dialler(self.wire, identity)

    async def greet(
        self, bearing: Bearing | None = None, purpose: Purpose = "link", code_key: bytes = b""
    ) -> Verdict | Granted:
        met = await self.introduce(bearing, purpose)
        return await self.dialler.prove(met, code_key=code_key)

    async def introduce(self, bearing: Bearing | None = None, purpose: Purpose = "link") -> Met:
        server, certificate = tls.server_of(self.stream)
        return await self.dialler.introduce(bearing or bearing_of(), purpose, server, certificate)

    async def is_closed_by_peer(self) -> bool:
        """Wait for the other side to close, whatever it still says."""
        with anyio.move_on_after(PATIENCE_SECONDS):
            try:
                while True:
                    await self.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, OSError):
                return True
        return False


def bearing_of(**changes: object) -> Bearing:
    facts: Mapping[str, object] = {
        "protocol": PROTOCOL,
        "cluster": cluster_hint(CLUSTER),
        "process": "stranger",
        "name": "stranger",
        "port": 1,
        **changes,
    }
    return Bearing(**facts)  # pyright: ignore[reportArgumentType]


@asynccontextmanager
async def call(address: Address, identity: Identity) -> AsyncGenerator[Stranger, None]:
    connection = await anyio.connect_tcp(address.host, address.port)
    stream = await tls.wrap(connection, tls.client_context(), server_side=False)
    try:
        yield Stranger(stream, identity)
    finally:
        await anyio.aclose_forcefully(stream)
