"""`exoctl up` (and `--no-ui`): a node without an app. `exoctl down`: its end."""

import contextlib
import os
import signal
import sys

import anyio
from anyio.abc import TaskStatus

from node.config import Config
from node.handle import LocalView, NodeHandle
from node.io.node_lock import read_lock
from node.model.errors import TimeoutExpiredError, UsageError
from tui.commands.changes import check_may_change
from tui.commands.console import Console, Listing, say
from tui.commands.jsonable import encode, fields_of
from tui.viewmodel.text import clean

DOWN_SECONDS = 20.0
_LOOK_SECONDS = 0.05
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SIGNAL_BASE = 128
_INPUT_BYTES = 4096
"""What comes in before the end of stdin is read and dropped, so much at once."""


def up(console: Console) -> None:
    """Run a node without the app, until a signal or `exoctl down` ends it."""
    config = console.settings.config()
    check_state_directory(config)
    console.exit(anyio.run(_serve, console, config))


def check_state_directory(config: Config) -> None:
    """Make the state directory where it is not there yet.

    Raises:
        UsageError: it can't be made or written to.
    """
    directory = config.state_directory
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        reason = "" if os.access(directory, os.W_OK | os.X_OK) else "it can't be written to"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise UsageError.because(
            "bad_state_directory",
            f"the state directory {directory} can't be used: {reason}",
            "name another with --state-dir",
        )


async def _serve(console: Console, config: Config) -> int:
    from node.runtime import open_node

    watch = SignalWatch(config)
    async with anyio.create_task_group() as tasks:
        await tasks.start(watch.run)
        if console.settings.until_eof:
            tasks.start_soon(watch.wait_input_end)
        with watch.starting:
            async with open_node(config, log_to_stderr=True) as handle:
                with contextlib.suppress(OSError):  # a node lives on where nobody reads it
                    _say_ready(console, await handle.local())
                await watch.first()
        tasks.cancel_scope.cancel()
    if watch.starting.cancelled_caught and watch.signal is not None:
        return _SIGNAL_BASE + watch.signal
    return 0


class SignalWatch:
    """The first signal asks the node to stop, the second one ends it on the spot."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._send, self._receive = anyio.create_memory_object_stream[signal.Signals](1)
        self._is_running = False
        self.starting = anyio.CancelScope()
        """Around the node; cancelled by a signal that comes before it is ready."""
        self.signal: signal.Signals | None = None
        """The first that came."""

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Take signals until cancelled."""
        with anyio.open_signal_receiver(*_STOPPING) as signals, self._send:
            task_status.started()
            async for number in signals:
                if self.signal is not None:
                    self._hurry(number)
                self._stop(number, number.name)

    async def wait_input_end(self) -> None:
        """Take the end of stdin for a signal to stop."""
        descriptor = sys.stdin.fileno()
        while True:
            with contextlib.suppress(PermissionError):  # a file, or the null device: never waits
                await anyio.wait_readable(descriptor)
            if not os.read(descriptor, _INPUT_BYTES):
                break
        if self.signal is None:
            self._stop(signal.SIGTERM, "stdin ended")

    def _stop(self, number: signal.Signals, why: str) -> None:
        self.signal = number
        say(f"{why}: stopping; once more stops at once")
        if self._is_running:
            self._send.send_nowait(number)
        else:
            self.starting.cancel()

    async def first(self) -> None:
        """Return at the first signal."""
        self._is_running = True
        with self._receive:
            await self._receive.receive()

    def _hurry(self, number: signal.Signals) -> None:
        """Leave now: the runners are killed here, for nobody waits for them any more."""
        from node.io.child_process import is_alive, signal_group
        from node.io.runner_files import RunnerFiles

        for record in RunnerFiles(self._config.state_directory).read_all():
            if is_alive(record.process_id, record.start_time):
                signal_group(record.process_id, signal.SIGKILL)
        os._exit(_SIGNAL_BASE + number)


def _say_ready(console: Console, local: LocalView) -> None:
    if console.is_json:
        whole: dict[str, object] = {
            "apiVersion": "exoctl/v1",
            "kind": "Ready",
            "index": -1,
            "items": [fields_of(local)],
        }
        console.write(encode(whole, pretty=False))
        return
    api = f"http://{local.api}" if local.api else "none"
    console.write(
        clean(
            f"{local.name} is ready: api {api}, cluster {local.cluster_address or 'none'}, "
            f"state {local.state_directory}"
        )
    )


def down(console: Console) -> None:
    """Stop a running node, its runners with it."""
    from node.io.child_process import start_time_of

    check_may_change(console)
    settings = console.settings
    timeout_seconds = settings.timeout_seconds(DOWN_SECONDS)
    record = None if settings.host else read_lock(settings.config().state_directory)
    started_at = start_time_of(record.process_id) if record is not None else None
    if record is not None and record.api is None:
        os.kill(record.process_id, signal.SIGTERM)
        name = record.name
    else:
        name = console.connected(_shut_down)
    if record is not None and started_at is not None:
        anyio.run(_wait_gone, name, record.process_id, started_at, timeout_seconds)
    item: dict[str, object] = {"name": name, "change": "stopped" if record else "stopping"}
    if settings.is_plain_data:
        console.emit(Listing(kind="Change", index=-1, items=[item], names=(name,)))
    else:
        console.write(clean(f"{name} {item['change']}"))


async def _shut_down(handle: NodeHandle) -> str:
    local = await handle.local()
    await handle.shutdown()
    return local.name


async def _wait_gone(name: str, process_id: int, started_at: float, timeout_seconds: float) -> None:
    from node.io.child_process import is_alive

    with anyio.move_on_after(timeout_seconds):
        while is_alive(process_id, started_at):  # noqa: ASYNC110 - no one else's end can be awaited
            await anyio.sleep(_LOOK_SECONDS)
        return
    raise TimeoutExpiredError.because(
        "still_running",
        f"{name} (process {process_id}) has not ended in {timeout_seconds:g} s",
        f"kill {process_id}",
    )
