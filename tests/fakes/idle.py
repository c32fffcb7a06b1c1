"""When a screen under test is at rest: told by its loop, not guessed from the processor's time.

Textual's own way waits at least 20 ms a key and longer while the machine does other things.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

TURNS_MAX = 10_000
"""Of the loop, for what is under way; more is a screen that never rests."""
SOON_SECONDS = 0.025
"""What timers bring within so long belongs to it: a frame, and what a resize waits for."""
GRACE_SECONDS = 0.001


async def loop_at_rest(min_sleep: float = 0.0, max_sleep: float = 1.0) -> None:
    """Return once nothing is ready to run in this loop, and no timer makes it so at once."""
    del min_sleep
    loop: Any = asyncio.get_running_loop()
    end = loop.time() + max_sleep
    await asyncio.sleep(GRACE_SECONDS)
    while True:
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            if not loop._ready:  # the one place that looks into the loop
                break
        now = loop.time()
        due = [each.when() for each in loop._scheduled if not each.cancelled()]
        next_due = min(due, default=end)
        if next_due > now + SOON_SECONDS or now > end:
            return
        await asyncio.sleep(max(0.0, next_due - now) + GRACE_SECONDS)


@contextmanager
def told_by_the_loop() -> Generator[None]:
    """Have pilots wait for the loop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("textual.pilot.wait_for_idle", loop_at_rest)
        patch.setattr("textual.app.wait_for_idle", loop_at_rest)
        yield
