"""A child process in its own session: started, watched, ended as a whole group, always reaped."""

import os
import signal
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

import anyio
import anyio.abc
import msgspec
import psutil

from node.core.runner_exit import EXIT_CODE_UNKNOWN

LOG_BYTES_MAX = 4 * 1024 * 1024
TAIL_BYTES_MAX = 16 * 1024
"""Of the log's end that is read to say why a child ended."""
TERMINATE_SECONDS = 2.0
"""Between the asking signal and the one that can't be refused."""
REAP_SECONDS = 2.0
"""A killed process is gone by then, or hangs in the kernel."""
LOOK_SECONDS = 0.1
"""How often to look whether a process that is not our child still lives."""
_SECRETS = ("EXOCTL_API_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_START_TIME_TOLERANCE_SECONDS = 2.0
"""Start times are kept to clock ticks and move with corrections of the wall clock."""


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to start, and where."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    """All of it: nothing is inherited beside."""
    directory: Path
    """Working and temporary directory: private, made when it is not there."""
    log: Path
    """Its output and its errors."""


class BoundedLog:
    """A file that a child appends to by itself, kept near a bound by whoever watches.

    The child holds the file, not a pipe: it can go on writing when its node is gone.
    """

    def __init__(self, path: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._begin = 0

    def open(self) -> int:
        """A descriptor for a child to append to. What is there already is no part of the tail."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        self._begin = os.fstat(descriptor).st_size
        return descriptor

    def rotate(self) -> None:
        """Past the bound: keep the end of it as the one old file, and go on from empty.

        The child's descriptor stays valid; what it writes in between is lost, which is the price of
        a bound on a child that says too much.
        """
        try:
            size = self._path.stat().st_size
            if size <= self._bytes_max:
                return
            with self._path.open("rb+") as file:
                file.seek(size - self._bytes_max)
                old = file.read(self._bytes_max)
                file.truncate(0)
            self._begin = 0
            self._path.with_name(self._path.name + ".1").write_bytes(old)
        except OSError:
            return  # a log that can't be turned is no reason to end what it is about

    def tail(self, lines_max: int) -> tuple[str, ...]:
        """The last lines, without empty ones."""
        try:
            with self._path.open("rb") as file:
                file.seek(max(self._begin, os.fstat(file.fileno()).st_size - TAIL_BYTES_MAX))
                text = file.read(TAIL_BYTES_MAX).decode(errors="replace")
        except OSError:
            return ()
        lines = [line.rstrip() for line in text.splitlines()]
        return tuple(line for line in lines if line)[-lines_max:]


class ChildProcess:
    """A running child. Its number names the child and its group until `end` returned."""

    def __init__(self, process: anyio.abc.Process, log: BoundedLog) -> None:
        self._process = process
        self._ended = False
        self.log = log
        self.start_time = start_time_of(process.pid) or 0.0
        """Seconds since 1970, as the system tells it: with the number it names the process."""

    @property
    def process_id(self) -> int:
        """Its number, and its group's."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it lives; minus the signal's number where one ended it."""
        return self._process.returncode

    async def wait(self) -> int:
        """Return the exit code once it has ended; bound it with a cancel scope."""
        return await self._process.wait()

    async def end(self, terminate_seconds: float = TERMINATE_SECONDS) -> int | None:
        """Have the group end: asked first, then killed; also what a dead leader left behind.

        Returns the exit code, or None for a process that even SIGKILL doesn't end in time. Not to
        be interrupted: call it in a shielded scope. Once it returned the number may be anyone's.
        """
        if self._ended:
            return self.exit_code
        self._ended = True
        if self.exit_code is None:
            signal_group(self.process_id, signal.SIGTERM)
            with anyio.move_on_after(terminate_seconds):
                await self._process.wait()
        signal_group(self.process_id, signal.SIGKILL)
        with anyio.move_on_after(REAP_SECONDS):
            await self._process.wait()
        return self.exit_code


class FoundChild:
    """A child that an earlier life of this node started. It can be watched and ended, but how it
    ended can't be learned: that is told to its parent alone.
    """

    def __init__(self, process_id: int, start_time: float, log: BoundedLog) -> None:
        self.process_id = process_id
        self.start_time = start_time
        self.log = log
        self.exit_code: int | None = None
        """None while it lives, then `EXIT_CODE_UNKNOWN`."""

    async def wait(self) -> int:
        """Return once it has ended; bound it with a cancel scope."""
        while is_alive(self.process_id, self.start_time):  # noqa: ASYNC110 - no one else's end can be awaited
            await anyio.sleep(LOOK_SECONDS)
        self.exit_code = EXIT_CODE_UNKNOWN
        return EXIT_CODE_UNKNOWN

    async def end(self, terminate_seconds: float = TERMINATE_SECONDS) -> int | None:
        """Have the group end, as `ChildProcess.end` does."""
        if self.exit_code is None and await end_stranger(
            self.process_id, self.start_time, terminate_seconds
        ):
            self.exit_code = EXIT_CODE_UNKNOWN
        return self.exit_code


async def start_child(spec: ChildSpec) -> ChildProcess:
    """Start a child in its own session and process group, with nothing of ours but the environment.

    Raises:
        OSError: the program or a directory is missing, the disk is full, too many processes.
    """
    make_private(spec.directory)
    log = BoundedLog(spec.log)
    log.rotate()
    output = log.open()
    try:
        # Shielded: a child must not be started and its number be lost.
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                spec.arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=spec.directory,
                env={**spec.environment, "TMPDIR": str(spec.directory)},
                start_new_session=True,
                umask=0o077,
            )
            return ChildProcess(process, log)
    finally:
        os.close(output)
    raise AssertionError("nobody cancels that scope")


