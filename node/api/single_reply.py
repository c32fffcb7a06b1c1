"""Answering with one generation in a dialect that has one answer: whole, or as a stream."""

from collections.abc import Mapping
from typing import Any, Protocol

import anyio
import msgspec

from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.generation import Waiter, open_choices, require_success
from node.api.openai_reply import Answer
from node.model.request import (
    Delta,
    Failed,
    Finished,
    GenerationItem,
    GenerationRequest,
    Prefilled,
)


class SingleWriter(Protocol):
    """How a dialect writes its one answer."""

    content_type: bytes
    keepalive: bytes
    """What says that the answer still comes; empty where the dialect has no such thing."""

    def opening(self, prompt_tokens: int) -> bytes:
        """What comes before the first output."""
        ...

    def delta(self, delta: Delta) -> bytes:
        """New output."""
        ...

    def closing(self, finished: Finished) -> bytes:
        """The end."""
        ...

    def whole(self, answer: Answer, finished: Finished) -> msgspec.Struct:
        """The answer where nothing is streamed."""
        ...


async def answer_with(
    context: ApiContext,
    exchange: Exchange,
    request: GenerationRequest,
    writer: SingleWriter,
    *,
    stream: bool,
) -> None:
    """Generate, and send what comes of it."""
    if stream:
        await _send_stream(context, exchange, request, writer)
        return
    answer = Answer()
    async with open_choices(context, (request,)) as choices:
        async for each in choices:
            if isinstance(each.item, Delta):
                answer.add(each.item)
            elif isinstance(each.item, Finished | Failed):
                answer.finished = require_success(each.item)
    assert answer.finished is not None, "a generation ends with an end"
    count_tokens(context, answer.finished)
    await exchange.answer(msgspec.json.encode(writer.whole(answer, answer.finished)))


async def _send_stream(
    context: ApiContext, exchange: Exchange, request: GenerationRequest, writer: SingleWriter
) -> None:
    """The head is held back until the first output, or until waiting has become long: a failure
    before that still gets its status.
    """
    lines = _Lines(context, writer)
    async with open_choices(context, (request,)) as choices:
        waiter = Waiter(choices, context.timing.hold_seconds)
        while True:
            try:
                each = await waiter.next()
            except anyio.EndOfStream:
                break
            data = writer.keepalive if each is None else lines.of(each.item)
            if data or each is None:
                await exchange.write_or_begin(writer.content_type, data)
            if exchange.started and (data or each is None):
                waiter.touch(context.timing.keepalive_seconds)
    await exchange.end()


class _Lines:
    """What is written for each item."""

    def __init__(self, context: ApiContext, writer: SingleWriter) -> None:
        self._context = context
        self._writer = writer
        self._prompt_tokens = 0
        self._opened = False

    def of(self, item: GenerationItem) -> bytes:
        """The item as the dialect says it.

        Raises:
            ExoctlError: the generation failed.
        """
        if isinstance(item, Prefilled):
            self._prompt_tokens = item.total
        if isinstance(item, Delta):
            return self._opening() + self._writer.delta(item)
        if isinstance(item, Finished | Failed):
            finished = require_success(item)
            count_tokens(self._context, finished)
            self._prompt_tokens = finished.usage.prompt_tokens
            return self._opening() + self._writer.closing(finished)
        return b""

    def _opening(self) -> bytes:
        if self._opened:
            return b""
        self._opened = True
        return self._writer.opening(self._prompt_tokens)


def count_tokens(context: ApiContext, finished: Finished) -> None:
    """Add a generation to the figures."""
    context.tokens.labels(kind="prompt").inc(finished.usage.prompt_tokens)
    context.tokens.labels(kind="output").inc(finished.usage.output_tokens)


def call_arguments(call: dict[str, object]) -> dict[str, object]:
    """The arguments of a call as an object; an empty one where they are none."""
    function: Any = call["function"]
    try:
        return msgspec.json.decode(function["arguments"], type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}


def sse(event: str, body: msgspec.Struct | Mapping[str, object]) -> bytes:
    """A named server-sent event."""
    return b"event: " + event.encode() + b"\ndata: " + msgspec.json.encode(body) + b"\n\n"
