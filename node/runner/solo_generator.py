"""Generates for one request at a time, for the few families that mlx-lm can't batch."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import msgspec
from mlx_lm.generate import StopSequences
from mlx_lm.models.cache import make_prompt_cache

from node.runner.sampling import LogitsProcessor, Sampler

PROBE_ROWS = 7
"""No number of heads: a mask of the wrong shape must not fit by chance."""


class PromptResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Progress through the prompt, shaped as mlx-lm's."""

    uid: int
    progress: tuple[int, int]
    end_of_prompt: bool


class TokenResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One token, shaped as mlx-lm's; the last two come with the last one."""

    uid: int
    token: int
    logprobs: mx.array
    finish_reason: str | None
    prompt_cache: list[Any] | None = None
    all_tokens: list[int] | None = None


class _Running(msgspec.Struct, kw_only=True):
    uid: int
    rest: list[int]
    """Tokens to feed next; the last of them begins the answer."""
    total: int
    cache: list[Any]
    fed: list[int]
    tokens_left: int
    sampler: Sampler
    processors: Sequence[LogitsProcessor]
    matcher: StopSequences.Matcher


class SoloGenerator:
    """The part of mlx-lm's `BatchGenerator` that the engine uses, with a batch of one."""

    def __init__(self, model: Any) -> None:
        self.prefill_step_size = 2048
        self.prefill_batch_size = 1
        self._model = model
        self._running: _Running | None = None
        self._next_uid = 0

    @property
    def prompt_cache_nbytes(self) -> int:
        """Bytes of the caches in use."""
        return sum(cache.nbytes for cache in self._running.cache) if self._running else 0

    def insert(  # noqa: PLR0913 - mlx-lm's own signature
        self,
        prompts: list[list[int]],
        *,
        max_tokens: list[int],
        caches: list[list[Any]] | None = None,
        all_tokens: list[list[int]] | None = None,
        samplers: list[Sampler] | None = None,
        logits_processors: list[list[LogitsProcessor]] | None = None,
        stop_sequences: list[StopSequences] | None = None,
    ) -> list[int]:
        """Take one prompt; the engine never gives a second before the first is through."""
        assert len(prompts) == 1
        assert self._running is None
        self._next_uid += 1
        self._running = _Running(
            uid=self._next_uid,
            rest=list(prompts[0]),
            total=len(prompts[0]),
            cache=caches[0] if caches else make_prompt_cache(self._model),
            fed=list(all_tokens[0]) if all_tokens else [],
            tokens_left=max_tokens[0],
            sampler=samplers[0] if samplers else lambda logprobs: mx.argmax(logprobs, axis=-1),
            processors=logits_processors[0] if logits_processors else (),
            matcher=(stop_sequences[0] if stop_sequences else StopSequences()).matcher(),
        )
        return [self._next_uid]

    def remove(
        self, uids: list[int], *, return_prompt_caches: bool = False
    ) -> dict[int, tuple[list[Any], list[int]]]:
        """Stop it."""
        running, self._running = self._running, None
        if running is None or running.uid not in uids or not return_prompt_caches:
            return {}
        return {running.uid: (running.cache, running.fed)}

    def next(self) -> tuple[list[PromptResponse], list[TokenResponse]]:
        """Compute the next part of the prompt, or the next token."""
        running = self._running
        if running is None:
            return [], []
        if len(running.rest) > 1:
            return [self._prefill(running)], []
        return [], [self._decode(running)]

    def close(self) -> None:
        """Let go of what runs."""
        self._running = None

    def _prefill(self, running: _Running) -> PromptResponse:
        chunk = running.rest[: min(self.prefill_step_size, len(running.rest) - 1)]
        self._model(mx.array([chunk]), cache=running.cache)
        mx.eval([cache.state for cache in running.cache])
        running.rest = running.rest[len(chunk) :]
        running.fed += chunk
        done = running.total - len(running.rest)
        return PromptResponse(uid=running.uid, progress=(done, running.total), end_of_prompt=False)

    def _decode(self, running: _Running) -> TokenResponse:
        logits = self._model(mx.array([running.rest]), cache=running.cache)[:, -1, :]
        running.fed += running.rest
        for process in running.processors:
            logits = process(mx.array(running.fed), logits)
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        sampled = running.sampler(logprobs)
        mx.eval(sampled, logprobs)
        token = sampled.item()
        assert isinstance(token, int)
        running.rest = [token]
        running.tokens_left -= 1
        reason = "length" if running.tokens_left <= 0 else None
        if running.matcher.advance(token):
            reason = "stop"
        if reason is None:
            return TokenResponse(
                uid=running.uid, token=token, logprobs=logprobs[0], finish_reason=None
            )
        self._running = None
        return TokenResponse(
            uid=running.uid,
            token=token,
            logprobs=logprobs[0],
            finish_reason=reason,
            prompt_cache=running.cache,
            all_tokens=running.fed,
        )


def can_batch(model: Any) -> bool:
    """Whether mlx-lm can compute rows of different lengths together; nothing is computed here."""
    rows = [make_prompt_cache(model) for _ in range(PROBE_ROWS)]
    if not all(hasattr(cache, "merge") for cache in rows[0]):
        return False
    caches = [parts[0].merge(list(parts)) for parts in zip(*rows, strict=True)]
    try:
        for cache in caches:
            cache.prepare(
                lengths=[5] + [3] * (PROBE_ROWS - 1), right_padding=[0] + [2] * (PROBE_ROWS - 1)
            )
        model(mx.zeros((PROBE_ROWS, 5), mx.int32), cache=caches)
        for cache in caches:
            cache.finalize()
        model(mx.zeros((PROBE_ROWS, 1), mx.int32), cache=caches)
    except Exception:  # noqa: BLE001 - a family that was never run in a batch fails anyhow
        return False
    return True
