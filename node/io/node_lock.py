"""The lock of a state directory: one node at a time, and how others find it."""

import fcntl
import os
from pathlib import Path

import msgspec

from node.model.errors import ConflictError
from node.model.ids import NodeId
from node.model.machine import Address

LOCK_NAME = "node.lock"


class LockRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the running node says of itself in its lock file."""

    process_id: int
    node: NodeId = NodeId("")
    name: str = ""
    api: Address | None = None
    cluster_address: Address | None = None
    version: str = ""
    started_at: float = 0.0


class NodeLock:
    """Held for the node's life; the kernel lets go of it however the process ends."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / LOCK_NAME
        self._descriptor = -1

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            ConflictError: a node runs on this state directory; names its process.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            holder = read_lock(self._path.parent)
            who = f"process {holder.process_id}" if holder else "another process"
            raise ConflictError.because(
                "node_running",
                f"a node already runs on {self._path.parent} ({who})",
                "attach to it with `exoctl`, or give this one its own --state-dir and ports",
            ) from None
        self._descriptor = descriptor

    def publish(self, record: LockRecord) -> None:
        """Write where this node can be reached."""
        payload = msgspec.json.encode(record)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, payload, 0)

    def release(self) -> None:
        """Let go; the file stays, empty, so that nobody ever locks a removed one."""
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1


def read_lock(state_directory: Path) -> LockRecord | None:
    """The running node of a state directory, or None where none runs or it is still starting."""
    path = state_directory / LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            return None
        payload = os.read(descriptor, 65536)
    finally:
        os.close(descriptor)
    try:
        return msgspec.json.decode(payload, type=LockRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def is_suspended(process_id: int) -> bool:
    """Whether a process of this machine is stopped, as ctrl-z and SIGSTOP do."""
    import psutil  # noqa: PLC0415 -- only for a node that does not answer

    try:
        return psutil.Process(process_id).status() == psutil.STATUS_STOPPED
    except (psutil.Error, ValueError):
        return False
