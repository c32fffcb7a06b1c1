"""Router, master, commands and streams of whole nodes across elections, in virtual time.

Every case runs under many seeds: each draws its own delays, order of tasks and moment of the fault.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import anyio
import anyio.abc
import pytest

from node.core.apply import read_event
from node.core.replica.durable import Recovered
from node.core.replica.effects import Write
from node.io import clock
from node.io.log_file import LogFile, LogStatus
from node.io.wakeup import Wakeup
from node.model.command import Accepted, Command, CordonNode, PlaceInstance, Refused, Wish
from node.model.event import CommandDecided, NodeCordoned, NodeDescribed
from node.model.ids import ModelId, NodeId, RequestId
from node.model.request import (
    Delta,
    Finished,
    FinishReason,
    GenerationItem,
    GenerationRequest,
    Usage,
)
from node.model.session import Entry, EventId
from node.model.state import State
from node.services import event_router
from node.services.commands import Commands
from node.services.event_router import EventRouter
from node.services.master import Master
from node.services.state_store import StateStore
from node.services.streams import Streams
from node.wire.message import CommandAnswered, CommandSent
from tests.fakes.fleet import GIB, MAC, card, fleet
from tests.fakes.routers import form_cluster, until
from tests.fakes.virtual_time import run_in_virtual_time

SEEDS = range(12)
PATIENCE_SECONDS = 30.0
MODEL = card((GIB // 4,) * 8)


class MemoryWriter:
    """The log writer on a disk that takes 1 to 10 ms."""

    failure = None
    damage = ""
    overloaded = False
    random: Random

    def __init__(self, log: LogFile) -> None:
        self._wakeup = Wakeup()
        self._waiting: list[tuple[float, int]] = []

    def start(self, wakeup: Wakeup, _: Callable[[], None]) -> None:
        self._wakeup = wakeup

    def write(self, write: Write, *, alone: bool) -> None:
        self._waiting.append((clock.monotonic() + self.random.uniform(0.001, 0.01), write.token))

    def flush(self, *, alone: bool) -> None:
        self._wakeup.ring()

    def take_synced(self, now: float) -> int | None:
        token = None
        while self._waiting and self._waiting[0][0] <= now:
            token = self._waiting.pop(0)[1]
        return token

    def stuck(self, now: float) -> str:
        return ""

    trouble = stuck

    def status(self) -> LogStatus:
        return LogStatus(bytes_on_disk=0, waiting=0, disk_full=False)

    async def close(self) -> None:
        pass


class Network:
    """Ordered links with delays; a node that is gone hears and says nothing more."""

    def __init__(self, tasks: anyio.abc.TaskGroup, random: Random) -> None:
        self.random = random
        self.tasks = tasks
        self.nodes: dict[NodeId, WholeNode] = {}
        self._arrivals: dict[tuple[NodeId, NodeId], float] = {}

    def send(self, source: NodeId, target: NodeId, message: object) -> bool:
        if source not in self.nodes or target not in self.nodes:
            return False
        delay_seconds = self.random.uniform(0.0005, 0.02)
        arrival = max(
            self._arrivals.get((source, target), 0.0) + 1e-6, clock.monotonic() + delay_seconds
        )
        self._arrivals[source, target] = arrival
        self.tasks.start_soon(self._deliver, arrival, source, target, message)
        return True

    async def _deliver(self, at: float, source: NodeId, target: NodeId, message: object) -> None:
        await anyio.sleep_until(at)
        if source in self.nodes and target in self.nodes:
            self.nodes[target].take(source, message)

    def kill(self, gone: "WholeNode") -> None:
        """End a node; the others see its links end."""
        del self.nodes[gone.node]
        gone.scope.cancel()
        for node in self.nodes.values():
            node.router.peer_down(gone.node, refused=True)


class WholeNode:
    """What orders and decides in a node, and its streams; the runtime without I/O."""

    def __init__(self, network: Network, name: str) -> None:
        self.node = NodeId(name)
        self.network = network
        self.scope = anyio.CancelScope()
        self.entries: list[Entry] = []
        self.store = StateStore()
        self.recovered = Recovered(incarnation=1)
        no_log: Any = None
        send: Callable[..., bool] = partial(network.send, self.node)
        self.router = EventRouter(self.node, no_log, self.recovered, self.store, send)
        self.master = Master(self.node, self.router, self._facts, self._reply, lambda: self.state)
        self.router.attach_desk(self.master)
        self.commands = Commands(
            self.node,
            self.store,
            lambda: self.router.cluster,
            lambda: self.router.master,
            send,
            partial(self.master.asked, self.node),
        )
        self.streams = Streams(network.tasks, send, generate, lambda request: None)
        self.store.on_change(self._changed)
        network.nodes[self.node] = self

    @property
    def state(self) -> State:
        return self.store.state

    def _facts(self) -> Any:
        return fleet(dict.fromkeys(("a", "b", "c"), 10 * GIB), MODEL)[1]

    def _reply(self, asker: NodeId, message: Any) -> None:
        if asker == self.node:
            self.commands.answered(self.node, message.answer)
        else:
            self.network.send(self.node, asker, message)

    def _changed(self, before: State, after: State) -> None:
        if before.session != after.session:
            self.commands.master_changed()

    def take(self, source: NodeId, message: Any) -> None:
        match message:
            case CommandSent():
                self.master.asked(source, message)
            case CommandAnswered(answer=answer):
                self.commands.answered(source, answer)
            case _ if type(message).__name__.startswith("Stream"):
                self.streams.on_message(source, message)
            case _:
                self.router.receive(source, message)

    async def run(self) -> None:
        self.router.start(self.recovered, self.node)
        with self.scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.router.run)
                tasks.start_soon(self.master.run)
                tasks.start_soon(self.commands.run)

    async def submit(self, command: Command) -> Accepted | Refused:
        return await self.commands.submit(command, PATIENCE_SECONDS)

    def decisions(self) -> list[CommandDecided]:
        events = [read_event(entry.payload) for entry in self.store.recent()]
        return [event for event in events if isinstance(event, CommandDecided)]


async def generate(_: GenerationRequest) -> AsyncGenerator[GenerationItem, None]:
    for number in range(100):
        await anyio.sleep(0.05)
        yield Delta(index=number, text=str(number), tokens=(number,))
    yield Finished(reason=FinishReason.STOP, usage=Usage(prompt_tokens=1, output_tokens=100))


@asynccontextmanager
async def whole_nodes(random: Random, *names: str) -> AsyncGenerator[list[WholeNode]]:
    async with anyio.create_task_group() as tasks:
        network = Network(tasks, random)
        nodes = [WholeNode(network, name) for name in names]
        for node in nodes:
            tasks.start_soon(node.run)
        with anyio.fail_after(10 * PATIENCE_SECONDS):
            await form_cluster(nodes)  # type: ignore[arg-type]
            for node in nodes:
                described = NodeDescribed(
                    node=node.node, name=node.node, machine=MAC, version="1", incarnation=1
                )
                node.router.publish(described)
            await until(lambda: all(len(known(node)) == len(nodes) for node in nodes))
            yield nodes
        tasks.cancel_scope.cancel()


def known(node: WholeNode) -> list[NodeId]:
    return [name for name, record in node.state.nodes.items() if record.machine is not None]


async def settled(*nodes: WholeNode) -> None:
    """Until one masters and all know it, nothing waits, and all states are one."""
    await until(
        lambda: (
            [node.node for node in nodes if node.router.is_master]
            == [nodes[0].state.session.master]
            and all(node.state == nodes[0].state for node in nodes)
            and not any(node.router.figures().unacknowledged for node in nodes)
            and not any(node.commands.pending_count for node in nodes)
        )
    )


@pytest.fixture(params=SEEDS)
def virtual(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Random], Awaitable[None]]], None]:
    """Runs a program in virtual time, with this seed."""
    monkeypatch.setattr(event_router, "LogWriter", MemoryWriter)

    def run(program: Callable[[Random], Awaitable[None]]) -> None:
        MemoryWriter.random = Random(request.param)
        run_in_virtual_time(monkeypatch, request.param, program)

    return run


Virtual = Callable[[Callable[[Random], Awaitable[None]]], None]


def test_the_very_first_command_places_over_two_nodes_amid_an_election(virtual: Virtual) -> None:
    async def program(random: Random) -> None:
        async with whole_nodes(random, "a", "b") as (a, b):
            master = next(node for node in (a, b) if node.router.is_master)
            asker = random.choice((a, b))
            answers: list[Accepted | Refused] = []

            async def ask() -> None:
                await anyio.sleep(random.uniform(0, 0.06))
                wish = Wish(nodes_min=2)
                answers.append(await asker.submit(PlaceInstance(model=MODEL.model, wish=wish)))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                tasks.start_soon(master.router.step_down)
            await settled(a, b)
            (answer,) = answers
            assert isinstance(answer, Accepted), answer
            (instance,) = b.state.instances.values()
            assert instance.instance == answer.subject
            assert sorted(shard.node for shard in instance.shards) == ["a", "b"]
            assert len(a.decisions()) == 1

    virtual(program)


def test_commands_that_are_being_decided_when_the_master_dies_are_decided_once(
    virtual: Virtual,
) -> None:
    async def program(random: Random) -> None:
        async with whole_nodes(random, "a", "b", "c") as nodes:
            master = next(node for node in nodes if node.router.is_master)
            b, c = (node for node in nodes if node is not master)
            answers: dict[str, Accepted | Refused] = {}

            async def ask(key: str, node: WholeNode, command: Command) -> None:
                await anyio.sleep(random.uniform(0, 0.1))
                answers[key] = await node.submit(command)

            async with anyio.create_task_group() as tasks:
                wish = Wish(nodes=(b.node, c.node))
                tasks.start_soon(ask, "place", b, PlaceInstance(model=MODEL.model, wish=wish))
                for key, node in (("one", b), ("two", c)):
                    tasks.start_soon(ask, key, node, CordonNode(node=node.node, cordoned=True))
                await anyio.sleep(random.uniform(0, 0.12))
                b.network.kill(master)
            await settled(b, c)
            decided = [decision.command for decision in b.decisions()]
            assert len(decided) == len(set(decided))
            for answer in answers.values():
                assert isinstance(answer, Accepted) == (answer.id in decided), answer
            assert len(answers) == 3
            assert len(b.state.instances) == isinstance(answers["place"], Accepted)
            assert b.state.session.term == 2

    virtual(program)


def test_one_writer_and_one_stream_outlast_three_elections(virtual: Virtual) -> None:
    async def program(random: Random) -> None:
        async with whole_nodes(random, "a", "b", "c") as nodes:
            _, b, c = nodes
            seen: list[int] = []
            settled_ids: list[EventId] = []
            written: list[EventId] = []

            async def read() -> None:
                request = GenerationRequest(id=RequestId("q"), model=ModelId("m"), prompt="hi")
                async for item in c.streams.read(b.node, request):
                    assert isinstance(item, Delta | Finished), item
                    if isinstance(item, Delta):
                        seen.append(item.index)

            def settle(entry: Entry | None) -> None:
                assert entry is not None
                settled_ids.append(entry.id)

            async def write() -> None:
                for number in range(60):
                    event = NodeCordoned(node=c.node, cordoned=number % 2 == 0)
                    written.append(c.router.publish(event, settle))
                    await anyio.sleep(random.uniform(0, 0.15))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                tasks.start_soon(write)
                for _ in range(3):
                    await anyio.sleep(random.uniform(0.1, 0.8))
                    await until(lambda: any(node.router.is_master for node in nodes))
                    master = next(node for node in nodes if node.router.is_master)
                    await master.router.step_down()
            await settled(*nodes)
            assert seen == list(range(100))
            assert settled_ids == written
            assert b.state.session.term >= 4

    virtual(program)


def test_the_same_seed_gives_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_router, "LogWriter", MemoryWriter)
    logs: list[list[tuple[EventId, float]]] = []

    async def program(random: Random) -> None:
        async with whole_nodes(random, "a", "b", "c") as nodes:
            await nodes[0].router.step_down()
            await settled(*nodes)
            logs.append([(entry.id, entry.written_at) for entry in nodes[1].store.recent()])

    for seed in (1, 1, 2):
        MemoryWriter.random = Random(seed)
        run_in_virtual_time(monkeypatch, seed, program)
    assert logs[0] == logs[1] != logs[2]
