"""Pages: the form of every answer of the cluster dialect that is not a stream."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import anyio
import msgspec

from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.names import read_flag
from node.api.people import to_people
from node.handle import LocalView
from node.model.errors import TimeoutExpiredError
from node.wire.surface import EXACT, Page


async def send_page(
    context: ApiContext,
    exchange: Exchange,
    kind: str,
    items: Sequence[object],
    status: int = 200,
) -> None:
    """Answer with items, for people or as they are, as the query says."""
    page = Page[object](kind=kind, index=context.handle.state.index, items=list(items))
    exact = read_flag(exchange.query, EXACT, default=False)
    body = msgspec.json.encode(page if exact else to_people(page))
    await exchange.answer(body, status=status)


@contextmanager
def time_limit(seconds: float, what: str) -> Generator[None]:
    """End what takes too long.

    Raises:
        TimeoutExpiredError: says what took how long.
    """
    with anyio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise TimeoutExpiredError.because(
            "timed_out",
            f"no answer to {what} within {seconds:g} s",
            "it may still be carried out: look before you ask again",
        )


async def local_facts(context: ApiContext) -> LocalView:
    """What the node that answers says of itself.

    Raises:
        TimeoutExpiredError: it did not within the time of a call.
    """
    with time_limit(context.timing.call_seconds, "the node's own facts"):
        return await context.handle.local()
