"""One request on its way through the engine, and the items that its person gets."""

import time
from typing import Any

import mlx.core as mx

from node.model.errors import ExoctlError, Failure, UsageError
from node.model.request import (
    Delta,
    Failed,
    Finished,
    FinishReason,
    GenerationItem,
    GenerationRequest,
    Prefilled,
    TokenLogprob,
    Usage,
)
from node.runner.constraint import Constraints, Matching
from node.runner.grammar import bad_schema
from node.runner.output_text import OutputText, Piece
from node.runner.prompt import CONTEXT_REMEDY, Tokenizer, prompt_tokens, refuse_oversize, tools_of
from node.runner.sampling import check_sampling, make_processors

TOP_LOGPROBS_MAX = 20
LOGPROB_LEAST = -9999.0
"""Stands for minus infinity, which JSON does not know."""


def failed(error: ExoctlError) -> Failed:
    """The last item of a generation that the error ended."""
    return Failed(kind=type(error).__name__, failure=error.failure)


class Generation:
    """What the engine knows of one request, from its arrival to its last item."""

    def __init__(
        self,
        request: GenerationRequest,
        tokenizer: Tokenizer,
        context_tokens: int,
        vocabulary_size: int,
        constraints: Constraints,
    ) -> None:
        """Read the prompt.

        Raises:
            UsageError: it can't be meant, or does not fit the context.
        """
        check_sampling(request.sampling, vocabulary_size)
        refuse_oversize(request, context_tokens)
        self.request = request
        self.prompt = prompt_tokens(tokenizer, request, vocabulary_size)
        if len(self.prompt) >= context_tokens:
            raise UsageError.because(
                "context_too_long",
                f"the prompt has {len(self.prompt)} tokens, but this instance's context is"
                f" {context_tokens}, with the answer",
                CONTEXT_REMEDY,
            )
        room = context_tokens - len(self.prompt)
        self.tokens_max = min(request.tokens_max, room) if request.tokens_max > 0 else room
        self.uid = -1
        self.ahead = -1
        self.cached_tokens = 0
        self._tokenizer = tokenizer
        self._text = OutputText(tokenizer, self.prompt, request.stop, tools_of(request))
        self.processors = [
            *make_processors(request.sampling, len(self.prompt)),
            *constraints.processors(
                request, len(self.prompt), is_thinking=self._text.begins_thinking
            ),
        ]
        self._index = 0
        self._output_tokens = 0
        self._arrived = time.monotonic()
        self._admitted: float | None = None
        self._first_token = 0.0
        self._prefill_done = 0

    @property
    def is_decoding(self) -> bool:
        """Whether its prompt is done and its answer has begun."""
        return self._output_tokens > 0

    @property
    def service_seconds(self) -> float:
        """How long it has had its place."""
        return time.monotonic() - self._admitted if self._admitted is not None else 0.0

    def admit(self, uid: int, cached_tokens: int) -> None:
        """It has a place in the batch."""
        self.uid = uid
        self.cached_tokens = cached_tokens
        self._admitted = time.monotonic()

    def prefilled(self, done: int, total: int) -> Prefilled:
        """Progress through the prompt, with what was cached already."""
        return Prefilled(done=self.cached_tokens + done, total=self.cached_tokens + total)

    def prefill_growth(self, done: int) -> int:
        """Tokens of the prompt computed since it was last asked."""
        growth, self._prefill_done = done - self._prefill_done, done
        return growth

    def take(self, token: int, logprobs: mx.array) -> tuple[Delta, bool]:
        """One new token, as the item to send, and whether a stop string was met."""
        if self._output_tokens == 0:
            self._first_token = time.monotonic()
        self._output_tokens += 1
        piece = self._text.add(token)
        chosen: tuple[TokenLogprob, ...] = ()
        if self.request.top_logprobs is not None:
            chosen = (self._logprob(token, logprobs, self.request.top_logprobs),)
        return self._delta(piece, (token,), chosen), piece.stopped

    def finish(self, reason: FinishReason) -> list[GenerationItem]:
        """Its last items: what was held back, and the end."""
        items: list[GenerationItem] = []
        piece = self._text.finish()
        if piece.text or piece.reasoning or piece.tool_calls:
            items.append(self._delta(piece, (), ()))
        if piece.stopped and reason is FinishReason.LENGTH:
            reason = FinishReason.STOP
        if self._text.called_tools and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        fault = next((each.fault for each in self.processors if isinstance(each, Matching)), "")
        if fault and reason is not FinishReason.CANCELLED:
            return [*items, failed(bad_schema(fault))]
        items.append(Finished(reason=reason, usage=self._usage(), stop_text=self._text.stop_text))
        return items

    def fail(self, kind: type[ExoctlError], failure: Failure) -> Failed:
        """Its last item where it did not end well."""
        return Failed(kind=kind.__name__, failure=failure)

    def _delta(
        self, piece: Piece, tokens: tuple[int, ...], logprobs: tuple[TokenLogprob, ...]
    ) -> Delta:
        delta = Delta(
            index=self._index,
            text=piece.text,
            reasoning=piece.reasoning,
            tool_calls=tuple(piece.tool_calls),
            tokens=tokens,
            logprobs=logprobs,
        )
        self._index += 1
        return delta

    def _logprob(self, token: int, logprobs: mx.array, count: int) -> TokenLogprob:
        count = min(count, TOP_LOGPROBS_MAX, logprobs.shape[-1])
        top: list[tuple[str, float]] = []
        if count > 0:
            likeliest: Any = mx.argsort(-logprobs)[:count].tolist()
            top = [
                (self._tokenizer.decode([other]), _number(logprobs, other)) for other in likeliest
            ]
        return TokenLogprob(
            token=self._tokenizer.decode([token]), logprob=_number(logprobs, token), top=tuple(top)
        )

    def _usage(self) -> Usage:
        now = time.monotonic()
        admitted = self._admitted or now
        first = self._first_token or now
        return Usage(
            prompt_tokens=len(self.prompt),
            output_tokens=self._output_tokens,
            cached_tokens=self.cached_tokens,
            queue_seconds=admitted - self._arrived,
            prefill_seconds=first - admitted,
            decode_seconds=now - first,
            reasoning_tokens=self._text.reasoning_tokens,
        )


def _number(logprobs: mx.array, token: int) -> float:
    value: Any = logprobs[token].tolist()
    return max(float(value), LOGPROB_LEAST)
