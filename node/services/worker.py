"""Makes the runners of this node match the state: plans, carries out, reports."""

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, assert_never

import msgspec

from node.core.failure_text import short_failure
from node.core.work_plan import (
    Chore,
    ConnectRunner,
    ForgetRunner,
    LocalRunner,
    ReportRunner,
    StartRunner,
    StopReason,
    StopRunner,
    plan,
)
from node.io import clock
from node.io.wakeup import Wakeup
from node.log import logger
from node.model.errors import BusyError, ExoctlError, Failure
from node.model.event import Event, RunnerChanged
from node.model.ids import ModelId, NodeId, RunnerId
from node.model.instance import Instance, RunnerRecord
from node.model.state import State
from node.runner.protocol import Connect, Prepare
from node.services.runner_keeper import RunnerOrder

TICK_SECONDS = 1.0
REPORT_SECONDS = 10.0
"""A report that does not show in the state by then is written again."""
UNKNOWN_SECONDS = 10.0
"""A runner of an instance that is not in the state is kept so long: joining another cluster takes
the instance out of sight for a moment."""
UNREPORTED_MAX = 1024
"""Transitions that wait for room in the outbox; further ones are left to the repair of the plan."""
SHORT_CHARACTERS_MAX = 500
"""Of the failure in a report that was refused at its full length."""
LOOPBACK = "127.0.0.1"
BATCH_LEAST = 8
"""Requests computed at once where their contexts are short enough to share the room there is."""

_log = logger("worker")


class Runners(Protocol):
    """What a worker needs of the supervisor; every call returns at once."""

    def local(self) -> dict[RunnerId, LocalRunner]:
        """Runners that run here or ended here."""
        ...

    def start(self, order: RunnerOrder) -> None:
        """Start one."""
        ...

    def refuse(self, order: RunnerOrder, failure: Failure) -> None:
        """Note one as failed that can't be started."""
        ...

    def connect(self, runner: RunnerId, message: Connect) -> None:
        """Tell one its neighbours."""
        ...

    def stop(self, runner: RunnerId) -> None:
        """End one."""
        ...

    def forget(self, runner: RunnerId) -> None:
        """Drop an ended one."""
        ...


