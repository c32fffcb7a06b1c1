"""Keeps one runner: starts its child or finds it, talks to it, watches it, and sees it gone."""

import collections
from collections.abc import Callable, Mapping

import anyio
import anyio.to_thread
import msgspec

from node.core.failure_text import short_failure, short_text
from node.core.runner_exit import (
    EXIT_CODE_UNKNOWN,
    LINES_SHOWN,
    explain_exit,
    stage_stopped,
    with_lines,
)
from node.core.runner_watch import RunnerLimits, RunnerWatch
from node.core.work_plan import LocalRunner
from node.io import clock
from node.io.child_process import (
    BoundedLog,
    ChildProcess,
    ChildSpec,
    FoundChild,
    child_environment,
    start_child,
)
from node.io.runner_files import RunnerFile, RunnerFiles
from node.io.wakeup import Wakeup
from node.model.errors import Failure
from node.model.ids import ModelId, NodeId
from node.model.instance import RunnerPhase, RunnerRecord, StageAddress
from node.model.register import RunnerProgress
from node.runner.claim import SECRET_BYTES, VARIABLE
from node.runner.protocol import (
    Beat,
    Challenge,
    Connect,
    Introduced,
    Item,
    Listening,
    PhaseChanged,
    Prepare,
    RunnerMessage,
    Shutdown,
)
from node.services.runner_generations import REQUESTS_MAX, RunnerGenerations
from node.services.runner_link import (
    RunnerClaim,
    RunnerFaultError,
    RunnerLink,
    dial,
    encode_frame,
)
from node.version import __version__

OUTBOX_MAX = 2 * REQUESTS_MAX + 8
"""Frames that wait for the runner: start and cancel of each generation, and what else there is."""
DIAL_SECONDS = 0.05
SEND_SECONDS = 15.0
"""A runner that takes no bytes for so long is stuck."""
GOODBYE_SECONDS = 3.0
"""How long the stop of a runner may come after that of another stage, with which it ended."""
DRAIN_SECONDS = 1.0
"""What a dead runner said last is still read for so long."""
HANGUP_SECONDS = 2.0
"""A runner that closed its socket is gone by then, or ended."""
ADOPT_SECONDS = 5.0
"""How long a runner of an earlier life of the node has to answer to this one."""
ADDRESS_BYTES_MAX = 64 * 1024
"""Of a runner's certificate and host: they go into an event, which is bounded."""

_ORDER = tuple(RunnerPhase)
_OVER = (RunnerPhase.STOPPED, RunnerPhase.FAILED)

Child = ChildProcess | FoundChild
"""A runner's process: of this life of the node, or of an earlier one."""


class RunnerOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner is to hold; kept beside its socket for the node's next life."""

    node: NodeId
    prepare: Prepare
    weight_bytes: int


class RunnerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How children are started and how long they may take."""

    command: tuple[str, ...]
    """Before `--socket PATH --runner ID`; such as `python -m node.runner`."""
    environment: Mapping[str, str]
    limits: RunnerLimits = RunnerLimits()
    look_seconds: float = 1.0
    """How often deadlines and the log's size are looked at."""
    incarnation: int = 1
    """Which life of the node this is."""


