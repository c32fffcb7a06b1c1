"""The demo's nodes: real processes in one private directory, ended without a trace."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
import psutil
from anyio.streams.buffered import BufferedByteReceiveStream

from node.config import Config, environment_for_child
from node.io import clock
from node.io.child_process import (
    child_environment,
    end_stranger,
    is_alive,
    start_time_of,
)
from node.io.runner_files import RunnerFile, RunnerFiles
from node.model.errors import InternalError, TimeoutExpiredError
from node.model.ids import NodeId
from node.model.machine import Address

READY_SECONDS = 60.0
STOP_SECONDS = 12.0
"""A node's clean stop, its runners' with it."""
KILL_SECONDS = 5.0
READY_LINE_BYTES_MAX = 65_536
LOG_LINES = 20


class _ReadyNode(msgspec.Struct, frozen=True, kw_only=True):
    node: NodeId
    api: str
    cluster_address: str


class _ReadyLine(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[_ReadyNode, ...]


class DemoNode:
    """One node of the demo as a child process."""

    def __init__(
        self, name: str, directory: Path, process: anyio.abc.Process, log: IO[bytes]
    ) -> None:
        self.name = name
        self.directory = directory
        self.process = process
        self.node = NodeId("")
        self.api = Address("", 0)
        self.cluster_address = Address("", 0)
        self.ready_seconds = 0.0
        self._log = log
        self._started_at = clock.monotonic()

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self.process.returncode is None

    async def wait_ready(self) -> None:
        """Read the line that the node prints once it is ready.

        Raises:
            InternalError: it ended before. TimeoutExpiredError: it was not ready in time.
        """
        assert self.process.stdout is not None
        reader = BufferedByteReceiveStream(self.process.stdout)
        try:
            with anyio.fail_after(READY_SECONDS):
                line = await reader.receive_until(b"\n", READY_LINE_BYTES_MAX)
            ready = msgspec.json.decode(line, type=_ReadyLine).items[0]
        except TimeoutError:
            raise TimeoutExpiredError.because(
                "demo_node_slow", f"{self.name} was not ready within {READY_SECONDS:g} s"
            ) from None
        except (anyio.IncompleteRead, anyio.EndOfStream):
            with anyio.move_on_after(KILL_SECONDS):
                await self.process.wait()
            raise InternalError.because(
                "demo_node_ended",
                f"{self.name} ended before it was ready, with code {self.process.returncode}",
            ) from None
        except (msgspec.DecodeError, anyio.DelimiterNotFound, IndexError) as error:
            raise InternalError.because(
                "demo_node_ready", f"{self.name} did not say how to reach it: {error}"
            ) from error
        self.node = ready.node
        self.api = _address(ready.api)
        self.cluster_address = _address(ready.cluster_address)
        self.ready_seconds = clock.monotonic() - self._started_at

    async def kill(self) -> None:
        """Have it die on the spot, as in a crash."""
        self.process.kill()
        with anyio.move_on_after(KILL_SECONDS):
            await self.process.wait()

    async def end(self) -> None:
        """Have it stop cleanly; what does not is killed."""
        if self.is_running:
            self.process.terminate()
            with anyio.move_on_after(STOP_SECONDS):
                await self.process.wait()
        if self.is_running:
            await self.kill()
        for stream in (self.process.stdout, self.process.stdin):
            if stream is not None:
                await stream.aclose()
        self._log.close()

    def runners(self) -> list[RunnerFile]:
        """The runner processes that it has noted in its state directory."""
        return RunnerFiles(self.directory).read_all()

    def log_tail(self) -> list[str]:
        """The last lines that it wrote."""
        text = self.directory.with_suffix(".log").read_text(errors="replace")
        return text.splitlines()[-LOG_LINES:]


class DemoNodes:
    """All nodes of the demo under one temporary directory; leaving the context ends everything."""

    def __init__(self, config: Config, *, keep: bool) -> None:
        self._config = config
        self._keep = keep
        self.root = Path(tempfile.mkdtemp(prefix="exoctl-demo-"))
        self._settings = self.root / "config.toml"
        """Named in the environment of every process of the demo, and of no other."""
        self.nodes: list[DemoNode] = []
        self.left_over: list[str] = []
        """What could not be ended or removed; known once the context is left."""
        self.ended_runners = 0
        """Runners that lived until the end of the demo."""

    async def __aenter__(self) -> Self:
        lines = ", ".join(_toml(str(path)) for path in self._config.model_directories)
        settings = f"[node]\nmodel_directories = [{lines}]\n"
        self._settings.write_text(settings, encoding="utf-8")
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            if not self._keep:
                await self._end_all()

    async def start(self, count: int) -> None:
        """Start the nodes, all at once, and wait until each is ready.

        Raises:
            ExoctlError: one is not, with the reason.
        """
        for number in range(1, count + 1):
            with anyio.CancelScope(shield=True):  # no child may be started and not be noted
                self.nodes.append(await self._start_one(number))
        for node in self.nodes:
            await node.wait_ready()

    async def _start_one(self, number: int) -> DemoNode:
        name, directory = f"demo-{number}", self.root / f"n{number}"
        environment = {
            key: value
            for key, value in child_environment(environment_for_child()).items()
            if not key.startswith("EXOCTL_")
        }
        environment["EXOCTL_CONFIG"] = str(self._settings)
        log = directory.with_suffix(".log").open("ab")
        arguments = (
            *(sys.executable, "-m", "tui", "--no-ui", "-o", "json"),
            *("--state-dir", str(directory), "--name", name),
            *("--port", "0", "--api-port", "0", "--bind", "127.0.0.1", "--no-discovery"),
            *(() if self._keep else ("--until-eof",)),
        )
        process = await anyio.open_process(
            arguments,
            # Nodes that are not to be kept end with this process, however it ends.
            stdin=subprocess.DEVNULL if self._keep else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
        return DemoNode(name, directory, process, log)

    def by_id(self, node: NodeId) -> DemoNode:
        """The child that is this node of the cluster."""
        return next(each for each in self.nodes if each.node == node)

    def processes(self) -> Iterator[tuple[int, float]]:
        """Every live process of the demo but the nodes themselves, by number and start time."""
        for node in self.nodes:
            for record in node.runners():
                if is_alive(record.process_id, record.start_time):
                    yield record.process_id, record.start_time
        for process in psutil.process_iter():
            try:
                mine = process.environ().get("EXOCTL_CONFIG") == str(self._settings)
            except (psutil.Error, OSError):
                continue  # it is gone, or somebody else's
            started_at = start_time_of(process.pid)
            if mine and started_at is not None and process.pid not in self._own_numbers():
                yield process.pid, started_at

    def _own_numbers(self) -> set[int]:
        return {node.process.pid for node in self.nodes if node.is_running}

    async def _end_all(self) -> None:
        runners = {
            (record.process_id, record.start_time)
            for node in self.nodes
            for record in node.runners()
            if is_alive(record.process_id, record.start_time)
        }
        async with anyio.create_task_group() as tasks:
            for node in self.nodes:
                tasks.start_soon(node.end)
        runners |= set(await anyio.to_thread.run_sync(lambda: list(self.processes())))
        for number, started_at in runners:
            if not await end_stranger(number, started_at):
                self.left_over.append(f"process {number}")
        self.ended_runners = len(runners)
        await anyio.to_thread.run_sync(lambda: shutil.rmtree(self.root, ignore_errors=True))
        self.left_over += [
            f"node process {node.process.pid}" for node in self.nodes if node.is_running
        ]
        if self.root.exists():
            self.left_over.append(str(self.root))


def trouble_tail(nodes: DemoNodes) -> list[str]:
    """The ends of the logs that tell most: of nodes that died unasked, else of all."""
    dead = [node for node in nodes.nodes if not node.is_running] or nodes.nodes
    lines: list[str] = []
    for node in dead:
        lines += [f"--- the end of {node.name}'s log", *node.log_tail()]
    return lines


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port))


def _toml(text: str) -> str:
    # A JSON string is a TOML basic string too.
    return msgspec.json.encode(text).decode()
