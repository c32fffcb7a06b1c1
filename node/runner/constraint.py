"""Keeps an answer within a grammar, and thinking within its budget, token by token."""

import logging
from functools import cached_property
from typing import Any

import mlx.core as mx
from llguidance import LLMatcher, LLTokenizer

from node.model.errors import UsageError
from node.model.request import GenerationRequest
from node.runner.grammar import bad_schema, grammar_of
from node.runner.prompt import Tokenizer
from node.runner.sampling import LogitsProcessor

logger = logging.getLogger(__name__)


class Constraints:
    """Makes the constraints of requests; what they share is made at the first that needs it."""

    def __init__(self, tokenizer: Tokenizer, vocabulary_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocabulary_size = vocabulary_size

    def processors(
        self, request: GenerationRequest, prompt_length: int, *, is_thinking: bool
    ) -> list[LogitsProcessor]:
        """Changes to the logits that keep the answer as it was asked.

        Raises:
            UsageError: what was asked makes no sense, or this model's tokens can't be kept to it.
        """
        made: list[LogitsProcessor] = []
        start, end = () if is_thinking else self._marker("start"), self._marker("end")
        if end and (is_thinking or start) and request.reasoning_tokens_max > 0:
            made.append(_ThinkingBudget(prompt_length, request.reasoning_tokens_max, start, end))
        grammar = grammar_of(request, self._tokenizer, self._special)
        if grammar:
            matcher = LLMatcher(self._vocabulary, grammar, log_level=0)
            matcher.compute_bitmask()  # some schemas are found to hold nothing only then
            if matcher.is_error() or (matcher.is_stopped() and not matcher.is_accepting()):
                raise bad_schema(_reason(matcher))
            ends = sorted(self._tokenizer.eos_token_ids)
            waits_for = end if is_thinking else ()
            made.append(Matching(matcher, prompt_length, ends, waits_for))
        return made

    def _special(self, text: str) -> int | None:
        tokens = self._vocabulary.tokenize_str(text, parse_special=True)
        special = len(tokens) == 1 and self._vocabulary.is_special_token(tokens[0])
        return tokens[0] if special else None

    def _marker(self, which: str) -> tuple[int, ...]:
        """Tokens with which thinking begins or ends; none where the model does not think."""
        inner: Any = self._tokenizer
        return tuple(getattr(inner, f"think_{which}_tokens", None) or ())

    @cached_property
    def _vocabulary(self) -> LLTokenizer:
        inner: Any = self._tokenizer
        try:
            whole = inner.backend_tokenizer.to_str()
            return LLTokenizer(
                whole,
                n_vocab=self._vocabulary_size,
                eos_token=sorted(self._tokenizer.eos_token_ids),
                slices=LLTokenizer.json_slices(),
            )
        except Exception as error:
            raise UsageError.because(
                "no_constraint",
                f"this model's tokens can't be kept to a form: {type(error).__name__}: {error}",
                "ask for the form in the prompt",
            ) from error


class Matching:
    """Rules out every token that the grammar does not allow next. Never raises: a fault here
    would be one of the whole batch. It ends the answer, and whoever ends it asks for the `fault`.
    """

    def __init__(
        self, matcher: LLMatcher, prompt_length: int, ends: list[int], think_end: tuple[int, ...]
    ) -> None:
        self._matcher = matcher
        self._seen = prompt_length
        self._ends = ends
        self._waits = _Until(think_end) if think_end else None
        self._told = False

    @property
    def fault(self) -> str:
        """Why the answer could not be kept to its grammar, so that it obeys nothing; else empty."""
        return _reason(self._matcher) if self._matcher.is_error() else ""

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        fresh: Any = tokens[self._seen :].tolist()
        self._seen += len(fresh)
        for token in fresh:
            if self._waits is not None:
                if self._waits.met(token):
                    self._waits = None
            elif not self._matcher.is_stopped():
                self._matcher.consume_token(token)
        if self._waits is not None:
            return logits
        allowed = self._allowed(logits.shape[-1])
        return mx.where(allowed, logits, mx.array(-mx.inf, logits.dtype))

    def _allowed(self, size: int) -> mx.array:
        matcher = self._matcher
        if matcher.is_error() and not self._told:
            self._told = True
            logger.warning("an answer left its grammar, and ends: %s", _reason(matcher))
        if matcher.is_stopped():
            return mx.zeros((size,), mx.bool_).at[mx.array(self._ends)].add(mx.array(True))  # noqa: FBT003
        mask: Any = memoryview(matcher.compute_bitmask())
        packed = mx.array(mask)
        bits = (packed[:, None] >> mx.arange(8, dtype=mx.uint8)) & 1
        return bits.reshape(-1)[:size].astype(mx.bool_)


def _reason(matcher: LLMatcher) -> str:
    """The library's words without the state of its parser that follows them."""
    words = matcher.get_error().partition("<state>")[0].strip()
    return "no text satisfies it" if words in ("", "NoExtensionBias") else words


class _Until:
    """Waits for a sequence of tokens."""

    def __init__(self, sequence: tuple[int, ...]) -> None:
        self._sequence = sequence
        self._last: list[int] = []

    def met(self, token: int) -> bool:
        """Take one more; True where the sequence has just been completed."""
        self._last = [*self._last, token][-len(self._sequence) :]
        return tuple(self._last) == self._sequence


class _ThinkingBudget:
    """Ends the thinking once it has used up its tokens. Without a `start` it has begun already;
    with one, the model begins it by itself, or not at all.
    """

    def __init__(
        self, prompt_length: int, tokens_max: int, start: tuple[int, ...], end: tuple[int, ...]
    ) -> None:
        self._seen = prompt_length
        self._left = tokens_max
        self._begins: _Until | None = _Until(start) if start else None
        self._until: _Until | None = _Until(end)
        self._due = list(end)

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        fresh: Any = tokens[self._seen :].tolist()
        self._seen += len(fresh)
        for token in fresh:
            if self._begins is not None:
                if self._begins.met(token):
                    self._begins = None
                continue
            self._left -= 1
            if self._until is not None and self._until.met(token):
                self._until = None
        if self._begins is not None or self._until is None or self._left > 0 or not self._due:
            return logits
        forced = self._due.pop(0)
        only = mx.arange(logits.shape[-1]) == forced
        return mx.where(only, mx.zeros_like(logits), mx.array(-mx.inf, logits.dtype))