class RunnerKeeper:
    """One start of one runner to its last breath, from its first or from where an earlier life of
    the node left off. Used once.
    """

    def __init__(
        self,
        order: RunnerOrder,
        files: RunnerFiles,
        settings: RunnerSettings,
        changed: Callable[[RunnerRecord], None],
        found: RunnerFile | None = None,
    ) -> None:
        """`found`: an earlier life of this node started it, and wrote this about it."""
        prepare = order.prepare
        self._order = order
        self._files = files
        self._settings = settings
        self._changed = changed
        self.record = RunnerRecord(
            runner=prepare.runner,
            instance=prepare.instance,
            node=order.node,
            phase=RunnerPhase.STARTING,
            attempt=prepare.attempt,
            changed_at=clock.wall(),
        )
        self.progress = RunnerProgress(runner=prepare.runner)
        self.connected = False
        self.stopping = False
        self._life = anyio.CancelScope()
        self._cause: Failure | None = None
        limits = settings.limits
        if found is not None:
            limits = msgspec.structs.replace(limits, starting=ADOPT_SECONDS)
        self._watch = RunnerWatch(limits, order.weight_bytes, clock.monotonic())
        self._terminate_seconds = 2.0
        self._introduced = False
        self._found = found
        self._secret = found.secret if found is not None else clock.random_hex(2 * SECRET_BYTES)
        self._claim: RunnerClaim | None = None
        self.has_left = False
        """It ends unasked: another stage's goodbye reached it before the node's own stop."""
        self._has_exited = False
        self._stop_asked = Wakeup()
        self._hung_up = Wakeup()
        self._outbox: collections.deque[bytes] = collections.deque()
        self._outbox_filled = Wakeup()
        self.generations = RunnerGenerations(self._post)

    @property
    def model(self) -> ModelId:
        """The model whose shard it holds."""
        return self._order.prepare.model

    @property
    def rank(self) -> int:
        """Its stage; only rank 0 generates."""
        return self._order.prepare.rank

    @property
    def phase(self) -> RunnerPhase:
        """What it is ready for: less than its record says once it has begun to end."""
        return RunnerPhase.STOPPING if self.has_left else self.record.phase

    @property
    def local(self) -> LocalRunner:
        """As the work plan sees it."""
        return LocalRunner(record=self.record, connected=self.connected, adopting=self.is_adopting)

    @property
    def is_adopting(self) -> bool:
        """Whether it has yet to be seen what became of the runner."""
        return self._found is not None and not self._introduced

    # -- life --------------------------------------------------------------------------------------

    async def run(self) -> RunnerRecord:
        """Start the child, or claim the one that was found, and stay until it is gone, whatever
        happens; returns the last record.

        One that was found and does not answer, or is not who it should be, is ended; until it has
        answered nothing is told of it. The last record is never told to `changed`: whoever calls
        this does so once the keeper is put away.
        """
        if self._found is not None:
            log = BoundedLog(self._files.log(self._found.runner))
            await self._stay(FoundChild(self._found.process_id, self._found.start_time, log))
            return self.record
        self._changed(self.record)
        runner = self.record.runner
        spec = ChildSpec(
            arguments=(*self._settings.command, *self._files.command_words(runner)),
            environment=child_environment(self._settings.environment) | {VARIABLE: self._secret},
            directory=self._files.scratch(runner),
            log=self._files.log(runner),
        )
        try:
            self._files.remove(runner)
            child = await start_child(spec)
        except OSError as error:
            self._conclude(_not_started(error), 0)
            return self.record
        await self._stay(child)
        return self.record

    async def _stay(self, child: Child) -> None:
        try:
            await self._live(child)
        finally:
            with anyio.CancelScope(shield=True):
                await child.end(self._terminate_seconds)
                await anyio.to_thread.run_sync(self._files.remove, self.record.runner)
            child.log.rotate()
            ending = self._ending(child.exit_code, child.log.tail(LINES_SHOWN))
            self._conclude(ending, child.exit_code)

    async def _live(self, child: Child) -> None:
        with self._life:
            if self._found is not None:
                self.record = msgspec.structs.replace(self.record, process_id=child.process_id)
            else:
                self._note(process_id=child.process_id)
                await self._write_file(child)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._await_exit, child)
                tasks.start_soon(self._look_after, child)
                await self._converse()

    async def _write_file(self, child: Child) -> None:
        file = RunnerFile(
            runner=self.record.runner,
            instance=self.record.instance,
            process_id=child.process_id,
            start_time=child.start_time,
            socket=str(self._files.socket(self.record.runner)),
            attempt=self.record.attempt,
            secret=self._secret,
            version=__version__,
            order=msgspec.Raw(msgspec.json.encode(self._order)),
        )
        try:
            await anyio.to_thread.run_sync(self._files.write, file)
        except OSError as error:
            self._fail(_not_started(error))

    async def _await_exit(self, child: Child) -> None:
        await child.wait()
        if self._introduced:
            await self._hung_up.wait(DRAIN_SECONDS)
        self._has_exited = True
        if self.has_left and not self.stopping:
            await self._stop_asked.wait(GOODBYE_SECONDS)
        self._life.cancel()

    async def _look_after(self, child: Child) -> None:
        look_seconds = self._settings.look_seconds
        while True:
            failure = self._watch.overdue(clock.monotonic(), look_seconds)
            if failure is not None:
                self._fail(failure)
            child.log.rotate()
            await anyio.sleep(look_seconds)

    def _fail(self, failure: Failure) -> None:
        """End the child; the first cause is the one that is told."""
        if self._cause is None:
            self._cause = short_failure(failure)
        self._life.cancel()

    def _ending(self, exit_code: int | None, lines: tuple[str, ...]) -> Failure | None:
        """Why it is over; None where it was meant to be."""
        if self.stopping and exit_code is not None:
            return None
        if self.record.phase is RunnerPhase.FAILED:
            return self.record.failure
        is_over = self._cause is not None or exit_code is None or self._life.cancel_called
        if not is_over:
            return None  # the node is being stopped from outside
        if self.is_adopting:
            return _not_adopted(self._cause)
        if self._cause is not None and exit_code is not None:
            return with_lines(self._cause, lines)
        has_left_well = self.has_left and exit_code in (0, EXIT_CODE_UNKNOWN)
        return stage_stopped() if has_left_well else explain_exit(exit_code, lines)

    def _conclude(self, failure: Failure | None, exit_code: int | None) -> None:
        self.record = msgspec.structs.replace(
            self.record,
            phase=RunnerPhase.FAILED if failure is not None else RunnerPhase.STOPPED,
            failure=failure,
            address=None,
            process_id=0 if exit_code is not None else self.record.process_id,
            changed_at=clock.wall(),
        )
        self.generations.fail(failure)

    def stop(self) -> None:
        """Have it end by itself, and with force once its time is up. Returns at once."""
        if self.stopping:
            return
        self.stopping = True
        if not self._introduced:
            self._life.cancel()
            return
        self._enter(RunnerPhase.STOPPING)
        self._stop_asked.ring()
        if not self._post(encode_frame(Shutdown())):
            self._life.cancel()

    def kill(self, terminate_seconds: float) -> None:
        """Have it end by force, now. Returns at once."""
        self.stopping = True
        self._terminate_seconds = terminate_seconds
        self._life.cancel()

    # -- talk --------------------------------------------------------------------------------------

    def connect(self, message: Connect) -> None:
        """Tell the runner its neighbours."""
        if not self.connected and self._introduced and self._post(encode_frame(message)):
            self.connected = True

    async def _converse(self) -> None:
        link = await self._dial()
        secret = bytes.fromhex(self._secret)
        self._claim = RunnerClaim(self.record.runner, secret, self._settings.incarnation)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_outbox, link)
                await self._read(link)
        finally:
            with anyio.CancelScope(shield=True):
                await link.aclose()

    async def _dial(self) -> RunnerLink:
        path = self._files.socket(self.record.runner)
        while True:
            try:
                return await dial(path)
            except OSError:
                await anyio.sleep(DIAL_SECONDS)  # the watch ends it when it takes too long

    async def _read(self, link: RunnerLink) -> None:
        try:
            while True:
                for message in await link.receive():
                    self._take(message)
        except RunnerFaultError as error:
            self._fail(_fault(str(error)))
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            self._hung_up.ring()
            await anyio.sleep(HANGUP_SECONDS)
            if self._has_exited:
                return  # and is waited for, as another stage ended first
            self._fail(_fault("it closed its socket but went on running"))

    async def _send_outbox(self, link: RunnerLink) -> None:
        while True:
            while self._outbox:
                with anyio.move_on_after(SEND_SECONDS) as scope:
                    try:
                        await link.send(self._outbox[0])
                    except anyio.BrokenResourceError:
                        return  # the reader sees the end too, and what was said before it
                if scope.cancelled_caught:
                    self._fail(_deaf())
                    return
                self._outbox.popleft()
            await self._outbox_filled.wait(self._settings.look_seconds)

    def _post(self, frame: bytes) -> bool:
        if len(self._outbox) >= OUTBOX_MAX:
            return False
        self._outbox.append(frame)
        self._outbox_filled.ring()
        return True

    def _take(self, message: RunnerMessage) -> None:
        if not self._introduced:
            self._meet(message)
            return
        match message:
            case Introduced() | Challenge():
                raise RunnerFaultError("it introduced itself twice")
            case Listening():
                self._note_address(message.address)
            case PhaseChanged():
                self._follow(message)
            case Beat():
                runner = self.record.runner
                self.progress = msgspec.structs.replace(message.progress, runner=runner)
                self._watch.beat(self.progress, busy=message.busy, now=clock.monotonic())
            case Item():
                self.generations.pass_on(message.request, message.item)

    def _meet(self, message: RunnerMessage) -> None:
        assert self._claim is not None
        if isinstance(message, Challenge):
            self._post(self._claim.answer(message))
            return
        if not isinstance(message, Introduced) or not self._claim.holds_for(message):
            raise RunnerFaultError(f"it did not introduce itself as {self.record.runner}")
        if message.attempt not in (0, self.record.attempt):
            raise RunnerFaultError(f"it is of attempt {message.attempt}")
        self._introduced = True
        if message.attempt == 0:
            self._post(encode_frame(self._order.prepare))
        if self._found is not None and message.phase not in _OVER:
            # In one step, so that nothing is told that is long past.
            self.connected = _ORDER.index(message.phase) > _ORDER.index(RunnerPhase.CONNECTING)
            self._watch.enter(message.phase, clock.monotonic())
            self._note(phase=message.phase, address=_checked(message.address))
            return
        self._note_address(message.address)
        self._follow(PhaseChanged(phase=message.phase))

    def _follow(self, change: PhaseChanged) -> None:
        """Phases only go forward; the last three are for the keeper to say, but for a failure."""
        if change.phase is RunnerPhase.FAILED:
            failure = short_failure(change.failure or explain_exit(1, ()))
            self._enter(RunnerPhase.FAILED, failure)
            self.generations.fail(failure)
            return
        if change.phase in (RunnerPhase.STOPPING, RunnerPhase.STOPPED) or self.stopping:
            self.has_left = self.has_left or not self.stopping
            return
        step = _ORDER.index(change.phase) - _ORDER.index(self.record.phase)
        if self.record.phase in _OVER or step < 0:
            was = self.record.phase.value
            raise RunnerFaultError(f"it went from phase {was} back to {change.phase.value}")
        if step > 0:
            self._enter(change.phase)

    def _note_address(self, address: StageAddress | None) -> None:
        self._note(address=_checked(address))

    def _enter(self, phase: RunnerPhase, failure: Failure | None = None) -> None:
        self._watch.enter(phase, clock.monotonic())
        self._note(phase=phase, failure=failure)

    def _note(self, **changes: object) -> None:
        record = msgspec.structs.replace(self.record, **changes)
        if record != self.record:
            self.record = msgspec.structs.replace(record, changed_at=clock.wall())
            self._changed(self.record)


