"""POST /v1/cluster/generate: a generation's items as they are, for exoctl's own client."""

import anyio
import msgspec

from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.faults import ParameterError
from node.api.generation import ChoiceItem, Waiter, open_choices
from node.api.names import request_id
from node.api.openai_order import TOKENS_MAX, TOP_K_MAX, TOP_LOGPROBS_MAX
from node.model.request import Failed, GenerationRequest
from node.wire.surface import NDJSON, error_of_kind

KEEPALIVE = b"\n"


async def generate_items(context: ApiContext, exchange: Exchange) -> None:
    """Stream the items as NDJSON; empty lines keep the connection alive."""
    request = exchange.decode(GenerationRequest)
    _check_counts(request)
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


def _check_counts(request: GenerationRequest) -> None:
    """The same limits as in the OpenAI dialect."""
    counts = {
        "tokens_max": (request.tokens_max, TOKENS_MAX),
        "sampling.top_k": (request.sampling.top_k, TOP_K_MAX),
        "top_logprobs": (request.top_logprobs or 0, TOP_LOGPROBS_MAX),
    }
    for name, (count, limit) in counts.items():
        if not 0 <= count <= limit:
            raise ParameterError(name, f"{name} is out of range: from 0 to {limit} is possible")


def _encode(exchange: Exchange, each: ChoiceItem | None) -> bytes:
    if each is None:
        return KEEPALIVE
    if isinstance(each.item, Failed) and not exchange.started:
        raise error_of_kind(each.item.kind, each.item.failure)
    return msgspec.json.encode(each.item) + b"\n"
