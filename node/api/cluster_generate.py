"""POST /v1/cluster/generate: a generation's items as they are, for exoctl's own client."""

import anyio
import msgspec

from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.generation import ChoiceItem, Waiter, open_choices
from node.api.names import request_id
from node.model.request import Failed, GenerationRequest
from node.wire.surface import NDJSON, error_of_kind

KEEPALIVE = b"\n"


async def generate_items(context: ApiContext, exchange: Exchange) -> None:
    """Stream the items as NDJSON; empty lines keep the connection alive."""
    request = exchange.decode(GenerationRequest)
    exchange.rename(request_id(request.id))
    async with open_choices(context, [request]) as choices:
        waiter = Waiter(choices, context.timing.hold_seconds)
        while True:
            try:
                each = await waiter.next()
            except anyio.EndOfStream:
                break
            await exchange.write_or_begin(NDJSON.encode(), _encode(exchange, each))
            waiter.touch(context.timing.keepalive_seconds)
    await exchange.end()


def _encode(exchange: Exchange, each: ChoiceItem | None) -> bytes:
    if each is None:
        return KEEPALIVE
    if isinstance(each.item, Failed) and not exchange.started:
        raise error_of_kind(each.item.kind, each.item.failure)
    return msgspec.json.encode(each.item) + b"\n"
