"""Waiting for something that has no event to wait for, such as the far end of a connection."""

from collections.abc import Callable

import anyio


async def eventually(predicate: Callable[[], object], seconds: float = 2.0) -> None:
    """Return once the predicate holds; fail where it does not within the time."""
    with anyio.fail_after(seconds):
        while not predicate():  # noqa: ASYNC110
            await anyio.sleep(0.005)
