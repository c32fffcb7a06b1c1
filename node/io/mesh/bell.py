"""A bell: rung any number of times, it wakes its one waiter once."""

import anyio


class Bell:
    """Coalesces: what was rung while nobody waited is one ring."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[None](1)

    def ring(self) -> None:
        """Wake the waiter now, or at its next wait; nothing once it is closed."""
        try:
            self._send.send_nowait(None)
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def wait(self, seconds_max: float | None = None) -> None:
        """Return when rung, or after that many seconds."""
        if seconds_max is None:
            await self._receive.receive()
            return
        with anyio.move_on_after(seconds_max):
            await self._receive.receive()

    def close(self) -> None:
        """Nobody waits any more."""
        self._send.close()
        self._receive.close()
