"""The node's own handle: the surface that TUI, CLI and API see of a node in this process."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream

from node.core.instance_status import status
from node.handle import Invite, LocalView, LogLine, Rotation, StreamItem
from node.io import clock
from node.io.runner_files import RunnerFiles
from node.io.wakeup import Wakeup
from node.log import NodeLog
from node.model.card import ModelCard
from node.model.command import Accepted, Command, Refused, Wish
from node.model.download import HubModel, ModelOrder, OrderDone
from node.model.errors import (
    ExoctlError,
    NotFoundError,
    TimeoutExpiredError,
    UnreachableError,
)
from node.model.ids import CommandId, InstanceId, ModelId, NodeId, RequestId, RunnerId
from node.model.machine import Address
from node.model.register import JoinRequest, LinkRecord, Register
from node.model.request import GenerationItem, GenerationRequest
from node.model.state import State
from node.model.topology import Plan
from node.services.control_plane import ControlPlane
from node.services.requests import Requests
from node.services.runner_lines import runner_lines

PLAN_SECONDS = 10.0
JOIN_SECONDS = 15.0
MEASURE_SECONDS = 1.0
"""How long a link is filled to measure it, where a person asks."""
STATUS_SECONDS = 0.5
"""How often progress that is in no entry (layers loaded) is looked at while waiting."""
LOG_BYTES_MAX = 512 * 1024
"""Read from the end of a runner's log."""
RUNNER_SOURCE = "runner "
Result = TypeVar("Result")
NODE_SOURCE = "node "
"""All that another member logs."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the handle needs of the parts that only the runtime knows."""

    local: Callable[[], LocalView]
    invite: Callable[[float], Invite]
    join: Callable[[str, Address], Awaitable[None]]
    heard: Callable[[], tuple[Address, ...]]
    ask: Callable[[Address], Awaitable[JoinRequest]]
    finish: Callable[[str, float], Awaitable[None]]
    withdraw: Callable[[str], Awaitable[None]]
    judge: Callable[[str, bool], JoinRequest]
    rotate: Callable[[], Rotation]
    ping: Callable[[NodeId, float], Awaitable[LinkRecord]]
    cancel: Callable[[RequestId], bool]
    stop: Callable[[], None]
    order: Callable[[NodeId, ModelOrder, float], Awaitable[OrderDone]]
    search: Callable[[str], Awaitable[list[HubModel]]]
    describe: Callable[[ModelId, str], Awaitable[ModelCard]]
    remote_logs: Callable[[NodeId, str, int], Awaitable[list[LogLine]]]


