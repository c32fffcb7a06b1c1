"""Routers on real replicas and real log files, several in one loop, over links that can be cut."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from node.core.replica.messages import Proposal, ReplicaMessage
from node.io.log_file import open_log
from node.model.event import NodeAdmitted, NodeCordoned, ProposalRejected
from node.model.ids import NodeId
from node.model.session import Entry, Session
from node.model.state import State
from node.services.event_router import EventRouter
from node.services.state_store import StateStore

DEADLINE_SECONDS = 20.0


class Desk:
    """Records what the router tells a master."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.tip: list[Entry] = []
        self.lost: list[str] = []
        self.verdict: ProposalRejected | None = None
        self.judged: list[Proposal] = []

    def became_master(self, session: Session, tip: State) -> None:
        self.sessions.append(session)

    def tip_appended(self, entries: tuple[Entry, ...]) -> None:
        self.tip.extend(entries)

    def lost_mastership(self, reason: str) -> None:
        self.lost.append(reason)

    def revalidate(self, proposal: Proposal) -> ProposalRejected | None:
        self.judged.append(proposal)
        return self.verdict


class Lan:
    """Links between routers of one process; each can be cut."""

    def __init__(self) -> None:
        self.nodes: dict[NodeId, Member] = {}
        self.cut: set[frozenset[NodeId]] = set()
        self.queue: list[tuple[NodeId, NodeId, ReplicaMessage]] = []

    def send(self, source: NodeId, target: NodeId, message: ReplicaMessage) -> bool:
        if frozenset((source, target)) in self.cut or target not in self.nodes:
            return False
        self.queue.append((source, target, message))
        return True

    async def run(self) -> None:
        while True:
            queue, self.queue = self.queue, []
            for source, target, message in queue:
                member = self.nodes.get(target)
                if member is not None and frozenset((source, target)) not in self.cut:
                    member.router.receive(source, message)
            await anyio.sleep(0.001)


class Member:
    """One node's router with its store and desk."""

    def __init__(self, lan: Lan, name: str, directory: Path) -> None:
        self.node = NodeId(name)
        self.store = StateStore()
        self.desk = Desk()
        log, self.recovered = open_log(directory / name)
        self.router = EventRouter(
            self.node,
            log,
            self.recovered,
            self.store,
            lambda peer, message: lan.send(self.node, peer, message),
        )
        self.router.attach_desk(self.desk)
        lan.nodes[self.node] = self

    @property
    def state(self) -> State:
        return self.store.state


@asynccontextmanager
async def running(lan: Lan, directory: Path, *names: str) -> AsyncGenerator[list[Member]]:
    members = [Member(lan, name, directory) for name in names]
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lan.run)
            for member in members:
                member.router.start(member.recovered, member.node)
                tasks.start_soon(member.router.run)
            with anyio.fail_after(DEADLINE_SECONDS):
                yield members
            tasks.cancel_scope.cancel()
    finally:
        for member in members:
            await member.router.close()


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - many conditions, one deadline around all of them
        await anyio.sleep(0.005)


async def form_cluster(members: list[Member]) -> None:
    first, *others = members
    await until(lambda: first.router.is_master and bool(first.state.cluster))
    for other in others:
        first.router.publish(NodeAdmitted(node=other.node, name=other.node, admitted_by=first.node))
        await until(lambda node=other.node: node in first.state.nodes)
        other.router.join_cluster(first.router.cluster, tuple(first.state.nodes))
        for member in members:
            if member.node in first.state.nodes and member is not other:
                member.router.peer_up(other.node)
                other.router.peer_up(member.node)
        await until(lambda state=other: state.state.nodes == first.state.nodes)


def cordon(node: NodeId, on: bool) -> NodeCordoned:
    return NodeCordoned(node=node, cordoned=on)
