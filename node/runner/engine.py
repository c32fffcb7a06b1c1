"""The engine of rank 0: takes requests, batches them, and turns steps of the model into items."""

import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import msgspec
from mlx_lm.generate import BatchGenerator, StopSequences

from node.model.errors import BusyError, ExoctlError, Failure, InternalError
from node.model.ids import RequestId
from node.model.request import FinishReason, GenerationItem, GenerationRequest, Queued
from node.runner.constraint import Constraints
from node.runner.failures import StopAskedError, failure_of, request_refused
from node.runner.generation import Generation, failed
from node.runner.prefill_pace import PrefillPace
from node.runner.prefix_cache import PrefixCache
from node.runner.prompt import Tokenizer
from node.runner.row_cache import make_caches
from node.runner.sampling import greedy, make_sampler
from node.runner.solo_generator import SoloGenerator

RESERVED_TOKENS_MAX = 1024
"""Answer tokens for which room is kept when a request is let in; most answers are shorter."""
FAULT_SECONDS = 10.0
"""A second failing step within this ends the runner: it would only go on failing."""
SPEED_SECONDS = 5.0
SERVICES_KEPT = 16
"""Requests whose time tells how long the next ones wait."""
WAIT_SECONDS_LEAST = 0.1
"""A shorter wait is told as this: 0 says that nothing is known."""
WARM_UP_TOKENS = 9
"""Eight of them at once, then one by one."""
ENDS_RUNNER = (ExoctlError, StopAskedError)
"""No fault of a request or a step: the runner ends, whatever it was doing."""
logger = logging.getLogger(__name__)