class EmbeddedHandle:
    """Implements `NodeHandle` on the node's own parts."""

    def __init__(
        self, control: ControlPlane, requests: Requests, surroundings: Surroundings
    ) -> None:
        self._store = control.store
        self._registers = control.registers
        self._commands = control.commands
        self._membership = control.membership
        self._requests = requests
        self._around = surroundings
        self._log: NodeLog | None = None
        self._runner_files: RunnerFiles | None = None

    def attach_logs(self, log: NodeLog, runner_files: RunnerFiles) -> None:
        """Name where logs lie."""
        self._log, self._runner_files = log, runner_files

    @property
    def state(self) -> State:
        """The last committed state."""
        return self._store.state

    @property
    def registers(self) -> Mapping[tuple[NodeId, str], Register]:
        """Latest registers by (node, kind)."""
        return self._registers.registers

    async def local(self) -> LocalView:
        """Facts of the node itself."""
        return self._around.local()

    @asynccontextmanager
    async def subscribe(
        self, since: int | None = None
    ) -> AsyncGenerator[MemoryObjectReceiveStream[StreamItem]]:
        """A snapshot or the entries from `since` on, all registers, then what happens."""
        backlog = self._store.backlog(since)
        backlog.extend(self._registers.registers.values())
        with self._store.feed.reader(backlog) as reader:
            yield reader

    async def submit(
        self, command: Command, timeout_seconds: float = 30.0, command_id: CommandId | None = None
    ) -> Accepted | Refused:
        """Have the master decide."""
        return await self._commands.submit(command, timeout_seconds, command_id)

    async def plan(self, model: ModelId, wish: Wish) -> Plan:
        """Every way to place the model now.

        Raises:
            NotFoundError: no node has the model.
        """
        plan = await self._commands.plan(model, wish, PLAN_SECONDS)
        if plan.refusal is not None and plan.refusal.code == "model_not_found":
            raise NotFoundError(plan.refusal)
        return plan

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationItem, None]:
        """Generate; the last item is `Finished` or `Failed`."""
        async with aclosing(self._requests.generate(request)) as items:
            async for item in items:
                yield item

    async def order(
        self, node: NodeId, order: ModelOrder, timeout_seconds: float = 30.0
    ) -> OrderDone:
        """Have a node do something with its models or downloads."""
        return await self._around.order(node, order, timeout_seconds)

    async def search_models(self, text: str) -> list[HubModel]:
        """Models on the hub that match."""
        return await self._around.search(text)

    async def describe_model(self, model: ModelId, revision: str = "main") -> ModelCard:
        """The card of a model on the hub."""
        return await self._around.describe(model, revision)

    async def cancel(self, request: RequestId) -> bool:
        """End a generation anywhere in the cluster."""
        return self._around.cancel(request)

    async def invite(self, lifetime_seconds: float = 600.0) -> Invite:
        """Make a one-time code."""
        return self._around.invite(lifetime_seconds)

    async def join(self, code: str, peer: Address | None = None) -> None:
        """Join the cluster that the code came from, at `peer` or whoever was heard on the network.

        Raises:
            ConflictError: this node is in a cluster with others. RefusedError: wrong code.
            UnreachableError: nobody answers.
        """
        await self._first_that_answers(peer, lambda address: self._around.join(code, address))
        await self._settle()

    async def _first_that_answers(
        self, peer: Address | None, call: Callable[[Address], Awaitable[Result]]
    ) -> Result:
        """Turn to `peer`, or to each node that was heard until one agrees."""
        self._membership.check_may_join()
        addresses = (peer,) if peer is not None else self._around.heard()
        trouble = UnreachableError.because(
            "nobody_heard",
            "no other node was heard on the network",
            "name one of the other cluster: exoctl cluster join … --peer HOST:PORT",
        )
        for address in addresses:
            try:
                return await call(address)
            except ExoctlError as error:
                trouble = error
        raise trouble

    async def ask_to_join(self, peer: Address | None = None) -> JoinRequest:
        """Ask `peer`, or the first node that was heard, to be let in by a person."""
        return await self._first_that_answers(peer, self._around.ask)

    async def finish_join(
        self, request: str, *, matches: bool, timeout_seconds: float = 600.0
    ) -> None:
        """Wait for the member's owner and become a member, or withdraw."""
        if not matches:
            await self._around.withdraw(request)
            return
        await self._around.finish(request, timeout_seconds)
        await self._settle()

    async def judge_join(self, request: str, *, approve: bool) -> JoinRequest:
        """Decide on a machine that asks this node or another member."""
        return self._around.judge(request, approve)

    async def _settle(self) -> None:
        """Wait until this node is a member like any other, for a while."""
        wakeup = Wakeup()

        def listener(_before: State, _after: State) -> None:
            wakeup.ring()

        with anyio.move_on_after(JOIN_SECONDS), self._store.listening(listener):
            while not self._membership.is_settled:
                await wakeup.wait(JOIN_SECONDS)
            return
        raise TimeoutExpiredError.because(
            "join_slow",
            f"the cluster admitted this node, but its log has not come within {JOIN_SECONDS:g} s",
            "see `exoctl status`: it goes on by itself once the members can be reached",
        )

    async def rotate(self) -> Rotation:
        """Withdraw what lets machines in, and change the secret."""
        return self._around.rotate()

    async def ping(self, peer: NodeId, *, bandwidth: bool = False) -> LinkRecord:
        """The link with another node, measured now."""
        return await self._around.ping(peer, MEASURE_SECONDS if bandwidth else 0.0)

    async def leave(self) -> None:
        """Leave the cluster and become a cluster of one."""
        await self._membership.leave()

    async def log_sources(self) -> list[str]:
        """Names that `logs` takes: this node's own, then other members' runners and logs."""
        own = self._log.ring.sources() if self._log is not None else []
        here, state = self._around.local().node, self._store.state
        runners = [RUNNER_SOURCE + runner for runner in self._own_runners()]
        away = [
            RUNNER_SOURCE + record.runner
            for record in state.runners.values()
            if RUNNER_SOURCE + record.runner not in runners
        ]
        others = [
            NODE_SOURCE + record.name
            for record in state.nodes.values()
            if record.node != here and not record.lost
        ]
        return own + runners + away + others

    async def logs(self, source: str = "", lines_max: int = 1000) -> list[LogLine]:
        """The last lines of a log of this node or of another member.

        Raises:
            NotFoundError: no such source. UnreachableError: its node can't be asked.
        """
        here, state = self._around.local().node, self._store.state
        if source.startswith(NODE_SOURCE):
            name = source.removeprefix(NODE_SOURCE)
            for record in state.nodes.values():
                if name in (record.name, record.node) and record.node != here:
                    return await self._around.remote_logs(record.node, "", lines_max)
        if source.startswith(RUNNER_SOURCE):
            runner = state.runners.get(RunnerId(source.removeprefix(RUNNER_SOURCE)))
            if runner is not None and runner.node != here:
                return await self._around.remote_logs(runner.node, source, lines_max)
        return await self.own_logs(source, lines_max)

    async def own_logs(self, source: str, lines_max: int) -> list[LogLine]:
        """The last lines of the node's own log and its runners' output.

        Raises:
            NotFoundError: no such source.
        """
        if source.startswith(RUNNER_SOURCE):
            return await self._runner_log(source, lines_max)
        if source and source not in await self.log_sources():
            raise NotFoundError.because(
                "no_such_log",
                f"no log is called {source!r}",
                "known: " + ", ".join(await self.log_sources()),
            )
        lines = [
            LogLine(at=row.at, level=row.level, source=row.source, text=row.text)
            for row in (self._log.ring.rows(source, lines_max) if self._log is not None else [])
        ]
        if not source:
            for runner in self._own_runners():
                lines.extend(await self._runner_log(RUNNER_SOURCE + runner, lines_max))
            lines.sort(key=lambda line: line.at)
        return lines[-lines_max:]

    async def _runner_log(self, source: str, lines_max: int) -> list[LogLine]:
        runner = RunnerId(source.removeprefix(RUNNER_SOURCE))
        if self._runner_files is None or runner not in self._own_runners():
            raise NotFoundError.because("no_such_log", f"no runner {runner!r} has a log here")
        path = self._runner_files.log(runner)
        try:
            return await anyio.to_thread.run_sync(_read_tail, path, source, lines_max)
        except OSError as error:
            raise ExoctlError.because(
                "log_unreadable", f"{path}: {error.strerror or error}", "see its owner and mode"
            ) from error

    def _own_runners(self) -> list[RunnerId]:
        if self._runner_files is None:
            return []
        return [
            record.runner
            for record in self._store.state.runners.values()
            if record.node == self._membership.node
            and self._runner_files.log(record.runner).exists()
        ]

    async def wait_instance(self, instance: InstanceId, timeout_seconds: float) -> None:
        """Return once the instance is ready.

        Raises:
            NotFoundError: it is gone. ExoctlError: it failed. TimeoutExpiredError: not in time.
        """
        wakeup = Wakeup()

        def listener(_before: State, _after: State) -> None:
            wakeup.ring()

        deadline = clock.monotonic() + timeout_seconds
        with self._store.listening(listener):
            while True:
                found = status(self.state, instance, self.registers)
                if instance not in self.state.instances:
                    raise NotFoundError.because("no_such_instance", f"no instance {instance!r}")
                if found.ready:
                    return
                if found.failure is not None and found.word == "FAILED":
                    raise ExoctlError(found.failure)
                if clock.monotonic() > deadline:
                    raise TimeoutExpiredError.because(
                        "not_ready",
                        f"{instance} is {found.word} after {timeout_seconds:g} s: {found.detail}",
                        "see `exoctl logs` and `exoctl ps`; it may still become ready",
                    )
                await wakeup.wait(STATUS_SECONDS)

    async def shutdown(self) -> None:
        """End the node cleanly."""
        self._around.stop()


def _read_tail(path: Path, source: str, lines_max: int) -> list[LogLine]:
    with path.open("rb") as file:
        file.seek(0, 2)
        size = file.tell()
        file.seek(max(0, size - LOG_BYTES_MAX))
        text = file.read(LOG_BYTES_MAX).decode("utf-8", "replace")
    return runner_lines(text.splitlines()[-lines_max:], source)