class Worker:
    """Made once per node; no session, and no slow runner, can hold it up."""

    def __init__(
        self,
        node: NodeId,
        runners: Runners,
        state: Callable[[], State],
        propose: Callable[[Event], object],
        model_directory: Callable[[ModelId], Path],
        stage_host: Callable[[NodeId], str],
    ) -> None:
        """`propose` raises BusyError where it takes nothing now. `model_directory` raises
        NotFoundError where the model is not here, BusyError where it is on its way; it waits for
        nothing. `stage_host`
        says where a runner of this node listens for a stage on the given other node.
        """
        self._node = node
        self._runners = runners
        self._state = state
        self._propose = propose
        self._model_directory = model_directory
        self._stage_host = stage_host
        self._wakeup = Wakeup()
        self._unreported: list[RunnerRecord] = []
        self._proposed: dict[RunnerId, tuple[RunnerRecord, float]] = {}
        self._unknown_since: dict[RunnerId, float] = {}

    def wake(self) -> None:
        """The state or the models have changed."""
        self._wakeup.ring()

    def runner_changed(self, record: RunnerRecord) -> None:
        """A runner made a transition: it is reported in its turn."""
        if len(self._unreported) < UNREPORTED_MAX:
            self._unreported.append(record)
        self._wakeup.ring()

    async def run(self) -> None:
        """Work until cancelled; runners go on then, they are the supervisor's."""
        while True:
            self.step(clock.monotonic())
            await self._wakeup.wait(TICK_SECONDS)

    def step(self, now: float) -> None:
        """Report what happened, then do what is due."""
        self._report_transitions(now)
        state = self._state()
        if state.index < 0:
            return  # before the first snapshot or entry nothing is known of what should run
        local = self._runners.local()
        chores = plan(state, self._node, local)
        self._forget_gone(state, local, chores)
        for chore in chores:
            self._do(chore, state, now)

    def _forget_gone(
        self, state: State, local: dict[RunnerId, LocalRunner], chores: tuple[Chore, ...]
    ) -> None:
        """Keep notes only of runners that are here or in the state, or unknown right now."""
        unknown = {
            chore.runner
            for chore in chores
            if isinstance(chore, StopRunner) and chore.reason is StopReason.INSTANCE_UNKNOWN
        }
        for runner in self._unknown_since.keys() - unknown:
            del self._unknown_since[runner]
        for runner in self._proposed.keys() - local.keys() - state.runners.keys():
            del self._proposed[runner]

    def _do(self, chore: Chore, state: State, now: float) -> None:
        match chore:
            case StartRunner():
                self._start(chore, state)
            case ConnectRunner():
                message = Connect(
                    next_stage=chore.next_stage, previous_certificate=chore.previous_certificate
                )
                self._runners.connect(chore.runner, message)
            case StopRunner():
                self._stop(chore, now)
            case ForgetRunner():
                self._runners.forget(chore.runner)
            case ReportRunner():
                self._report(chore.record, now)
            case _:
                assert_never(chore)

    # -- reports -----------------------------------------------------------------------------------

    def _report_transitions(self, now: float) -> None:
        done = 0
        for record in self._unreported:
            if not self._write(record, now):
                break
            done += 1
        del self._unreported[:done]

    def _report(self, record: RunnerRecord, now: float) -> None:
        """Repair: the state differs. Given time, where just this was written a moment ago."""
        if self._unreported:
            return
        proposed = self._proposed.get(record.runner)
        if proposed is not None and now - proposed[1] < REPORT_SECONDS:
            last = msgspec.structs.replace(proposed[0], changed_at=record.changed_at)
            if last == record:
                return
        if not record.changed_at:
            record = msgspec.structs.replace(record, changed_at=clock.wall())
        self._write(record, now)

    def _write(self, record: RunnerRecord, now: float) -> bool:
        try:
            self._propose(RunnerChanged(runner=record))
        except BusyError:
            return False  # tried again at the next tick
        except ExoctlError as error:
            if not self._write_shortened(record, error.failure):
                return False
        self._proposed[record.runner] = (record, now)
        return True

    def _write_shortened(self, record: RunnerRecord, refused: Failure) -> bool:
        """Tell the phase at least. Whatever a runner made of its report must not end the worker."""
        _log.error("a report of runner %s is refused: %s", record.runner, refused.message)
        failure = record.failure and short_failure(record.failure, SHORT_CHARACTERS_MAX)
        short = msgspec.structs.replace(record, failure=failure, address=None)
        try:
            self._propose(RunnerChanged(runner=short))
        except BusyError:
            return False
        except ExoctlError as error:
            _log.error("so is its short form: %s", error.failure.message)
        return True

    # -- chores ------------------------------------------------------------------------------------

    def _stop(self, chore: StopRunner, now: float) -> None:
        if chore.reason is StopReason.INSTANCE_UNKNOWN:
            since = self._unknown_since.setdefault(chore.runner, now)
            if now - since < UNKNOWN_SECONDS:
                return
        _log.debug("stopping runner %s: %s", chore.runner, chore.reason.value)
        self._runners.stop(chore.runner)

    def _start(self, chore: StartRunner, state: State) -> None:
        instance, shard = chore.instance, chore.shard
        directory = Path()
        failure: Failure | None = None
        try:
            directory = self._model_directory(instance.model)
        except BusyError:
            return  # the model is on its way: tried again at the next tick
        except ExoctlError as error:
            failure = error.failure
        order = self._order(chore, state, directory)
        if failure is None:
            try:
                self._runners.start(order)
            except ExoctlError as error:
                failure = error.failure
        if failure is not None:
            _log.error("runner %s can't be started: %s", shard.runner, failure.message)
            self._runners.refuse(order, failure)

    def _order(self, chore: StartRunner, state: State, directory: Path) -> RunnerOrder:
        instance, shard = chore.instance, chore.shard
        encrypt = not self._is_local(instance, state)
        previous = instance.shards[shard.rank - 1].node
        prepare = Prepare(
            runner=shard.runner,
            instance=instance.instance,
            model=instance.model,
            model_directory=str(directory.absolute()),
            rank=shard.rank,
            stages=len(instance.shards),
            boundaries=_boundaries(instance),
            weight_format=instance.weight_format,
            context_tokens=instance.context_tokens,
            batch_max=max(BATCH_LEAST, instance.wish.requests),
            cache_bytes_max=shard.cache_bytes,
            stage_host=self._stage_host(previous) if encrypt else LOOPBACK,
            encrypt=encrypt,
            attempt=chore.attempt,
            tensor=instance.tensor,
        )
        return RunnerOrder(node=self._node, prepare=prepare, weight_bytes=shard.weight_bytes)

    def _is_local(self, instance: Instance, state: State) -> bool:
        """Whether every stage is known to listen on loopback; all nodes see this alike."""
        nodes = set(instance.nodes)
        if len(nodes) == 1:
            return True
        for node in nodes:
            record = state.nodes.get(node)
            hosts = [address.host for address in record.addresses] if record else []
            if not hosts or not all(_is_loopback(host) for host in hosts):
                return False
        return True


def _boundaries(instance: Instance) -> tuple[int, ...]:
    if instance.tensor:
        return (0, instance.layer_count)
    return (*(each.first_layer for each in instance.shards), instance.layer_count)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
