"""What waits to be sent over one connection: bounded, and joined into large sends."""

from collections import deque
from collections.abc import Iterable

from node.model.ids import NodeId
from node.model.register import Register
from node.wire.codec import Codec


class Outbox:
    """A queue of frames, a slot each for ping and pong, and registers by (node, kind).

    `put` refuses at a bound; what then happens is the caller's decision.
    """

    def __init__(self, codec: Codec, frames_max: int, bytes_max: int, registers_max: int) -> None:
        self._codec = codec
        self._frames_max = frames_max
        self._bytes_max = bytes_max
        self._registers_max = registers_max
        self._frames: deque[bytes] = deque()
        self._frame_bytes = 0
        self._urgent: dict[str, bytes] = {}
        self._registers: dict[tuple[NodeId, type], Register] = {}

    @property
    def bytes_waiting(self) -> int:
        """Bytes of the frames in the queue."""
        return self._frame_bytes

    @property
    def is_half_empty(self) -> bool:
        """Whether less than half of what may wait does."""
        return 2 * len(self._frames) < self._frames_max and 2 * self._frame_bytes < self._bytes_max

    def put(self, frame: bytes) -> bool:
        """Queue a frame; False where the queue is full."""
        if (
            len(self._frames) >= self._frames_max
            or self._frame_bytes + len(frame) > self._bytes_max
        ):
            return False
        self._frames.append(frame)
        self._frame_bytes += len(frame)
        return True

    def put_urgent(self, slot: str, frame: bytes) -> None:
        """Send the frame before all others; one that still waits in the slot is replaced."""
        self._urgent[slot] = frame

    def put_registers(self, registers: Iterable[Register]) -> None:
        """Send the registers when there is room; a later version replaces one that still waits."""
        waiting = self._registers
        for register in registers:
            key = (register.node, type(register.value))
            known = waiting.get(key)
            if known is not None and (known.incarnation, known.sequence) > (
                register.incarnation,
                register.sequence,
            ):
                continue
            if known is None and len(waiting) >= self._registers_max:
                del waiting[next(iter(waiting))]
            waiting[key] = register

    def take(self, bytes_wanted: int) -> bytes:
        """The next bytes to send, whole frames, up to about that many; empty where none wait."""
        chosen = list(self._urgent.values())
        self._urgent.clear()
        size, frames = 0, self._frames
        while frames and size < bytes_wanted:
            frame = frames.popleft()
            size += len(frame)
            chosen.append(frame)
        self._frame_bytes -= size
        if self._registers:
            chosen += self._codec.encode_registers(self._registers.values())
            self._registers.clear()
        return b"".join(chosen)
