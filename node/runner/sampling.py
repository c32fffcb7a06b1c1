"""How the next token of one request is drawn, whatever else is in the batch."""

import math
import secrets
from collections.abc import Callable

import mlx.core as mx

from node.model.errors import UsageError
from node.model.request import Sampling

Sampler = Callable[[mx.array], mx.array]
LogitsProcessor = Callable[[mx.array, mx.array], mx.array]
SEED_MASK = (1 << 64) - 1
LOGIT_BIAS_MAX = 1024
COLDEST = 1e-4
"""Below this temperature the likeliest token is drawn: scaled further, logits overflow."""


def check_sampling(sampling: Sampling, vocabulary_size: int) -> None:
    """Refuse what could not be drawn from, before it is among others in a batch.

    Raises:
        UsageError: a value is out of its range.
    """
    ranges = (
        ("temperature", sampling.temperature, 0.0, 100.0),
        ("top_p", sampling.top_p, 0.0, 1.0),
        ("min_p", sampling.min_p, 0.0, 1.0),
        ("top_k", float(sampling.top_k), 0.0, math.inf),
        ("presence_penalty", sampling.presence_penalty, -100.0, 100.0),
        ("frequency_penalty", sampling.frequency_penalty, -100.0, 100.0),
        ("repetition_penalty", sampling.repetition_penalty, 0.01, 100.0),
    )
    for name, value, lowest, highest in ranges:
        if not lowest <= value <= highest or not math.isfinite(value):
            raise UsageError.because(
                "bad_sampling", f"{name} is {value}, but must be from {lowest:g} to {highest:g}"
            )
    if len(sampling.logit_bias) > LOGIT_BIAS_MAX:
        raise UsageError.because(
            "bad_sampling", f"{len(sampling.logit_bias)} biases, at most {LOGIT_BIAS_MAX}"
        )
    for token, bias in sampling.logit_bias.items():
        if not 0 <= token < vocabulary_size or not math.isfinite(bias):
            raise UsageError.because(
                "bad_sampling",
                f"logit_bias {token}: {bias} is no finite bias of a token below {vocabulary_size}",
            )


def greedy(logprobs: mx.array) -> mx.array:
    """The likeliest token. One object for all, so that a greedy batch is drawn in one call."""
    return mx.argmax(logprobs, axis=-1)


def make_sampler(sampling: Sampling) -> Sampler:
    """A sampler with its own chain of random keys: a seed draws the same in any batch."""
    if sampling.temperature < COLDEST:
        return greedy
    seed = secrets.randbits(64) if sampling.seed is None else sampling.seed & SEED_MASK
    return _SeededSampler(sampling, seed)


class _SeededSampler:
    def __init__(self, sampling: Sampling, seed: int) -> None:
        self._sampling = sampling
        self._key = mx.random.key(seed)

    def __call__(self, logprobs: mx.array) -> mx.array:
        self._key, now = mx.random.split(self._key)
        kept = _keep_likely(logprobs.astype(mx.float32), self._sampling)
        return mx.random.categorical(kept / self._sampling.temperature, key=now)


def _keep_likely(logprobs: mx.array, sampling: Sampling) -> mx.array:
    """Rule out what top_k, top_p and min_p rule out; the likeliest token always stays."""
    if 0 < sampling.top_k < logprobs.shape[-1]:
        least = mx.min(mx.topk(logprobs, sampling.top_k, axis=-1), axis=-1, keepdims=True)
        logprobs = mx.where(logprobs < least, -mx.inf, logprobs)
    if sampling.top_p < 1.0:
        descending = -mx.sort(-logprobs, axis=-1)
        probabilities = mx.softmax(descending, axis=-1)
        mass_before = mx.cumsum(probabilities, axis=-1) - probabilities
        # The first token has no mass before it, so at least one is kept even at top_p 0.
        kept = mx.maximum((mass_before < sampling.top_p).sum(axis=-1, keepdims=True), 1)
        least = mx.take_along_axis(descending, kept - 1, axis=-1)
        logprobs = mx.where(logprobs < least, -mx.inf, logprobs)
    if sampling.min_p > 0.0:
        least = mx.max(logprobs, axis=-1, keepdims=True) + math.log(sampling.min_p)
        logprobs = mx.where(logprobs < least, -mx.inf, logprobs)
    return logprobs


def make_processors(sampling: Sampling, prompt_length: int) -> list[LogitsProcessor]:
    """Changes to the logits before drawing: biases, and penalties for what was said already.

    Presence and frequency count what was generated, repetition the prompt as well.
    """
    processors: list[LogitsProcessor] = []
    if sampling.repetition_penalty not in (0.0, 1.0):
        processors.append(
            _repetition(sampling.repetition_penalty, max(0, sampling.repetition_window))
        )
    if sampling.presence_penalty or sampling.frequency_penalty:
        processors.append(
            _occurrence(sampling.presence_penalty, sampling.frequency_penalty, prompt_length)
        )
    if sampling.logit_bias:
        processors.append(_bias(sampling.logit_bias))
    return processors


def _counts(tokens: mx.array, logits: mx.array) -> mx.array:
    zeros = mx.zeros((logits.shape[-1],), dtype=logits.dtype)
    return zeros.at[tokens].add(mx.array(1, dtype=logits.dtype)) if tokens.size else zeros


def _repetition(penalty: float, window: int) -> LogitsProcessor:
    def process(tokens: mx.array, logits: mx.array) -> mx.array:
        tokens = tokens[-window:] if window else tokens
        lowered = mx.where(logits < 0, logits * penalty, logits / penalty)
        return mx.where(_counts(tokens, logits) > 0, lowered, logits)

    return process


def _occurrence(presence: float, frequency: float, prompt_length: int) -> LogitsProcessor:
    def process(tokens: mx.array, logits: mx.array) -> mx.array:
        counts = _counts(tokens[prompt_length:], logits)
        return logits - counts * frequency - (counts > 0) * presence

    return process


def _bias(biases: dict[int, float]) -> LogitsProcessor:
    tokens = mx.array(list(biases))
    values = mx.array(list(biases.values()))

    def process(_: mx.array, logits: mx.array) -> mx.array:
        return logits.at[:, tokens].add(values.astype(logits.dtype))

    return process
