"""Answering with generations in the OpenAI dialect: whole, or as server-sent events."""

from typing import Protocol

import anyio
import msgspec

from node.api.context import ApiContext
from node.api.exchange import EVENT_STREAM, Exchange
from node.api.generation import ChoiceItem, Choices, Waiter, require_success
from node.model.request import Delta, Failed, Finished, TokenLogprob, Usage

KEEPALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


class CachedTokens(msgspec.Struct, frozen=True):
    """Part of the prompt that was in the prefix cache."""

    cached_tokens: int


class ReasoningTokens(msgspec.Struct, frozen=True):
    """Part of the answer that was spent on thinking."""

    reasoning_tokens: int


class UsageCounts(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's usage object."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: ReasoningTokens


class ReplyWriter(Protocol):
    """How one kind of completion is written. `choice` counts the answers of a request from 0."""

    def opening(self, choice: int) -> list[msgspec.Struct]:
        """Chunks before a choice's first delta."""
        ...

    def delta(self, choice: int, delta: Delta) -> list[msgspec.Struct]:
        """Chunks for new output."""
        ...

    def finish(self, choice: int, finished: Finished) -> msgspec.Struct:
        """Chunk for the end of a choice."""
        ...

    def usage(self, counts: UsageCounts) -> msgspec.Struct:
        """Chunk with the token counts of all choices."""
        ...

    def whole(self, answers: list["Answer"], counts: UsageCounts) -> msgspec.Struct:
        """The answer where nothing is streamed."""
        ...


class Answer:
    """What one choice has said so far."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.reasoning: list[str] = []
        self.tool_calls: list[dict[str, object]] = []
        self.logprobs: list[TokenLogprob] = []
        self.finished: Finished | None = None

    def add(self, delta: Delta) -> None:
        """Take new output."""
        self.texts.append(delta.text)
        self.reasoning.append(delta.reasoning)
        self.tool_calls.extend(delta.tool_calls)
        self.logprobs.extend(delta.logprobs)


def count_usage(context: ApiContext, usages: list[Usage], prompts: int) -> UsageCounts:
    """Counts of a whole request; a prompt that several choices share counts once."""
    share = max(1, len(usages) // prompts)
    prompt = sum(usage.prompt_tokens for usage in usages[::share])
    output = sum(usage.output_tokens for usage in usages)
    context.tokens.labels(kind="prompt").inc(prompt)
    context.tokens.labels(kind="output").inc(output)
    return UsageCounts(
        prompt_tokens=prompt,
        completion_tokens=output,
        total_tokens=prompt + output,
        prompt_tokens_details=CachedTokens(sum(usage.cached_tokens for usage in usages[::share])),
        completion_tokens_details=ReasoningTokens(sum(usage.reasoning_tokens for usage in usages)),
    )


async def reply_whole(
    context: ApiContext, exchange: Exchange, choices: Choices, writer: ReplyWriter, counts: int
) -> None:
    """Collect every choice, then answer. `counts` is the number of prompts."""
    answers: dict[int, Answer] = {}
    async for each in choices:
        answer = answers.setdefault(each.choice, Answer())
        if isinstance(each.item, Delta):
            answer.add(each.item)
        elif isinstance(each.item, Finished | Failed):
            answer.finished = require_success(each.item)
    ordered = [answers[choice] for choice in sorted(answers)]
    usages = [answer.finished.usage for answer in ordered if answer.finished is not None]
    body = writer.whole(ordered, count_usage(context, usages, counts))
    await exchange.answer(msgspec.json.encode(body))


class StreamedReply:
    """Server-sent events of one request."""

    def __init__(
        self,
        context: ApiContext,
        exchange: Exchange,
        writer: ReplyWriter,
        *,
        prompts: int,
        wants_usage: bool,
    ) -> None:
        self._context = context
        self._exchange = exchange
        self._writer = writer
        self._prompts = prompts
        self._wants_usage = wants_usage
        self._opened: set[int] = set()
        self._finished: dict[int, Finished] = {}
        self._written = False

    async def send(self, choices: Choices) -> None:
        """Write everything that comes. The head is held back until the first output, or until
        waiting has become long: a failure before that still gets its status.
        """
        waiter = Waiter(choices, self._context.timing.hold_seconds)
        while True:
            try:
                each = await waiter.next()
            except anyio.EndOfStream:
                break
            if each is None:
                await self._put(KEEPALIVE)
            else:
                await self._put(self._encode(each))
            if self._exchange.started and (each is None or self._written):
                waiter.touch(self._context.timing.keepalive_seconds)
        await self._close()

    def _encode(self, each: ChoiceItem) -> bytes:
        chunks: list[msgspec.Struct] = []
        item, choice = each.item, each.choice
        if isinstance(item, Delta | Finished | Failed):
            if isinstance(item, Failed | Finished):
                self._finished[choice] = require_success(item)
            if choice not in self._opened:
                self._opened.add(choice)
                chunks += self._writer.opening(choice)
        if isinstance(item, Delta):
            chunks += self._writer.delta(choice, item)
        elif isinstance(item, Finished):
            chunks.append(self._writer.finish(choice, item))
        return b"".join(encode_event(chunk) for chunk in chunks)

    async def _put(self, data: bytes) -> None:
        self._written = bool(data)
        if not data:
            return
        await self._exchange.write_or_begin(EVENT_STREAM, data)

    async def _close(self) -> None:
        usages = [self._finished[choice].usage for choice in sorted(self._finished)]
        counts = count_usage(self._context, usages, self._prompts)
        tail = encode_event(self._writer.usage(counts)) if self._wants_usage else b""
        await self._exchange.write(tail + DONE)
        await self._exchange.end()


def encode_event(chunk: msgspec.Struct) -> bytes:
    """A server-sent event."""
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"
