"""A loop whose time is a number, and whose ready tasks run in an order drawn from a seed.

Nothing waits for real: when no task is ready, time jumps to the next timer. The same seed gives the
same run, another seed other interleavings.
"""

import asyncio
import collections
from collections.abc import Awaitable, Callable
from random import Random

import anyio
import pytest

from node.io import clock

STARTED = 1000.0
WALL_OFFSET_SECONDS = 1_790_000_000.0


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop but for the time and the order."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._virtual_seconds = STARTED
        self._random = random
        self._ready: collections.deque[asyncio.Handle]
        self._scheduled: list[asyncio.TimerHandle]

    def time(self) -> float:
        """Seconds, moved by nothing but `_run_once`."""
        return self._virtual_seconds

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self._virtual_seconds = max(self._virtual_seconds, self._scheduled[0].when())
        ready = list(self._ready)
        self._random.shuffle(ready)
        self._ready.clear()
        self._ready.extend(ready)
        super()._run_once()  # type: ignore[misc]


def run_in_virtual_time(
    monkeypatch: pytest.MonkeyPatch, seed: int, program: Callable[[Random], Awaitable[None]]
) -> None:
    """Run a program to its end; `clock` tells the loop's time, and its chance is the seed's."""
    random = Random(seed)
    loop = VirtualTimeLoop(random)

    def random_hex(characters: int) -> str:
        return f"{random.getrandbits(4 * characters):0{characters}x}"

    with monkeypatch.context() as patch:
        patch.setattr(clock, "monotonic", loop.time)
        patch.setattr(clock, "wall", lambda: loop.time() + WALL_OFFSET_SECONDS)
        patch.setattr(clock, "random_hex", random_hex)
        anyio.run(program, random, backend_options={"loop_factory": lambda: loop})
