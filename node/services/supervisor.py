"""Runs the runners of this node: one child per shard, ended with the node, owned by no session."""

import contextlib
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from node.core.failure_text import short_failure
from node.core.runner_watch import RunnerLimits
from node.core.work_plan import LocalRunner
from node.io import clock
from node.io.child_process import end_stranger, is_ours
from node.io.runner_files import RunnerFile, RunnerFiles
from node.io.wakeup import Wakeup
from node.log import logger
from node.model.errors import BusyError, Failure, NotFoundError
from node.model.ids import RequestId, RunnerId
from node.model.instance import RunnerPhase, RunnerRecord
from node.model.register import RunnerFigures
from node.model.request import Failed, Finished, GenerationItem, GenerationRequest
from node.runner.claim import is_secret
from node.runner.protocol import Connect
from node.services.runner_keeper import RunnerKeeper, RunnerOrder, RunnerSettings
from node.version import __version__

STOP_SECONDS = 2.0
"""What runners get to end by themselves when the node stops."""
STOP_TERMINATE_SECONDS = 1.0
"""And then to end by signal, before they are killed."""
ADOPT_WAIT_SECONDS = 1.0
"""How long the start of a node waits for the runners of its earlier life to answer."""

_log = logger("supervisor")


def runner_settings(
    environment: Mapping[str, str], incarnation: int, limits: RunnerLimits | None = None
) -> RunnerSettings:
    """How this Python's own `node.runner` is started, in this life of the node."""
    return RunnerSettings(
        command=(sys.executable, "-m", "node.runner"),
        environment=environment,
        limits=limits or RunnerLimits(),
        incarnation=incarnation,
    )