Emit = Callable[[RequestId, GenerationItem], None]


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one engine."""

    context_tokens: int
    vocabulary_size: int
    batch_max: int
    queue_max: int
    cache_bytes_max: int
    """Key/value caches in use and kept together."""
    cache_bytes_per_token: int
    can_batch: bool = True
    """Otherwise one request is computed at a time."""


class Engine:
    """Generations at once, joining and leaving at any step. All of it on the mlx thread."""

    def __init__(
        self, model: Any, tokenizer: Tokenizer, settings: EngineSettings, emit: Emit
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._settings = settings
        self._batch_max = settings.batch_max if settings.can_batch else 1
        self._emit = emit
        self._waiting: deque[Generation] = deque()
        self._running: dict[int, Generation] = {}
        self._prefix_cache = PrefixCache(settings.cache_bytes_max)
        self._pace = PrefillPace()
        self._constraints = Constraints(tokenizer, settings.vocabulary_size)
        self._generator = self._new_generator()
        self._last_fault = float("-inf")
        self._emitted: deque[tuple[float, int]] = deque()
        self._service_seconds: deque[float] = deque(maxlen=SERVICES_KEPT)
        self.steps = 0

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""
        return bool(self._running or self._waiting)

    @property
    def running_count(self) -> int:
        """Generations in the batch."""
        return len(self._running)

    @property
    def waiting_count(self) -> int:
        """Generations in the queue."""
        return len(self._waiting)

    @property
    def cache_bytes(self) -> int:
        """Key/value caches, in use and kept."""
        return self._generator.prompt_cache_nbytes + self._prefix_cache.bytes_held

    def tokens_per_second(self) -> float:
        """Tokens generated over the last seconds."""
        now = time.monotonic()
        while self._emitted and self._emitted[0][0] < now - SPEED_SECONDS:
            self._emitted.popleft()
        if len(self._emitted) < 2:
            return 0.0
        # The first step only says when the time of the others began.
        (first, skipped), (last, _) = self._emitted[0], self._emitted[-1]
        return (sum(count for _, count in self._emitted) - skipped) / max(last - first, 1e-6)

    def warm_up(self) -> None:
        """Answer a meaningless prompt, so that the first real one meets no first time."""
        caches = make_caches(self._model)
        (uid,) = self._generator.insert(
            [[0] * WARM_UP_TOKENS], max_tokens=[2], caches=[caches], all_tokens=[[]]
        )
        ended = False
        while not ended:
            began = time.monotonic()
            prompts, answers = self._generator.next()
            computed = sum(
                response.progress[0] for response in prompts if not response.end_of_prompt
            )
            self._pace.observe(computed, time.monotonic() - began)
            ended = any(
                response.uid == uid and response.finish_reason is not None for response in answers
            )

    def submit(self, request: GenerationRequest) -> None:
        """Take a request; what is wrong with it is its own `Failed` and nobody else's."""
        if self._find(request.id) is not None:
            logger.warning("%s is already here", request.id)
            return
        if len(self._waiting) >= self._settings.queue_max:
            refused = request_refused(
                BusyError,
                "queue_full",
                f"{len(self._running)} requests run and {len(self._waiting)} wait, of"
                f" {self._settings.queue_max} at most{self._wait_text()}",
                "try again in a while, or start another instance",
                retry_seconds=self._wait_seconds(0),
            )
            self._emit(request.id, refused)
            return
        try:
            generation = Generation(
                request,
                self._tokenizer,
                self._settings.context_tokens,
                self._settings.vocabulary_size,
                self._constraints,
            )
        except ExoctlError as error:
            self._emit(request.id, failed(error))
            return
        except Exception as error:  # one request's fault must stay its own
            logger.exception("request %s", request.id)
            self._emit(request.id, failed(InternalError(failure_of(error))))
            return
        if request.count_only:
            self._finish(generation, FinishReason.STOP)
            return
        self._waiting.append(generation)
        self._admit()
        self._tell_positions()

    def cancel(self, request: RequestId) -> None:
        """End a generation wherever it is; it frees its place at once."""
        generation = self._find(request)
        if generation is None:
            return
        with self._own_fault(generation):
            if generation.uid >= 0:
                self._leave(generation)
            else:
                self._waiting.remove(generation)
            self._finish(generation, FinishReason.CANCELLED)

    def cancel_all(self) -> None:
        """End every generation."""
        for generation in [*self._waiting, *self._running.values()]:
            self.cancel(generation.request.id)

    def fail_all(self, kind: type[ExoctlError], failure: Failure) -> None:
        """End every generation with the failure; nothing is computed any more."""
        for generation in [*self._running.values(), *self._waiting]:
            self._emit(generation.request.id, generation.fail(kind, failure))
        self._running.clear()
        self._waiting.clear()

    def step(self) -> None:
        """Compute one step for all that run.

        Raises:
            Exception: a second fault within a short time; the caller ends the runner.
            StopAskedError: the node or a neighbour has ended it.
        """
        self._admit()
        if not self._running:
            return
        decoding = sum(generation.is_decoding for generation in self._running.values())
        chunk = self._pace.chunk(prompts=len(self._running) - decoding, is_decoding=decoding > 0)
        self._generator.prefill_batch_size = chunk.prompts
        self._generator.prefill_step_size = chunk.tokens_each
        began = time.monotonic()
        try:
            prompts, answers = self._generator.next()
        except ENDS_RUNNER:
            raise  # a stop, or a lost stage: no step will ever work again
        except Exception as error:  # noqa: BLE001 - whatever mlx raises ends this batch alone
            self._recover(error)
            return
        self.steps += 1
        self._pace.observe(
            sum(self._prefill_growth(response) for response in prompts), time.monotonic() - began
        )
        for response in answers:
            self._answer(response)
        if answers:
            self._emitted.append((time.monotonic(), len(answers)))
        self._prefix_cache.leave_room(self._generator.prompt_cache_nbytes)
        if len(answers) < len(self._running) or self._waiting:
            self._admit()
            self._tell_positions()

    def _new_generator(self) -> BatchGenerator | SoloGenerator:
        if not self._settings.can_batch:
            return SoloGenerator(self._model)
        return BatchGenerator(
            self._model,
            sampler=greedy,
            completion_batch_size=self._batch_max,
            prefill_batch_size=1,
        )

    def _find(self, request: RequestId) -> Generation | None:
        for generation in [*self._running.values(), *self._waiting]:
            if generation.request.id == request:
                return generation
        return None

    def _admit(self) -> None:
        """Let requests in while there is a place and room for their caches."""
        while self._waiting and len(self._running) < self._batch_max:
            generation = self._waiting[0]
            if self._running and not self._has_room(generation):
                return
            self._waiting.popleft()
            self._insert(generation)

    def _has_room(self, newcomer: Generation) -> bool:
        promised = sum(
            len(generation.prompt) + min(generation.tokens_max, RESERVED_TOKENS_MAX)
            for generation in [*self._running.values(), newcomer]
        )
        return promised * self._settings.cache_bytes_per_token <= self._settings.cache_bytes_max

    def _insert(self, generation: Generation) -> None:
        sampling = generation.request.sampling
        with self._own_fault(generation):
            cache, cached = self._prefix_cache.fetch(generation.prompt)
            (uid,) = self._generator.insert(
                [generation.prompt[cached:]],
                max_tokens=[generation.tokens_max],
                caches=[make_caches(self._model) if cache is None else cache],
                all_tokens=[generation.prompt[:cached]],
                samplers=[make_sampler(sampling)],
                logits_processors=[generation.processors],
                stop_sequences=[
                    StopSequences([[token] for token in self._tokenizer.eos_token_ids])
                ],
            )
            generation.admit(uid, cached)
            self._running[uid] = generation

    def _tell_positions(self) -> None:
        for ahead, generation in enumerate(self._waiting):
            if generation.ahead != ahead:
                generation.ahead = ahead
                queued = Queued(ahead=ahead, wait_seconds=self._wait_seconds(ahead))
                self._emit(generation.request.id, queued)

    def _wait_text(self) -> str:
        seconds = self._wait_seconds(len(self._waiting))
        return f"; the last of them waits about {seconds:.0f} s" if seconds else ""

    def _wait_seconds(self, ahead: int) -> float:
        """How long until so many have been let in, and one more; 0 where nothing is known."""
        if not self._service_seconds:
            return 0.0
        each = sum(self._service_seconds) / len(self._service_seconds)
        return max(WAIT_SECONDS_LEAST, round(each * (ahead + 1) / self._batch_max, 1))

    def _prefill_growth(self, response: Any) -> int:
        generation = self._running.get(response.uid)
        if generation is None:
            return 0
        done, total = response.progress
        self._emit(generation.request.id, generation.prefilled(done, total))
        return generation.prefill_growth(done)

    def _answer(self, response: Any) -> None:
        generation = self._running.get(response.uid)
        if generation is None:
            return
        with self._own_fault(generation):
            ended_by_eos = response.finish_reason == "stop"
            stopped = False
            if not ended_by_eos:
                delta, stopped = generation.take(response.token, response.logprobs)
                self._emit(generation.request.id, delta)
            if response.finish_reason is not None:
                del self._running[response.uid]
                self._prefix_cache.keep(response.all_tokens, response.prompt_cache)
                is_stop = ended_by_eos or stopped
                self._finish(generation, FinishReason.STOP if is_stop else FinishReason.LENGTH)
            elif stopped:
                self._leave(generation)
                self._finish(generation, FinishReason.STOP)

    @contextmanager
    def _own_fault(self, generation: Generation) -> Generator[None]:
        """Whatever goes wrong with one generation ends it alone."""
        try:
            yield
        except ENDS_RUNNER:
            raise
        except Exception as error:  # one request's fault must stay its own
            logger.exception("request %s", generation.request.id)
            self._emit(generation.request.id, generation.fail(InternalError, failure_of(error)))
            if self._running.pop(generation.uid, None) is not None:
                self._generator.remove([generation.uid])

    def _leave(self, generation: Generation) -> None:
        """Take it out of the batch, and keep what was computed for it."""
        del self._running[generation.uid]
        removed = self._generator.remove([generation.uid], return_prompt_caches=True)
        for cache, tokens in removed.values():
            if generation.is_decoding:
                self._prefix_cache.keep(tokens, cache)

    def _finish(self, generation: Generation, reason: FinishReason) -> None:
        if generation.is_decoding and reason is not FinishReason.CANCELLED:
            self._service_seconds.append(generation.service_seconds)
        for item in generation.finish(reason):
            self._emit(generation.request.id, item)

    def _recover(self, error: Exception) -> None:
        logger.error("a step failed", exc_info=error)
        now = time.monotonic()
        repeated = now - self._last_fault < FAULT_SECONDS
        self._last_fault = now
        failure = failure_of(error)
        for generation in self._running.values():
            self._emit(generation.request.id, generation.fail(InternalError, failure))
        self._running.clear()
        if repeated:
            raise error
        self._prefix_cache.clear()
        self._generator = self._new_generator()
        mx.clear_cache()
