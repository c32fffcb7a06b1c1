"""Generations on behalf of one request: one or several at once, as one bounded stream of items."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from node.api.context import ApiContext
from node.api.faults import CancelledError, internal_error
from node.io.clock import monotonic
from node.log import logger
from node.model.errors import ExoctlError, Failure, InternalError
from node.model.request import (
    Delta,
    Failed,
    Finished,
    FinishReason,
    GenerationItem,
    GenerationRequest,
)
from node.services.background import background_tasks
from node.wire.surface import error_of_kind, kind_of

CHOICE_ITEMS_MAX = 64
"""Items between the generations and a client that reads slowly; then the generations wait."""
CHOICES_MAX = 16
"""Generations that one request may ask for."""


class ChoiceItem(msgspec.Struct, frozen=True):
    """An item of the `choice`-th generation of a request."""

    choice: int
    item: GenerationItem


log = logger("api")

Choices = MemoryObjectReceiveStream[ChoiceItem]


@asynccontextmanager
async def open_choices(
    context: ApiContext, requests: Sequence[GenerationRequest]
) -> AsyncGenerator[Choices]:
    """Run the generations while the context is open; leaving it cancels what still runs.

    Each ends with exactly one `Finished` or `Failed`, and then the stream ends.
    """
    send, receive = anyio.create_memory_object_stream[ChoiceItem](CHOICE_ITEMS_MAX)
    key = requests[0].id
    if len(requests) > 1:
        context.groups[key] = tuple(request.id for request in requests)
    try:
        async with background_tasks() as tasks:
            for choice, request in enumerate(requests):
                tasks.start_soon(_pump, context, choice, request, send.clone())
            send.close()
            with receive:
                yield receive
    finally:
        context.groups.pop(key, None)


async def _pump(
    context: ApiContext,
    choice: int,
    request: GenerationRequest,
    send: MemoryObjectSendStream[ChoiceItem],
) -> None:
    with send:
        items = context.handle.generate(request)
        try:
            await _forward(choice, request, items, send)
        finally:
            with anyio.move_on_after(context.timing.close_seconds, shield=True):
                await items.aclose()


async def _forward(
    choice: int,
    request: GenerationRequest,
    items: AsyncGenerator[GenerationItem, None],
    send: MemoryObjectSendStream[ChoiceItem],
) -> None:
    expected = 0
    try:
        async for item in items:
            if isinstance(item, Delta):
                _check_order(request, item, expected)
                expected += 1
            await send.send(ChoiceItem(choice, item))
            if isinstance(item, Finished | Failed):
                return
    except ExoctlError as error:
        failed = Failed(kind=kind_of(error), failure=error.failure)
    except anyio.BrokenResourceError:
        return  # nobody reads any more
    except Exception:  # the boundary: a mistake in one generation must end it, and only it
        log.exception("%s: internal error", request.id)
        failed = Failed(kind=InternalError.__name__, failure=internal_error().failure)
    else:
        failure = Failure(code="stream_cut", message=f"{request.id} ended without a last item")
        failed = Failed(kind=InternalError.__name__, failure=failure)
    with contextlib.suppress(anyio.BrokenResourceError):
        await send.send(ChoiceItem(choice, failed))


def _check_order(request: GenerationRequest, delta: Delta, expected: int) -> None:
    if delta.index != expected:
        raise InternalError.because(
            "stream_gap", f"{request.id}: delta {delta.index} came where {expected} was due"
        )


def require_success(item: Finished | Failed) -> Finished:
    """The end of a generation that a client may be given.

    Raises:
        ExoctlError: it failed, or was cancelled.
    """
    if isinstance(item, Failed):
        raise error_of_kind(item.kind, item.failure)
    if item.reason is FinishReason.CANCELLED:
        raise CancelledError.because("cancelled", "the generation was cancelled")
    return item


class Waiter:
    """Takes items from a stream, with a tick for each period in which the client got nothing."""

    def __init__(self, choices: Choices, period_seconds: float) -> None:
        self._choices = choices
        self._period = period_seconds
        self._due = monotonic() + period_seconds

    def touch(self, period_seconds: float) -> None:
        """Something was written: the next tick is a period away."""
        self._period = period_seconds
        self._due = monotonic() + period_seconds

    async def next(self) -> ChoiceItem | None:
        """The next item, or None where a period passed without anything written.

        Raises:
            anyio.EndOfStream: all generations are done.
        """
        item = None
        with anyio.move_on_after(max(0.0, self._due - monotonic())):
            item = await self._choices.receive()
        if item is None:
            self._due = monotonic() + self._period
        return item
