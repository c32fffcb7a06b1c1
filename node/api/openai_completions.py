"""POST /v1/completions: raw text goes on."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from node.api.context import ApiContext
from node.api.exchange import Exchange
from node.api.faults import ParameterError
from node.api.generation import CHOICES_MAX, open_choices
from node.api.model_list import require_model
from node.api.openai_order import TOP_LOGPROBS_MAX, CommonOrder, Refusals
from node.api.openai_reply import Answer, StreamedReply, UsageCounts, reply_whole
from node.api.request_ids import ids_of_choices
from node.io.clock import wall
from node.model.ids import ModelId, RequestId
from node.model.request import Delta, Finished, GenerationRequest, TokenLogprob

TOKENS_DEFAULT = 16
"""What OpenAI documents for `max_tokens` here."""


class CompletionOrder(CommonOrder, frozen=True, kw_only=True):
    """Every parameter that OpenAI documents for completions, and the usual further samplers."""

    prompt: str | list[Any]
    logprobs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS_MAX)] | None = None
    best_of: Any = None
    echo: Any = None
    suffix: Any = None


class CompletionLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Log probabilities, as lists side by side."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, or a chunk of it."""

    index: int
    text: str
    finish_reason: str | None = None
    logprobs: CompletionLogprobs | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/v1/completions`, and each chunk of a streamed one."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: UsageCounts | UnsetType | None = UNSET
    object: str = "text_completion"


_REFUSALS = Refusals({"best_of": (1,), "echo": (False,), "suffix": ("",)})


def completion_requests(
    order: CompletionOrder, prompts: Sequence[str], ids: Sequence[RequestId]
) -> tuple[GenerationRequest, ...]:
    """The generations that an order asks for: `n` for each prompt, one for each id.

    Raises:
        ParameterError: a parameter can't be honoured.
    """
    _REFUSALS.check(order)
    order.check_stream_options()
    return tuple(
        GenerationRequest(
            id=request_id,
            model=ModelId(order.model),
            prompt=prompts[number // order.choices],
            sampling=order.sampling(number % order.choices),
            tokens_max=TOKENS_DEFAULT if order.max_tokens is None else order.max_tokens,
            stop=order.stops,
            top_logprobs=order.logprobs,
        )
        for number, request_id in enumerate(ids)
    )


def read_prompts(order: CompletionOrder) -> list[str]:
    """The prompts as texts.

    Raises:
        ParameterError: there is none, they are too many, or they are token ids.
    """
    prompts: list[object] = [order.prompt] if isinstance(order.prompt, str) else order.prompt
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    if len(texts) < len(prompts):
        raise ParameterError("prompt", "prompts of token ids are not supported", "send text")
    if not texts or len(texts) * order.choices > CHOICES_MAX:
        raise ParameterError(
            "prompt",
            f"{len(texts)} prompts of {order.choices} answers; 1 to {CHOICES_MAX} answers in all"
            " are allowed",
        )
    return texts


async def complete_text(context: ApiContext, exchange: Exchange) -> None:
    """Answer with what comes after a text."""
    order = exchange.decode(CompletionOrder)
    prompts = read_prompts(order)
    ids = ids_of_choices(exchange.request_id, len(prompts) * order.choices)
    requests = completion_requests(order, prompts, ids)
    require_model(context.handle, order.model)
    writer = CompletionWriter(exchange.request_id, order)
    async with open_choices(context, requests) as choices:
        if order.stream:
            reply = StreamedReply(
                context, exchange, writer, prompts=len(prompts), wants_usage=order.wants_usage
            )
            await reply.send(choices)
        else:
            await reply_whole(context, exchange, choices, writer, len(prompts))


class CompletionWriter:
    """Chunks and answers of one request."""

    def __init__(self, request_id: RequestId, order: CompletionOrder) -> None:
        self._id = f"cmpl-{request_id}"
        self._created = int(wall())
        self._model = order.model
        self._has_logprobs = order.logprobs is not None
        self._usage = None if order.wants_usage else UNSET
        self._offsets: dict[int, int] = {}

    def opening(self, choice: int) -> list[msgspec.Struct]:
        """Nothing: plain text has no roles."""
        del choice
        return []

    def delta(self, choice: int, delta: Delta) -> list[msgspec.Struct]:
        """One chunk, or none where nothing can be shown yet."""
        if not (delta.text or delta.logprobs):
            return []
        logprobs = self._logprobs(choice, list(delta.logprobs))
        each = CompletionChoice(index=choice, text=delta.text, logprobs=logprobs)
        return [self._completion([each], self._usage)]

    def finish(self, choice: int, finished: Finished) -> msgspec.Struct:
        """The reason, with no text."""
        reason = finished.reason.value
        each = CompletionChoice(index=choice, text="", finish_reason=reason)
        return self._completion([each], self._usage)

    def usage(self, counts: UsageCounts) -> msgspec.Struct:
        """The counts, without choices."""
        return self._completion([], counts)

    def whole(self, answers: list[Answer], counts: UsageCounts) -> msgspec.Struct:
        """The whole answer."""
        choices = [
            CompletionChoice(
                index=number,
                text="".join(answer.texts),
                finish_reason=answer.finished.reason.value if answer.finished else None,
                logprobs=self._logprobs(number, answer.logprobs),
            )
            for number, answer in enumerate(answers)
        ]
        return self._completion(choices, counts)

    def _completion(
        self, choices: list[CompletionChoice], usage: UsageCounts | UnsetType | None
    ) -> Completion:
        return Completion(
            id=self._id, created=self._created, model=self._model, choices=choices, usage=usage
        )

    def _logprobs(self, choice: int, logprobs: list[TokenLogprob]) -> CompletionLogprobs | None:
        if not self._has_logprobs:
            return None
        offsets: list[int] = []
        for each in logprobs:
            offset = self._offsets.get(choice, 0)
            offsets.append(offset)
            self._offsets[choice] = offset + len(each.token)
        return CompletionLogprobs(
            tokens=[each.token for each in logprobs],
            token_logprobs=[each.logprob for each in logprobs],
            top_logprobs=[dict(each.top) for each in logprobs],
            text_offset=offsets,
        )