class Supervisor:
    """Made once per node. `run` owns the children; everything else returns at once."""

    def __init__(self, state_directory: Path, settings: RunnerSettings) -> None:
        self._files = RunnerFiles(state_directory)
        self._settings = settings
        self._keepers: dict[RunnerId, RunnerKeeper] = {}
        self._over: dict[RunnerId, RunnerRecord] = {}
        self._logged: dict[RunnerId, RunnerPhase] = {}
        self._listeners: list[Callable[[RunnerRecord], None]] = []
        self._tasks: anyio.abc.TaskGroup | None = None
        self._ended = Wakeup()
        self._told = Wakeup()
        self._closing = False

    def on_change(self, listener: Callable[[RunnerRecord], None]) -> None:
        """Call `listener` at each transition of a runner; it must not block or raise."""
        self._listeners.append(listener)

    async def run(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Own the children until cancelled; none is left then. Started once runners can be started.

        Runners of an earlier life of this node, which then ended without a goodbye, are adopted.
        What can't be is ended first: its memory is needed.

        Raises:
            OSError: the state directory can't be written.
        """
        await anyio.to_thread.run_sync(self._files.prepare)
        adopted: list[tuple[RunnerFile, RunnerOrder]] = []
        async with anyio.create_task_group() as tasks:
            for leftover in await anyio.to_thread.run_sync(self._files.read_all):
                order = await anyio.to_thread.run_sync(self._order_of, leftover)
                if order is not None:
                    adopted.append((leftover, order))
                else:
                    tasks.start_soon(self._end_leftover, leftover)
        living = [file.runner for file, _ in adopted]
        await anyio.to_thread.run_sync(self._files.sweep, living)
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                for file, order in adopted:
                    keeper = RunnerKeeper(order, self._files, self._settings, self._tell, file)
                    self._keepers[file.runner] = keeper
                    tasks.start_soon(self._keep, keeper)
                await self._wait_for_adopted()
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._tasks = None
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._files.close)

    def _is_ours(self, file: RunnerFile) -> bool:
        words = self._files.command_words(file.runner)
        return is_ours(file.process_id, file.start_time, words)

    def _order_of(self, file: RunnerFile) -> RunnerOrder | None:
        """What a runner of an earlier life holds, where it lives on and can be adopted."""
        if not self._is_ours(file) or file.version != __version__ or not is_secret(file.secret):
            return None
        try:
            order = msgspec.json.decode(file.order, type=RunnerOrder)
        except (msgspec.MsgspecError, RecursionError):
            return None
        prepare = order.prepare
        told = (prepare.runner, prepare.instance, prepare.attempt)
        return order if told == (file.runner, file.instance, file.attempt) else None

    async def _end_leftover(self, leftover: RunnerFile) -> None:
        """End what can't be adopted, if it is a runner at all: a file may say anything."""
        if await anyio.to_thread.run_sync(self._is_ours, leftover):
            _log.info("ending runner %s of an earlier life", leftover.runner)
            if not await end_stranger(leftover.process_id, leftover.start_time):
                _log.error("process %d does not end, not even killed", leftover.process_id)
        await anyio.to_thread.run_sync(self._files.remove, leftover.runner)

    async def _wait_for_adopted(self) -> None:
        """Those that answer do so at once; nobody is kept waiting by one that does not."""
        with anyio.move_on_after(ADOPT_WAIT_SECONDS):
            while any(keeper.is_adopting for keeper in self._keepers.values()):
                await self._told.wait(ADOPT_WAIT_SECONDS)

    async def stop_all(self) -> None:
        """End every runner, politely first: all are gone within 5 seconds, and no more start."""
        self._closing = True
        for keeper in list(self._keepers.values()):
            keeper.stop()
        if not await self._wait_for_none(STOP_SECONDS):
            for keeper in list(self._keepers.values()):
                keeper.kill(STOP_TERMINATE_SECONDS)
            await self._wait_for_none(STOP_SECONDS)

    async def _wait_for_none(self, deadline_seconds: float) -> bool:
        with anyio.move_on_after(deadline_seconds):
            while self._keepers:
                await self._ended.wait(deadline_seconds)
        return not self._keepers

    # -- runners -----------------------------------------------------------------------------------

    def start(self, order: RunnerOrder) -> None:
        """Start a runner's child; one that is running already is left alone, and so is a start
        that comes while the node stops.

        Raises:
            UsageError: the runner's id is no runner id.
        """
        runner = order.prepare.runner
        self._files.socket(runner)
        if runner in self._keepers or self._closing:
            return
        if self._tasks is None:
            raise RuntimeError("the supervisor is not running")
        self._over.pop(runner, None)
        keeper = RunnerKeeper(order, self._files, self._settings, self._tell)
        self._keepers[runner] = keeper
        self._tasks.start_soon(self._keep, keeper)

    async def _keep(self, keeper: RunnerKeeper) -> None:
        try:
            await keeper.run()
        finally:
            record = keeper.record
            del self._keepers[record.runner]
            self._over[record.runner] = record
            self._tell(record)
            self._logged.pop(record.runner, None)
            self._ended.ring()

    def refuse(self, order: RunnerOrder, failure: Failure) -> None:
        """Note a runner as failed that can't even be started."""
        record = RunnerRecord(
            runner=order.prepare.runner,
            instance=order.prepare.instance,
            node=order.node,
            phase=RunnerPhase.FAILED,
            attempt=order.prepare.attempt,
            failure=short_failure(failure),
            changed_at=clock.wall(),
        )
        self._over[record.runner] = record
        self._tell(record)

    def connect(self, runner: RunnerId, message: Connect) -> None:
        """Tell a runner its neighbours."""
        keeper = self._keepers.get(runner)
        if keeper is not None:
            keeper.connect(message)

    def stop(self, runner: RunnerId) -> None:
        """Have a runner end, by force once its time is up."""
        keeper = self._keepers.get(runner)
        if keeper is not None:
            keeper.stop()

    def forget(self, runner: RunnerId) -> None:
        """Drop what is kept of a runner that ended and won't be started again."""
        if self._over.pop(runner, None) is not None:
            self._files.remove_scratch(runner)

    def local(self) -> dict[RunnerId, LocalRunner]:
        """Every runner that runs here or ended here and is not forgotten."""
        ended = {
            runner: LocalRunner(record=record, ended=True) for runner, record in self._over.items()
        }
        return ended | {runner: keeper.local for runner, keeper in self._keepers.items()}

    def figures(self) -> RunnerFigures:
        """What the living runners do now."""
        return RunnerFigures(runners=tuple(keeper.progress for keeper in self._keepers.values()))

    def log_paths(self) -> dict[RunnerId, Path]:
        """The log of every runner that `local` names."""
        return {runner: self._files.log(runner) for runner in self.local()}

    def _tell(self, record: RunnerRecord) -> None:
        self._told.ring()
        failure = record.failure
        if failure is not None:
            _log.error("runner %s failed: %s", record.runner, failure.message)
        elif self._logged.get(record.runner) is not record.phase:
            _log.info("runner %s is %s", record.runner, record.phase.value)
        self._logged[record.runner] = record.phase
        for listener in self._listeners:
            listener(record)

    # -- generations -------------------------------------------------------------------------------

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationItem, None]:
        """Generate on a rank-0 runner of this node; the last item is `Finished` or `Failed`.

        Closing the generator cancels. A reader that falls too far behind loses its generation.

        Raises:
            NotFoundError: no such runner is here.
            BusyError: none is ready, or too many generations run.
            ConflictError: a generation of this id is running.
            UsageError: the request is too long.
        """
        keeper = self._choose(request)
        items = keeper.generations.open(request)
        ended = False
        try:
            with contextlib.suppress(anyio.EndOfStream):
                while not ended:
                    item = await items.receive()
                    ended = isinstance(item, Finished | Failed)
                    yield item
            if not ended:
                ended = True
                yield keeper.generations.outcome(request.id)
        finally:
            keeper.generations.close(request.id, ended=ended)

    def cancel(self, request: RequestId) -> bool:
        """End a generation; False where it does not run here."""
        return any(keeper.generations.cancel(request) for keeper in self._keepers.values())

    def _choose(self, request: GenerationRequest) -> RunnerKeeper:
        fitting = [
            keeper
            for keeper in self._keepers.values()
            if keeper.rank == 0
            and keeper.model == request.model
            and request.instance in (None, keeper.record.instance)
        ]
        if not fitting:
            raise NotFoundError.because(
                "runner_not_here",
                f"no runner of {request.instance or request.model} decides on this node",
                "place the model, or wait until its instance has been started again",
            )
        ready = [keeper for keeper in fitting if keeper.phase is RunnerPhase.READY]
        if not ready:
            phases = ", ".join(sorted({keeper.phase.value for keeper in fitting}))
            raise BusyError.because(
                "runner_not_ready",
                f"the runner of {request.model} is {phases}, not ready",
                "try again shortly",
            )
        return min(ready, key=lambda keeper: len(keeper.generations))
