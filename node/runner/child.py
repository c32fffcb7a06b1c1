"""The io thread of a runner: its Unix socket, its signals, its clocks; nothing of mlx."""

import contextlib
import logging
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from node.model.errors import BusyError, Failure
from node.model.ids import RunnerId
from node.model.instance import RunnerPhase
from node.model.request import Failed
from node.runner.channel import NodeChannel
from node.runner.door import Admitted, Door
from node.runner.frames import FrameBuffer, FrameError, encode_frame
from node.runner.inbox import NodeGone
from node.runner.protocol import (
    Cancel,
    Generate,
    Introduced,
    Item,
    NodeMessage,
    Shutdown,
)
from node.runner.wake import Wake

BEAT_SECONDS = 1.0
STOP_SECONDS = 0.7
"""How long the mlx thread has to end by itself; then the process ends without it."""
FLUSH_SECONDS = 0.2
READ_BYTES = 256 * 1024
logger = logging.getLogger(__name__)


def _nothing(number: int, frame: FrameType | None) -> None:
    """The wake-up descriptor tells of the signal."""


class Child:
    """Serves one node at a time on the socket, and ends the process when it is time."""

    def __init__(
        self,
        socket_path: Path,
        runner: RunnerId,
        channel: NodeChannel,
        orphan_seconds: float,
        secret: bytes,
    ) -> None:
        """`secret` is what the runner's node shares with it."""
        self._runner = runner
        self._channel = channel
        self._orphan_seconds = orphan_seconds
        self._selector = selectors.DefaultSelector()
        self._door = Door(socket_path, runner, secret, self._selector, self._let_in)
        self._node: socket.socket | None = None
        self._buffer: FrameBuffer[NodeMessage] = FrameBuffer(NodeMessage)  # type: ignore[arg-type]
        self._unsent = b""
        self._orphan_since = time.monotonic()
        self._stop_by: float | None = None
        self._next_beat = time.monotonic() + BEAT_SECONDS

    def run(self, work: Callable[[], int]) -> int:
        """Listen, run `work` (the mlx thread) to its end, and return the exit code.

        Raises:
            OSError: the socket can't be made.
        """
        self._door.open()
        self._catch_signals()
        self._selector.register(self._channel.wake.reader, selectors.EVENT_READ, self._woken)
        results: list[int] = []

        def body() -> None:
            code = 1
            try:
                code = work()
            finally:
                results.append(code)
                self._channel.wake.wake()

        thread = threading.Thread(target=body, name="mlx", daemon=True)
        thread.start()
        try:
            while not results and not self._is_over():
                for key, _ in self._selector.select(self._seconds_to_next()):
                    key.data()
                self._keep_time()
            self._flush()
        finally:
            self._door.close()
            if self._node is not None:
                self._node.close()
            self._selector.close()
        return results[0] if results else 0

    def _catch_signals(self) -> None:
        wake = Wake()
        signal.set_wakeup_fd(wake.writer.fileno(), warn_on_full_buffer=False)
        # The terminal's Ctrl-C reaches the whole group: what it means is for the node to say.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _nothing)

        def signalled() -> None:
            if signal.SIGTERM in wake.drain():
                self._stop()

        self._selector.register(wake.reader, selectors.EVENT_READ, signalled)

    def _seconds_to_next(self) -> float:
        now = time.monotonic()
        moments = [self._next_beat]
        if self._stop_by is not None:
            moments.append(self._stop_by)
        if self._node is None:
            moments.append(self._orphan_since + self._orphan_seconds)
        return max(0.0, min(moments) - now)

    def _keep_time(self) -> None:
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_SECONDS
            self._door.keep_time()
            if self._node is not None:
                self._channel.beat()

    def _is_over(self) -> bool:
        now = time.monotonic()
        if self._stop_by is not None and now >= self._stop_by:
            return True
        orphaned = self._node is None and now >= self._orphan_since + self._orphan_seconds
        if orphaned and self._stop_by is None:
            logger.warning("no node for %.0f s: ending", self._orphan_seconds)
            self._stop()
        return False

    def _stop(self) -> None:
        """Ask the mlx thread to end; `_is_over` ends without it where it does not."""
        if self._stop_by is None:
            self._stop_by = time.monotonic() + STOP_SECONDS
            if self._channel.phase is not RunnerPhase.FAILED:
                self._channel.announce(RunnerPhase.STOPPING)
            self._channel.inbox.put(Shutdown(), always=True)

    def _let_in(self, admitted: Admitted) -> None:
        if self._node is not None:
            # A node that dials again has lost its earlier connection, whether or not we saw it.
            self._drop("replaced by a new connection")
        self._node = admitted.connection
        self._buffer = admitted.buffer
        self._selector.register(admitted.connection, selectors.EVENT_READ, self._readable)
        self._unsent = encode_frame(
            Introduced(
                runner=self._runner,
                process_id=os.getpid(),
                phase=self._channel.phase,
                attempt=self._channel.attempt,
                address=self._channel.address,
                proof=admitted.proof,
            )
        )
        self._channel.connected()
        self._channel.beat()
        for message in admitted.messages:
            self._handle(message)
        self._write()

    def _drop(self, reason: str) -> None:
        node = self._node
        if node is None:
            return
        logger.info("the node is gone: %s", reason)
        self._node = None
        self._orphan_since = time.monotonic()
        self._selector.unregister(node)
        node.close()
        self._unsent = b""
        self._channel.disconnected()
        self._channel.inbox.put(NodeGone(), always=True)

    def _readable(self) -> None:
        node = self._node
        if node is None:
            return
        try:
            received = node.recv(READ_BYTES)
            if received:
                for message in self._buffer.feed(received):
                    self._handle(message)
        except BlockingIOError:
            return
        except (OSError, FrameError) as error:
            self._drop(str(error))
            return
        if not received:
            self._drop("it closed the connection")
        else:
            self._write()

    def _handle(self, message: NodeMessage) -> None:
        if isinstance(message, Shutdown):
            self._stop()
        elif isinstance(message, Generate):
            self._generate(message)
        elif isinstance(message, Cancel):
            self._channel.inbox.put(message, always=True)
        elif not self._channel.inbox.put(message):
            self._drop("it sends commands faster than they can be taken")

    def _generate(self, message: Generate) -> None:
        phase = self._channel.phase
        if phase is not RunnerPhase.READY:
            failure = Failure(
                code="runner_not_ready",
                message=f"the runner is {phase.value}, not ready",
                remedy="try again once the instance is ready",
            )
        elif not self._channel.inbox.put(message):
            failure = Failure(code="queue_full", message="too many requests wait for the runner")
        else:
            return
        self._channel.send_now(
            Item(request=message.request.id, item=Failed(kind=BusyError.__name__, failure=failure))
        )

    def _woken(self) -> None:
        self._channel.wake.drain()
        self._write()

    def _write(self) -> None:
        node = self._node
        if node is None:
            return
        if self._channel.is_given_up:
            self._drop("it reads nothing")
            return
        try:
            while True:
                if not self._unsent:
                    self._unsent = self._channel.take_frames(READ_BYTES)
                if not self._unsent:
                    break
                sent = node.send(self._unsent)
                self._unsent = self._unsent[sent:]
        except BlockingIOError:
            self._watch(selectors.EVENT_READ | selectors.EVENT_WRITE)
        except OSError as error:
            self._drop(str(error))
        else:
            self._watch(selectors.EVENT_READ)

    def _watch(self, events: int) -> None:
        if self._node is not None:
            handler = self._readable if events == selectors.EVENT_READ else self._ready_for_both
            self._selector.modify(self._node, events, handler)

    def _ready_for_both(self) -> None:
        self._write()
        self._readable()

    def _flush(self) -> None:
        """Send what is left, without waiting longer than a moment."""
        node = self._node
        if node is None:
            return
        node.settimeout(FLUSH_SECONDS)
        with contextlib.suppress(OSError):
            while frames := self._unsent or self._channel.take_frames(READ_BYTES):
                node.sendall(frames)
                self._unsent = b""
            node.shutdown(socket.SHUT_WR)
