"""POST /api/chat and /api/generate: answers of the Ollama dialect, streamed as lines of JSON."""

import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from node.api.answer_form import NO_REASONING, require_thinking
from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.faults import ParameterError
from node.api.model_list import require_model, require_tools
from node.api.ollama_order import (
    OllamaChatOrder,
    OllamaOrder,
    OllamaTextOrder,
    chat_request,
    effort_of,
    model_of,
    text_request,
)
from node.api.openai_reply import Answer
from node.api.single_reply import SingleWriter, answer_with, call_arguments
from node.io.clock import monotonic, wall
from node.model.request import Delta, Finished, FinishReason, TokenLogprob
from node.wire.surface import NDJSON

_REASONS = {FinishReason.LENGTH: "length"}


class OllamaSaid(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says, or a piece of it."""

    content: str
    role: str = "assistant"
    thinking: str | UnsetType = UNSET
    tool_calls: list[dict[str, object]] | UnsetType = UNSET


class OllamaReply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of Ollama's, or a line of a streamed one; figures come with the last."""

    model: str
    created_at: str
    done: bool
    message: OllamaSaid | UnsetType = UNSET
    response: str | UnsetType = UNSET
    thinking: str | UnsetType = UNSET
    logprobs: list[dict[str, object]] | UnsetType = UNSET
    done_reason: str | UnsetType = UNSET
    total_duration: int | UnsetType = UNSET
    load_duration: int | UnsetType = UNSET
    prompt_eval_count: int | UnsetType = UNSET
    prompt_eval_duration: int | UnsetType = UNSET
    eval_count: int | UnsetType = UNSET
    eval_duration: int | UnsetType = UNSET


async def chat(context: ApiContext, exchange: Exchange) -> None:
    """Answer a conversation."""
    order = exchange.decode(OllamaChatOrder)
    request = chat_request(order, exchange.request_id)
    _check(context, order)
    if order.tools:
        require_tools(context.handle, model_of(order))
    if not order.messages:
        await _answer_loaded(exchange, OllamaWriter(order, is_chat=True))
        return
    writer: SingleWriter = OllamaWriter(order, is_chat=True)
    await answer_with(context, exchange, request, writer, stream=order.streams)


async def generate(context: ApiContext, exchange: Exchange) -> None:
    """Answer a prompt."""
    order = exchange.decode(OllamaTextOrder)
    request = text_request(order, exchange.request_id)
    _check(context, order)
    if not order.prompt:
        await _answer_loaded(exchange, OllamaWriter(order, is_chat=False))
        return
    writer: SingleWriter = OllamaWriter(order, is_chat=False)
    await answer_with(context, exchange, request, writer, stream=order.streams)


def _check(context: ApiContext, order: OllamaOrder) -> None:
    model = model_of(order)
    require_model(context.handle, model)
    if effort_of(order.think) not in ("", NO_REASONING):
        require_thinking(context.handle, model, "think")
    wanted = order.options.num_ctx if order.options else None
    contexts = [
        instance.context_tokens
        for instance in context.handle.state.instances.values()
        if instance.model == model and not instance.removing
    ]
    if wanted is not None and wanted > max(contexts, default=wanted):
        raise ParameterError(
            "options.num_ctx",
            f"{model} is loaded with a context of {max(contexts)} tokens, {wanted} were asked",
            f"load it anew with `exoctl load {model} --context {wanted}`",
        )


async def _answer_loaded(exchange: Exchange, writer: "OllamaWriter") -> None:
    """Without a prompt Ollama only loads the model; here it is loaded by now."""
    await exchange.answer(msgspec.json.encode(writer.loaded()))


class OllamaWriter:
    """Lines of one answer."""

    content_type = NDJSON.encode()
    keepalive = b""

    def __init__(self, order: OllamaOrder, *, is_chat: bool) -> None:
        self._model = order.model
        self._is_chat = is_chat
        self._hides_thinking = order.think is False
        self._began = monotonic()

    def opening(self, prompt_tokens: int) -> bytes:
        """Nothing: the first line is the first output."""
        del prompt_tokens
        return b""

    def delta(self, delta: Delta) -> bytes:
        """A line, or none where nothing can be shown yet."""
        if not (delta.text or delta.reasoning or delta.tool_calls or delta.logprobs):
            return b""
        return _line(
            self._reply(delta.text, delta.reasoning, list(delta.tool_calls), delta.logprobs)
        )

    def closing(self, finished: Finished) -> bytes:
        """The last line, with the figures."""
        return _line(self._with_figures(self._reply("", "", [], ()), finished))

    def whole(self, answer: Answer, finished: Finished) -> msgspec.Struct:
        """Everything in one."""
        reply = self._reply(
            "".join(answer.texts), "".join(answer.reasoning), answer.tool_calls, answer.logprobs
        )
        return self._with_figures(reply, finished)

    def loaded(self) -> msgspec.Struct:
        """The answer to a question that was none."""
        return msgspec.structs.replace(self._reply("", "", [], ()), done=True, done_reason="load")

    def _reply(
        self,
        text: str,
        reasoning: str,
        calls: list[dict[str, object]],
        logprobs: list[TokenLogprob] | tuple[TokenLogprob, ...],
    ) -> OllamaReply:
        thinking = (reasoning or UNSET) if not self._hides_thinking else UNSET
        plain = OllamaReply(
            model=self._model,
            created_at=timestamp(wall()),
            done=False,
            logprobs=[_logprob(each) for each in logprobs] or UNSET,
        )
        if not self._is_chat:
            return msgspec.structs.replace(plain, response=text, thinking=thinking)
        said = OllamaSaid(
            content=text, thinking=thinking, tool_calls=[_call(call) for call in calls] or UNSET
        )
        return msgspec.structs.replace(plain, message=said)

    def _with_figures(self, reply: OllamaReply, finished: Finished) -> OllamaReply:
        usage = finished.usage
        return msgspec.structs.replace(
            reply,
            done=True,
            done_reason=_REASONS.get(finished.reason, "stop"),
            total_duration=_nanoseconds(monotonic() - self._began),
            load_duration=_nanoseconds(usage.queue_seconds),
            prompt_eval_count=usage.prompt_tokens,
            prompt_eval_duration=_nanoseconds(usage.prefill_seconds),
            eval_count=usage.output_tokens,
            eval_duration=_nanoseconds(usage.decode_seconds),
        )


def timestamp(seconds: float) -> str:
    """A time as Ollama writes it."""
    at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return at.isoformat().replace("+00:00", "Z")


def _nanoseconds(seconds: float) -> int:
    return max(0, int(seconds * 1e9))


def _line(reply: OllamaReply) -> bytes:
    return msgspec.json.encode(reply) + b"\n"


def _call(call: dict[str, object]) -> dict[str, object]:
    """Ollama has the arguments as an object, where they are one."""
    function: Any = call["function"]
    return {
        "id": call.get("id"),
        "function": {"name": function["name"], "arguments": call_arguments(call)},
    }


def _logprob(each: TokenLogprob) -> dict[str, object]:
    top = [{"token": token, "logprob": logprob} for token, logprob in each.top]
    return {"token": each.token, "logprob": each.logprob, "top_logprobs": top}
