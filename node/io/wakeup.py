"""A bell: rung any number of times, it wakes its one waiter once."""

import anyio


class Wakeup:
    """Coalesces: what was rung while nobody waited is one ring."""

    def __init__(self) -> None:
        self._rung = anyio.Event()

    def ring(self) -> None:
        """Wake the waiter now, or at its next wait."""
        self._rung.set()

    async def wait(self, deadline_seconds: float | None) -> bool:
        """Return True when rung, False when the deadline came first (None: there is none)."""
        if deadline_seconds is None:
            await self._rung.wait()
            self._rung = anyio.Event()
            return True
        with anyio.move_on_after(deadline_seconds):
            await self._rung.wait()
            self._rung = anyio.Event()
            return True
        return False
