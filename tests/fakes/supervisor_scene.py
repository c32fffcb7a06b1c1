"""A supervisor with fake runners, for tests of what it does with them."""

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import psutil

from node.config import environment_for_child
from node.core.runner_watch import RunnerLimits
from node.io.runner_files import RunnerFiles
from node.io.wakeup import Wakeup
from node.model.errors import Failure
from node.model.ids import InstanceId, ModelId, NodeId, RequestId, RunnerId
from node.model.instance import RunnerPhase, RunnerRecord, WeightFormat
from node.model.request import GenerationRequest
from node.runner.protocol import Prepare
from node.services.runner_keeper import RunnerOrder, RunnerSettings
from node.services.supervisor import Supervisor

NODE = NodeId("here")
RUNNER = RunnerId("r-0000beef")
MODEL = ModelId("tiny")
FAKE = Path(__file__).parent / "fake_runner.py"
WAIT_SECONDS = 20.0
QUICK = RunnerLimits(
    starting=10.0,
    connecting=10.0,
    loading=10.0,
    warming_up=10.0,
    stopping=0.3,
    stall=10.0,
)


class Scene:
    """A supervisor with fake runners, and what it told."""

    def __init__(
        self, state_directory: Path, mode: str, limits: RunnerLimits, incarnation: int = 1
    ) -> None:
        self.settings = RunnerSettings(
            command=(sys.executable, str(FAKE), mode),
            environment=environment_for_child(),
            limits=limits,
            look_seconds=0.05,
            incarnation=incarnation,
        )
        self.files = RunnerFiles(state_directory)
        self.supervisor = Supervisor(state_directory, self.settings)
        self.told: list[RunnerRecord] = []
        self._wakeup = Wakeup()
        self.supervisor.on_change(self.hear)

    def hear(self, record: RunnerRecord) -> None:
        self.told.append(record)
        self._wakeup.ring()

    async def until(self, holds: Callable[[RunnerRecord], bool]) -> RunnerRecord:
        with anyio.fail_after(WAIT_SECONDS):
            seen = 0
            while True:
                for record in self.told[seen:]:
                    seen += 1
                    if holds(record):
                        return record
                await self._wakeup.wait(WAIT_SECONDS)

    async def phase(self, phase: RunnerPhase, runner: RunnerId = RUNNER) -> RunnerRecord:
        return await self.until(lambda item: item.runner == runner and item.phase is phase)

    async def ended(self, runner: RunnerId = RUNNER) -> RunnerRecord:
        def over(record: RunnerRecord) -> bool:
            known = self.supervisor.local().get(runner)
            return known is not None and known.ended and known.record is record

        return await self.until(over)

    async def failure(self) -> Failure:
        record = await self.ended()
        assert record.phase is RunnerPhase.FAILED
        assert record.failure is not None
        return record.failure

    async def ready(self, **changes: object) -> RunnerRecord:
        order = order_of(**changes)
        self.supervisor.start(order)
        return await self.phase(RunnerPhase.READY, order.prepare.runner)


@asynccontextmanager
async def scene(
    directory: Path,
    mode: str = "normal",
    limits: RunnerLimits = QUICK,
    incarnation: int = 1,
    others: int = 0,
) -> AsyncGenerator[Scene, None]:
    """`others`: runners that are none of this supervisor's business, and outlive it."""
    made = Scene(directory, mode, limits, incarnation)
    async with anyio.create_task_group() as tasks:
        await tasks.start(made.supervisor.run)
        yield made
        await made.supervisor.stop_all()
        tasks.cancel_scope.cancel()
    assert len(group_members()) == others, "a process was left behind"


def group_members() -> list[int]:
    return [
        process.pid for process in psutil.Process().children(recursive=True) if is_fake(process)
    ]


def is_fake(process: psutil.Process) -> bool:
    try:
        return process.is_running() and "fake_runner" in " ".join(process.cmdline())
    except psutil.Error:
        return False  # dead, and not reaped yet


def order_of(**changes: object) -> RunnerOrder:
    prepare = Prepare(
        runner=RUNNER,
        instance=InstanceId("i-00000001"),
        model=MODEL,
        model_directory="/nowhere",
        rank=0,
        stages=1,
        boundaries=(0, 4),
        weight_format=WeightFormat.AS_STORED,
        context_tokens=128,
    )
    return RunnerOrder(
        node=NODE, prepare=msgspec.structs.replace(prepare, **changes), weight_bytes=1000
    )


def request(prompt: str, number: int = 1, **changes: object) -> GenerationRequest:
    made = GenerationRequest(id=RequestId(f"q-{number:016x}"), model=MODEL, prompt=prompt)
    return msgspec.structs.replace(made, **changes)


def gone(process_id: int) -> bool:
    try:
        return psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
