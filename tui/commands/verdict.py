"""What became of an accepted command whose effect is waited for: a partition may withdraw it."""

import anyio

from node.handle import NodeHandle
from node.io import clock
from node.model.command import Accepted
from node.model.errors import ConflictError, ExoctlError, Failure, NotFoundError
from node.model.ids import CommandId, InstanceId
from node.model.state import State

JUDGED_SECONDS = 30.0
"""How long a withdrawn command is waited for: the master judges it once the halves meet."""
_LOOK_SECONDS = 0.1


def rejection_of(state: State, command: CommandId) -> ConflictError | None:
    """That the command was withdrawn after a partition and can't be so any more, or None."""
    for rejected in reversed(state.rejections):
        if rejected.command == command:
            told = rejected.failure
            words = f"command {command} was accepted, then withdrawn after a partition"
            failure = Failure(
                code=told.code,
                message=f"{words}: {told.message}",
                remedy=told.remedy,
                node=told.node,
            )
            return ConflictError(failure)
    return None


async def wait_placed(handle: NodeHandle, accepted: Accepted, timeout_seconds: float) -> None:
    """Return once the placed instance is ready, over a partition that withdraws its placement.

    Raises:
        ConflictError: the placement was rejected. ExoctlError: it failed, is gone or took too long.
    """
    deadline = clock.monotonic() + timeout_seconds
    while True:
        gone = await _ready_or_gone(handle, accepted, max(0.0, deadline - clock.monotonic()))
        if gone is None:
            return
        # Either it was stopped, or a partition withdrew it: then it is judged, and may come back.
        await _judged(handle, accepted, gone, min(deadline, clock.monotonic() + JUDGED_SECONDS))


async def _ready_or_gone(
    handle: NodeHandle, accepted: Accepted, timeout_seconds: float
) -> NotFoundError | None:
    ends: list[ExoctlError | None] = []
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while not ends:
                await anyio.sleep(_LOOK_SECONDS)
                rejection = rejection_of(handle.state, accepted.id)
                if rejection is not None:
                    ends.append(rejection)
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            await handle.wait_instance(InstanceId(accepted.subject), timeout_seconds)
            ends.append(None)
        except ExoctlError as error:
            ends.append(error)
        tasks.cancel_scope.cancel()
    end = ends[0]
    if end is None or isinstance(end, NotFoundError):
        return end
    raise end


async def _judged(
    handle: NodeHandle, accepted: Accepted, gone: NotFoundError, deadline: float
) -> None:
    while InstanceId(accepted.subject) not in handle.state.instances:
        rejection = rejection_of(handle.state, accepted.id)
        if rejection is not None:
            raise rejection
        is_withdrawn = handle.state.answer_to(accepted.id) is None
        if not is_withdrawn or clock.monotonic() > deadline:
            raise gone
        await anyio.sleep(_LOOK_SECONDS)
