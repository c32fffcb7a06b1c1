"""What the mlx thread sees of the node: a phase to announce, messages to send, figures to keep."""

import logging
import threading
from collections import deque

import msgspec

from node.model.errors import Failure
from node.model.ids import RunnerId
from node.model.instance import RunnerPhase, StageAddress
from node.model.register import RunnerProgress
from node.runner.frames import encode_frame
from node.runner.inbox import Inbox
from node.runner.protocol import Beat, Listening, PhaseChanged, RunnerMessage
from node.runner.wake import Wake

OUTBOX_BYTES_MAX = 8 * 1024 * 1024
"""Bytes that wait for the node; at this the mlx thread waits too."""
OUTBOX_WAIT_SECONDS = 30.0
"""How long it waits for a node that reads nothing before it drops what it has to say."""
logger = logging.getLogger(__name__)


class NodeChannel:
    """Shared by the two threads. The mlx thread speaks, the io thread carries."""

    def __init__(self, runner: RunnerId) -> None:
        self.inbox = Inbox()
        self.phase = RunnerPhase.STARTING
        self.attempt = 0
        self.address: StageAddress | None = None
        self.progress = RunnerProgress(runner=runner)
        self.busy = False
        self._frames: deque[bytes] = deque()
        self._bytes_waiting = 0
        self._connected = False
        self._changed = threading.Condition()
        self.wake = Wake()

    def announce(self, phase: RunnerPhase, failure: Failure | None = None) -> None:
        """Enter a phase and tell the node."""
        self.phase = phase
        logger.info("%s%s", phase.value, f": {failure.message}" if failure else "")
        self.send(PhaseChanged(phase=phase, failure=failure))

    def listening(self, address: StageAddress) -> None:
        """Tell the node where the stage before may dial."""
        self.address = address
        self.send(Listening(address=address))

    def update(self, **changes: object) -> None:
        """Replace figures of the progress that the next `Beat` carries."""
        self.progress = msgspec.structs.replace(self.progress, **changes)

    def beat(self) -> None:
        """Send the progress now."""
        self.send(Beat(progress=self.progress, busy=self.busy))

    def send(self, message: RunnerMessage) -> None:
        """Send to the node, or drop where none is connected: it learns the phase when it comes."""
        frame = encode_frame(message)
        with self._changed:
            if not self._connected:
                return
            if self._bytes_waiting > OUTBOX_BYTES_MAX and not self._changed.wait_for(
                lambda: not self._connected or self._bytes_waiting <= OUTBOX_BYTES_MAX,
                OUTBOX_WAIT_SECONDS,
            ):
                logger.warning("the node reads nothing: dropped %d bytes", len(frame))
                return
            self._frames.append(frame)
            self._bytes_waiting += len(frame)
        self.wake.wake()

    def connected(self) -> None:
        """A node is there; what waited for an earlier one is gone."""
        with self._changed:
            self._frames.clear()
            self._bytes_waiting = 0
            self._connected = True
            self._changed.notify_all()

    def disconnected(self) -> None:
        """No node is there: what is said from now on is dropped."""
        with self._changed:
            self._frames.clear()
            self._bytes_waiting = 0
            self._connected = False
            self._changed.notify_all()

    def take_frames(self, bytes_max: int) -> bytes:
        """The io thread takes frames to send, whole ones, about as many as asked for."""
        taken: list[bytes] = []
        size = 0
        with self._changed:
            while self._frames and size < bytes_max:
                frame = self._frames.popleft()
                size += len(frame)
                taken.append(frame)
            self._bytes_waiting -= size
            self._changed.notify_all()
        return b"".join(taken)
