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
OUTBOX_URGENT_BYTES_MAX = 2 * OUTBOX_BYTES_MAX
"""The bound for what can't wait: phases, and refusals of the io thread."""
OUTBOX_WAIT_SECONDS = 30.0
"""How long a node may read nothing before its connection is given up."""
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
        self._beat = b""
        self._connected = False
        self._given_up = False
        self._changed = threading.Condition()
        self.wake = Wake()

    def announce(self, phase: RunnerPhase, failure: Failure | None = None) -> None:
        """Enter a phase and tell the node."""
        self.phase = phase
        logger.info("%s%s", phase.value, f": {failure.message}" if failure else "")
        self.send_now(PhaseChanged(phase=phase, failure=failure))

    def listening(self, address: StageAddress) -> None:
        """Tell the node where the stage before may dial."""
        self.address = address
        self.send_now(Listening(address=address))

    def update(self, **changes: object) -> None:
        """Replace figures of the progress that the next `Beat` carries."""
        self.progress = msgspec.structs.replace(self.progress, **changes)

    def beat(self) -> None:
        """Send the progress now, in place of an earlier one that has not left yet."""
        frame = encode_frame(Beat(progress=self.progress, busy=self.busy))
        with self._changed:
            if not self._connected:
                return
            self._beat = frame
        self.wake.wake()

    def send(self, message: RunnerMessage) -> None:
        """The mlx thread's way to the node, which waits for a slow one; only where the io thread
        can meanwhile send. Without a node it is dropped: a new one learns the phase when it comes.
        """
        frame = encode_frame(message)
        with self._changed:
            if self._bytes_waiting > OUTBOX_BYTES_MAX and not self._changed.wait_for(
                lambda: not self._connected or self._bytes_waiting <= OUTBOX_BYTES_MAX,
                OUTBOX_WAIT_SECONDS,
            ):
                self._give_up()
            self._append(frame)
        self.wake.wake()

    def send_now(self, message: RunnerMessage) -> None:
        """Send without ever waiting, from either thread."""
        frame = encode_frame(message)
        with self._changed:
            if self._bytes_waiting > OUTBOX_URGENT_BYTES_MAX:
                self._give_up()
            self._append(frame)
        self.wake.wake()

    @property
    def is_given_up(self) -> bool:
        """Whether the node read nothing for so long that the io thread shall disconnect it."""
        return self._given_up

    def connected(self) -> None:
        """A node is there; what waited for an earlier one is gone."""
        self._reset(connected=True)

    def disconnected(self) -> None:
        """No node is there: what is said from now on is dropped."""
        self._reset(connected=False)

    def take_frames(self, bytes_max: int) -> bytes:
        """The io thread takes frames to send, whole ones, about as many as asked for, and a beat
        with them however many more wait.
        """
        taken: list[bytes] = []
        size = 0
        with self._changed:
            while self._frames and size < bytes_max:
                frame = self._frames.popleft()
                size += len(frame)
                taken.append(frame)
            self._bytes_waiting -= size
            taken.append(self._beat)
            self._beat = b""
            self._changed.notify_all()
        return b"".join(taken)

    def close(self) -> None:
        """Let go of its descriptors."""
        self.inbox.close()
        self.wake.close()

    def _append(self, frame: bytes) -> None:
        if self._connected:
            self._frames.append(frame)
            self._bytes_waiting += len(frame)

    def _give_up(self) -> None:
        """A message left out would break the protocol, so the whole connection ends."""
        logger.warning("the node reads nothing: %d bytes wait for it", self._bytes_waiting)
        self._reset(connected=False)
        self._given_up = True

    def _reset(self, *, connected: bool) -> None:
        with self._changed:
            self._frames.clear()
            self._bytes_waiting = 0
            self._beat = b""
            self._connected = connected
            self._given_up = False
            self._changed.notify_all()
