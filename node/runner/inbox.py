"""Commands on their way from the io thread to the mlx thread."""

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence

import msgspec

from node.runner.failures import StopAskedError
from node.runner.protocol import NodeMessage, Shutdown
from node.runner.wake import Wake

COMMANDS_MAX = 1024
"""Commands that wait for the mlx thread; further ones are refused."""


class NodeGone(msgspec.Struct, frozen=True):
    """The connection to the node has ended: nobody waits for what is being generated."""


InboxItem = NodeMessage | NodeGone


class Inbox:
    """A bounded queue that can be waited for together with sockets."""

    def __init__(self) -> None:
        self._commands: deque[InboxItem] = deque()
        self._lock = threading.Lock()
        self._wake = Wake()
        self._stop_asked = False

    def put(self, command: InboxItem, *, always: bool = False) -> bool:
        """Hand a command over; False where the queue is full. `always` is for ends and cancels,
        which are bounded by what they end.
        """
        with self._lock:
            if not always and len(self._commands) >= COMMANDS_MAX:
                return False
            self._commands.append(command)
            self._stop_asked = self._stop_asked or isinstance(command, Shutdown)
        self._wake.wake()
        return True

    def close(self) -> None:
        """Let go of its descriptors."""
        self._wake.close()

    def take(self) -> list[InboxItem]:
        """Every command that waits, without waiting."""
        with self._lock:
            commands = list(self._commands)
            self._commands.clear()
        return commands

    def wait(self, sockets: Sequence[socket.socket], timeout_seconds: float | None) -> bool:
        """Block until a command, something on one of the sockets, or the timeout (None: no limit).

        Returns whether one of the sockets has something to read.
        """
        with self._lock:
            if self._commands:
                timeout_seconds = 0.0
        poller = select.poll()
        poller.register(self._wake.reader, select.POLLIN)
        for other in sockets:
            poller.register(other, select.POLLIN)
        milliseconds = None if timeout_seconds is None else timeout_seconds * 1000
        ready = {descriptor for descriptor, _ in poller.poll(milliseconds)}
        if self._wake.reader.fileno() in ready:
            self._wake.drain()
        return any(other.fileno() in ready for other in sockets)

    def raise_if_stopped(self) -> None:
        """Raises:
        StopAskedError: a `Shutdown` is among the commands.
        """
        if self._stop_asked:
            raise StopAskedError

    def wait_for_stop(self, other: socket.socket, timeout_seconds: float | None) -> bool:
        """Block until the socket has something to read, leaving commands where they are.

        Returns whether it has.

        Raises:
            StopAskedError: a `Shutdown` came.
        """
        poller = select.poll()
        poller.register(self._wake.reader, select.POLLIN)
        poller.register(other, select.POLLIN)
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            self.raise_if_stopped()
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                return False
            milliseconds = None if remaining is None else remaining * 1000
            ready = {descriptor for descriptor, _ in poller.poll(milliseconds)}
            if other.fileno() in ready:
                return True
            self._wake.drain()