def _checked(address: StageAddress | None) -> StageAddress | None:
    """The address, where it is not too large to be told.

    Raises:
        RunnerFaultError: it is.
    """
    if address is not None:
        size = len(address.certificate) + len(address.host.encode())
        if size > ADDRESS_BYTES_MAX:
            raise RunnerFaultError(f"an address of {size} bytes, at most {ADDRESS_BYTES_MAX}")
    return address


def _not_started(error: OSError) -> Failure:
    return Failure(
        code="runner_not_started",
        message=short_text(f"the runner could not be started: {error}"),
        remedy="free some disk space or memory, or check the installation, then restart it",
    )


def _not_adopted(cause: Failure | None) -> Failure:
    why = f": {cause.message}" if cause is not None else ", and the runner too"
    return Failure(
        code="runner_lost",
        message=short_text(f"the node was started anew{why}"),
        remedy="its instance is started again by itself",
    )


def _fault(what: str) -> Failure:
    return Failure(
        code="runner_fault",
        message=f"the runner broke the protocol: {what}; it was ended",
        remedy="install the same version of exoctl anew; if it happens again, report it",
    )


def _deaf() -> Failure:
    return Failure(
        code="runner_stuck",
        message=f"the runner takes nothing from its node for {SEND_SECONDS:.0f} s; it was ended",
        remedy="its instance is started again; if it hangs again, see the runner's log",
    )
