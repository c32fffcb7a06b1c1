"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's dialect."""

from collections.abc import Mapping
from typing import Any

import msgspec

from node.api.answer_form import require_thinking
from node.api.anthropic_order import (
    CountOrder,
    MessagesOrder,
    count_request,
    message_request,
    thinks,
)
from node.api.context import ApiContext
from node.api.exchange import EVENT_STREAM, Exchange
from node.api.generation import open_choices, require_success
from node.api.model_list import require_model, require_tools
from node.api.openai_reply import Answer
from node.api.single_reply import SingleWriter, answer_with, call_arguments, sse
from node.model.ids import RequestId
from node.model.request import Delta, Failed, Finished, FinishReason, Usage

Json = Mapping[str, object]
THINKING = "thinking"
TEXT = "text"
NOTHING: Json = {}


class AnthropicUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts; what was in the prefix cache counts apart, as Anthropic does."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class AnthropicMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/v1/messages`."""

    id: str
    model: str
    content: list[Mapping[str, object]]
    stop_reason: str | None
    stop_sequence: str | None
    usage: AnthropicUsage
    type: str = "message"
    role: str = "assistant"


class TokenCounted(msgspec.Struct, frozen=True):
    """The answer of `/v1/messages/count_tokens`."""

    input_tokens: int


async def create_message(context: ApiContext, exchange: Exchange) -> None:
    """Answer a conversation."""
    order = exchange.decode(MessagesOrder)
    request = message_request(order, exchange.request_id)
    _check(context, order)
    writer: SingleWriter = MessageWriter(exchange.request_id, order)
    await answer_with(context, exchange, request, writer, stream=bool(order.stream))


async def count_tokens(context: ApiContext, exchange: Exchange) -> None:
    """Answer with the length of the prompt."""
    order = exchange.decode(CountOrder)
    request = count_request(order, exchange.request_id)
    _check(context, order)
    async with open_choices(context, (request,)) as choices:
        async for each in choices:
            if isinstance(each.item, Finished | Failed):
                usage = require_success(each.item).usage
                counted = TokenCounted(usage.prompt_tokens)
                await exchange.answer(msgspec.json.encode(counted))


def _check(context: ApiContext, order: CountOrder) -> None:
    require_model(context.handle, order.model)
    if order.tools:
        require_tools(context.handle, order.model)
    if thinks(order):
        require_thinking(context.handle, order.model, "thinking")


class MessageWriter:
    """The events of one message: each block is begun, filled and closed before the next."""

    content_type = EVENT_STREAM
    keepalive = sse("ping", {"type": "ping"})

    def __init__(self, request_id: RequestId, order: CountOrder) -> None:
        self._id = f"msg_{request_id}"
        self._model = order.model
        self._hides_thinking = not thinks(order)
        self._open: str | None = None
        self._blocks = 0
        self._cached = 0

    def opening(self, prompt_tokens: int) -> bytes:
        """The message without content."""
        usage = AnthropicUsage(input_tokens=prompt_tokens, output_tokens=0)
        message = self._message([], usage)
        return sse("message_start", {"type": "message_start", "message": message})

    def delta(self, delta: Delta) -> bytes:
        """What goes on in the open block, or opens the next."""
        events = b""
        if delta.reasoning and not self._hides_thinking:
            events += self._enter(THINKING, {"type": THINKING, "thinking": "", "signature": ""})
            events += self._change({"type": "thinking_delta", "thinking": delta.reasoning})
        if delta.text:
            events += self._enter(TEXT, {"type": TEXT, "text": ""})
            events += self._change({"type": "text_delta", "text": delta.text})
        for call in delta.tool_calls:
            function: Any = call["function"]
            events += self._close()
            named: Json = {"id": call["id"], "name": function["name"], "input": NOTHING}
            events += self._enter("tool_use", {"type": "tool_use", **named})
            events += self._change(
                {"type": "input_json_delta", "partial_json": function["arguments"]}
            )
            events += self._close()
        return events

    def closing(self, finished: Finished) -> bytes:
        """The reason and the counts."""
        reason, stop = _reason(finished)
        change = {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": stop},
            "usage": _usage(finished.usage),
        }
        end = sse("message_stop", {"type": "message_stop"})
        return self._close() + sse("message_delta", change) + end

    def whole(self, answer: Answer, finished: Finished) -> msgspec.Struct:
        """The whole message."""
        content: list[Json] = []
        reasoning, text = "".join(answer.reasoning), "".join(answer.texts)
        if reasoning and not self._hides_thinking:
            content.append({"type": THINKING, "thinking": reasoning, "signature": ""})
        if text or not answer.tool_calls:
            content.append({"type": TEXT, "text": text})
        content += [_tool_use(call) for call in answer.tool_calls]
        message = self._message(content, _usage(finished.usage))
        reason, stop = _reason(finished)
        return msgspec.structs.replace(message, stop_reason=reason, stop_sequence=stop)

    def _message(self, content: list[Json], usage: AnthropicUsage) -> AnthropicMessage:
        return AnthropicMessage(
            id=self._id,
            model=self._model,
            content=content,
            stop_reason=None,
            stop_sequence=None,
            usage=usage,
        )

    def _enter(self, kind: str, block: Json) -> bytes:
        if self._open == kind:
            return b""
        closed = self._close()
        self._open = kind
        start = {"type": "content_block_start", "index": self._blocks, "content_block": block}
        return closed + sse("content_block_start", start)

    def _change(self, delta: Json) -> bytes:
        body: Json = {"type": "content_block_delta", "index": self._blocks, "delta": delta}
        return sse("content_block_delta", body)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        self._blocks += 1
        return sse("content_block_stop", {"type": "content_block_stop", "index": self._blocks - 1})


def _reason(finished: Finished) -> tuple[str, str | None]:
    if finished.reason is FinishReason.TOOL_CALLS:
        return "tool_use", None
    if finished.reason is FinishReason.LENGTH:
        return "max_tokens", None
    if finished.stop_text:
        return "stop_sequence", finished.stop_text
    return "end_turn", None


def _usage(usage: Usage) -> AnthropicUsage:
    return AnthropicUsage(
        input_tokens=usage.prompt_tokens - usage.cached_tokens,
        output_tokens=usage.output_tokens,
        cache_read_input_tokens=usage.cached_tokens,
    )


def _tool_use(call: dict[str, object]) -> Json:
    function: Any = call["function"]
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": function["name"],
        "input": call_arguments(call),
    }
