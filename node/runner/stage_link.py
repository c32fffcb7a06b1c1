"""A link between two neighbouring stages: own frames over TCP, with a deadline on everything."""

import contextlib
import math
import select
import socket
import ssl
import time
from collections.abc import Sequence

import mlx.core as mx

from node.runner.failures import RunnerError, StopAskedError
from node.runner.inbox import Inbox
from node.runner.stage_frame import (
    StageFrameError,
    StageGoodbye,
    StageMessage,
    array_bytes,
    array_from_bytes,
    decode_header,
    encode_header,
    header_length,
)

SEND_BYTES = 64 * 1024
"""Sent at once: each such part is a progress that renews the deadline."""
KEEPALIVE_SECONDS = 5
"""A silent link is probed this often; a host that is gone is noticed after three probes."""


class PeerGoneError(StopAskedError):
    """The neighbour has said goodbye: a stop as well, only not by the own node."""


def stage_lost(peer: str, what: str) -> RunnerError:
    """A neighbour is gone or silent: the instance can't go on."""
    error = RunnerError.because(
        "stage_lost",
        f"{peer} {what}",
        "the instance is started again by itself where another try is left",
    )
    assert isinstance(error, RunnerError)
    return error


def tune(connection: socket.socket) -> None:
    """No delay for small frames, and probes that find a host which lost power."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)
    if idle is not None:
        connection.setsockopt(socket.IPPROTO_TCP, idle, KEEPALIVE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    # No TCP_USER_TIMEOUT: it would end the link to a neighbour that computes for long and reads
    # nothing meanwhile. Who sends has a deadline, and who only receives has the probes.


class _Until:
    """The deadline of each part of a frame, and of all of it."""

    def __init__(self, pause_seconds: float, by: float) -> None:
        self._pause_seconds = pause_seconds
        self._by = by

    def seconds(self) -> float:
        """How long the next part may take.

        Raises:
            TimeoutError: the whole took too long.
        """
        remaining = min(self._pause_seconds, self._by - time.monotonic())
        if remaining <= 0:
            raise TimeoutError
        return remaining


class StageLink:
    """One direction of the circle: the stage before sends, the stage after receives."""

    def __init__(self, connection: socket.socket, peer: str, inbox: Inbox | None = None) -> None:
        """`inbox` ends waits early when the node asks the runner to stop."""
        self.socket = connection
        self._peer = peer
        self._inbox = inbox

    @property
    def has_buffered(self) -> bool:
        """Whether something was received already that the socket does not show any more."""
        return isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() > 0

    def is_readable(self) -> bool:
        """Whether something has come, without waiting."""
        if self.has_buffered:
            return True
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        return bool(poller.poll(0))

    def send(
        self, message: StageMessage, arrays: Sequence[mx.array] = (), seconds: float = 10.0
    ) -> None:
        """Send one frame; `seconds` may pass without any progress.

        Raises:
            RunnerError: stage_lost, as the neighbour is gone or takes nothing for so long.
        """
        listed = list(arrays)
        views = [array_bytes(array) for array in listed if array.size]
        try:
            self.socket.settimeout(seconds)
            for view in (memoryview(encode_header(message, listed)), *views):
                self._put(view)
        except TimeoutError as error:
            raise stage_lost(self._peer, f"took nothing for {seconds:.1f} s") from error
        except OSError as error:
            raise stage_lost(self._peer, f"is gone: {error.strerror or error}") from error

    def receive(
        self, seconds: float | None, *, by: float = math.inf
    ) -> tuple[StageMessage, list[mx.array]]:
        """Receive one frame; `seconds` may pass until it begins, and between its parts. It must be
        whole at the moment `by`, of the monotonic clock.

        Raises:
            RunnerError: stage_lost. PeerGoneError: it said goodbye. StopAskedError: the node did.
        """
        self._wait(seconds)
        pause = seconds if seconds is not None else float(KEEPALIVE_SECONDS * 4)
        try:
            until = _Until(pause, by)
            envelope = decode_header(bytes(self._take(header_length(self._take(4, until)), until)))
            arrays = [
                array_from_bytes(layout, self._take(layout.bytes_count, until))
                for layout in envelope.arrays
            ]
        except TimeoutError as error:
            raise stage_lost(self._peer, f"sent nothing for {pause:.1f} s") from error
        except StageFrameError as error:
            raise stage_lost(self._peer, f"sent no frame: {error}") from error
        except OSError as error:
            raise stage_lost(self._peer, f"is gone: {error.strerror or error}") from error
        if isinstance(envelope.message, StageGoodbye):
            raise PeerGoneError(self._peer)
        return envelope.message, arrays

    def say_goodbye(self) -> None:
        """End the link on purpose; never waits."""
        with contextlib.suppress(RunnerError, OSError):
            self.send(StageGoodbye(), seconds=0.1)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def _wait(self, seconds: float | None) -> None:
        if self._inbox is None or self.has_buffered:
            return
        began = time.monotonic()
        if not self._inbox.wait_for_stop(self.socket, seconds):
            waited = time.monotonic() - began
            raise stage_lost(self._peer, f"sent nothing for {waited:.1f} s")

    def _put(self, view: memoryview) -> None:
        while view:
            view = view[self.socket.send(view[:SEND_BYTES]) :]

    def _take(self, count: int, until: "_Until") -> bytearray:
        received = bytearray(count)
        view = memoryview(received)
        done = 0
        while done < count:
            self.socket.settimeout(until.seconds())
            size = self.socket.recv_into(view[done:])
            if size == 0:
                raise ConnectionResetError("it closed the connection")
            done += size
        return received
