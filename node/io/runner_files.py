"""Files of a node's runners: sockets, records, scratch directories and logs."""

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection
from pathlib import Path

import msgspec

from node.io.child_process import make_private
from node.io.durability import replace_file
from node.model.errors import UsageError
from node.model.ids import InstanceId, RunnerId

SOCKET_PATH_BYTES_MAX = 103
"""What fits into a socket address on macOS, its closing zero byte taken off; Linux has 107."""
RECORD_BYTES_MAX = 64 * 1024
LOGS_KEPT = 32
"""Logs of runners, old and new; the oldest go first."""
_RUNNER_ID = re.compile(r"r-([0-9a-f]{8})\Z")


class RunnerFile(msgspec.Struct, frozen=True, kw_only=True):
    """What lies beside a runner's socket, so that the node's next life can find the process."""

    runner: RunnerId
    instance: InstanceId
    process_id: int
    start_time: float
    """Seconds since 1970, as the system tells it."""
    socket: str
    attempt: int = 1
    secret: str = ""
    """What the runner and its node know, in hexadecimal digits; empty: it can't be adopted."""
    version: str = ""
    """Of the program that both run."""
    order: msgspec.Raw = msgspec.Raw(b"null")
    """What the runner was told to hold, for whoever started it to read."""


class RunnerFiles:
    """Where everything of a runner lies: `r/` and `logs/` of the state directory."""

    def __init__(self, state_directory: Path) -> None:
        """Nothing is made yet.

        Where the state directory's path is too long for sockets, they lie in a private directory of
        the same user under the temporary directory, named after the state directory.
        """
        self._root = state_directory.absolute() / "r"
        self._logs = state_directory.absolute() / "logs"
        self._sockets = self._root
        if len(os.fsencode(self._root / "01234567.sock")) > SOCKET_PATH_BYTES_MAX:
            digest = hashlib.sha256(os.fsencode(self._root)).hexdigest()[:8]
            self._sockets = Path(tempfile.gettempdir()) / f"exoctl-{os.geteuid()}-{digest}"

    def prepare(self) -> None:
        """Make the directories, readable by their owner alone, and drop the oldest logs.

        Raises:
            OSError: one can't be made, or somebody else holds its name.
        """
        make_private(self._root)
        make_private(self._sockets)
        logs = sorted(self._logs.glob("runner-*.log*"), key=_changed_at, reverse=True)
        for log in logs[LOGS_KEPT:]:
            log.unlink(missing_ok=True)

    def socket(self, runner: RunnerId) -> Path:
        """Where the runner listens for its node."""
        return self._sockets / f"{_digits(runner)}.sock"

    def scratch(self, runner: RunnerId) -> Path:
        """The runner's working and temporary directory; kept over its restarts."""
        return self._root / f"{_digits(runner)}.tmp"

    def log(self, runner: RunnerId) -> Path:
        """The runner's output."""
        return self._logs / f"runner-{runner}.log"

    def write(self, record: RunnerFile) -> None:
        """Note a running child.

        Raises:
            OSError: it can't be written.
        """
        replace_file(self._record(record.runner), msgspec.json.encode(record))

    def read_all(self) -> list[RunnerFile]:
        """Every child noted and not removed; what this user did not write so is removed."""
        found: list[RunnerFile] = []
        for path in sorted(self._root.glob("*.json")):
            try:
                record = msgspec.json.decode(_read_own(path), type=RunnerFile)
                known = self._record(record.runner) == path
            except (OSError, msgspec.DecodeError, UsageError, RecursionError):
                known = False
            else:
                if known:
                    found.append(record)
            if not known:
                _remove(path)
        return found

    def command_words(self, runner: RunnerId) -> tuple[str, ...]:
        """What stands on the command line of a runner of this very state directory."""
        return ("--socket", str(self.socket(runner)), "--runner", runner)

    def remove(self, runner: RunnerId) -> None:
        """Remove what a process leaves: its socket and its record; what can't be is swept later."""
        for path in (self._record(runner), self.socket(runner)):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def remove_scratch(self, runner: RunnerId) -> None:
        """Remove the scratch directory of a runner that won't be started again."""
        shutil.rmtree(self.scratch(runner), ignore_errors=True)

    def sweep(self, living: Collection[RunnerId] = ()) -> None:
        """Remove what is left of any runner but the living ones."""
        kept = {_digits(runner) for runner in living}
        for path in (*self._root.glob("*.tmp"), *self._sockets.glob("*.sock")):
            if path.stem not in kept:
                _remove(path)

    def close(self) -> None:
        """Once no runner is left: leave nothing, neither here nor under the temporary directory."""
        self.sweep()
        if self._sockets != self._root:
            with contextlib.suppress(OSError):
                self._sockets.rmdir()

    def _record(self, runner: RunnerId) -> Path:
        return self._root / f"{_digits(runner)}.json"


def _read_own(path: Path) -> bytes:
    """The content of a plain file of this user, of no absurd size.

    Raises:
        OSError: it is something else.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{path} is not a file of this user")
        if found.st_size > RECORD_BYTES_MAX:
            raise OSError(f"{path} has {found.st_size} bytes, at most {RECORD_BYTES_MAX}")
        return file.read()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _digits(runner: RunnerId) -> str:
    """The 8 digits of a runner id: the only part of it that becomes a file name."""
    match = _RUNNER_ID.match(runner)
    if match is None:
        raise UsageError.because("bad_runner_id", f"{runner!r} is no runner id")
    return match.group(1)


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
