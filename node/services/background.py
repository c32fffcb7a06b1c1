"""Tasks beside a block of code, without the task group's wrapping of what the block raises."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def background_tasks() -> AsyncGenerator[TaskGroup]:
    """A task group that is cancelled at the end of the block.

    An exception of the block comes out as it is, not in an `ExceptionGroup`; one of a task still
    comes out in a group, since it is a mistake of ours.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as error:  # noqa: BLE001 -- raised again below, outside the group
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