def child_environment(base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child of ours that runs a module of this package.

    Offline, without secrets that it does not need, and able to find the package where it is run
    from its sources.
    """
    environment = {name: value for name, value in base.items() if name not in _SECRETS}
    environment.update(
        HF_HUB_OFFLINE="1",
        HF_HUB_DISABLE_TELEMETRY="1",
        TOKENIZERS_PARALLELISM="false",
        PYTHONUNBUFFERED="1",
        PYTHONFAULTHANDLER="1",
    )
    sources = Path(__file__).parents[2]
    if sources.name not in ("site-packages", "dist-packages"):
        paths = [str(sources), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment


def make_private(directory: Path) -> None:
    """Make a directory that only its owner may enter, or make an existing one so.

    Raises:
        OSError: it can't be made, is no directory, or belongs to somebody else.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = directory.lstat()
    if found.st_uid != os.geteuid() or not directory.is_dir() or directory.is_symlink():
        raise PermissionError(f"{directory} is not a directory of this user")
    directory.chmod(0o700)


def signal_group(process_id: int, number: signal.Signals) -> None:
    """Send a signal to a whole process group; one that is gone is no error."""
    try:
        os.killpg(process_id, number)
    except (ProcessLookupError, PermissionError):
        return  # macOS says "not permitted" of a group with only dead processes in it


def start_time_of(process_id: int) -> float | None:
    """When a process was started, seconds since 1970; None where there is none (or a dead one)."""
    try:
        process = psutil.Process(process_id)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.create_time()
    except psutil.Error:
        return None


def is_alive(process_id: int, start_time: float) -> bool:
    """Whether the very process that was started then is still running."""
    found = start_time_of(process_id)
    return found is not None and abs(found - start_time) <= _START_TIME_TOLERANCE_SECONDS


def is_ours(process_id: int, start_time: float, words: Collection[str]) -> bool:
    """Whether the very process that was started then still runs, as this user, in a group of its
    own, with all these words on its command line. What a file says of a process proves nothing.
    """
    if process_id <= 1 or not is_alive(process_id, start_time):
        return False
    try:
        process = psutil.Process(process_id)
        owner, line = process.uids().effective, process.cmdline()
        leads = os.getpgid(process_id) == process_id
    except (psutil.Error, OSError):
        return False
    return owner == os.geteuid() and leads and all(word in line for word in words)


async def end_stranger(
    process_id: int, start_time: float, terminate_seconds: float = TERMINATE_SECONDS
) -> bool:
    """End the group of a process that is not our child; True once the process is gone."""
    patience = ((signal.SIGTERM, terminate_seconds), (signal.SIGKILL, REAP_SECONDS))
    for number, seconds in patience:
        if not is_alive(process_id, start_time):
            return True
        signal_group(process_id, number)
        with anyio.move_on_after(seconds):
            while is_alive(process_id, start_time):  # noqa: ASYNC110 - no one else's end can be awaited
                await anyio.sleep(0.02)
    return not is_alive(process_id, start_time)
