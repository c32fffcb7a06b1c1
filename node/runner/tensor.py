"""Tensor parallel: every rank holds a part of each layer, and all compute each step together.

Rank 0 decides and samples, as in a pipeline, and tells the others over the stage links what to
compute before it begins itself: so a rank that has nothing to do waits on a socket. mlx would have
it turn in circles. The sums within a step go over mlx's own ring, which must see the same steps in
the same order on every rank: each is computed to its end before the next is told.
"""

import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from node.runner.failures import RunnerError
from node.runner.journal import CacheStore, Journal, RemoteCache
from node.runner.stage_frame import StageLoaded, StageStep
from node.runner.stage_link import stage_lost
from node.runner.stage_ring import StageRing
from node.runner.step_deadline import StepDeadline
from node.runner.step_watch import StepWatch


class TensorModel:
    """Rank 0: to mlx-lm it looks like a model."""

    def __init__(self, model: Any, ring: StageRing, watch: StepWatch, least_seconds: float) -> None:
        """`model` is this rank's part already."""
        self._model = model
        self._ring = ring
        self._watch = watch
        self._journal = Journal()
        self._deadline = StepDeadline(least_seconds)
        self._sequence = 0

    @property
    def layers(self) -> list[Any]:
        """The model's layers, a part of each."""
        return self._model.layers

    def make_cache(self) -> list[Any]:
        """This rank's caches, and one that stands for those of all others."""
        return [*make_prompt_cache(self._model), self._journal.make()]

    def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:
        """Logits; after more than one token they mean nothing, as nobody asks for them.

        Raises:
            RunnerError: stage_lost. PeerGoneError: a rank said goodbye.
        """
        *own, remote = cache
        assert isinstance(remote, RemoteCache)
        tokens = tokens.astype(mx.int32)
        mx.eval(tokens)
        # Built before anything is told: what fails here fails alone.
        output = self._model(tokens, cache=own)
        length = int(tokens.shape[1])
        self._sequence += 1
        step = StageStep(
            sequence=self._sequence,
            operations=self._journal.take(),
            cache=remote.handle,
            wants_hidden=length == 1,
            seconds=self._deadline.seconds(length),
        )
        began = time.monotonic()
        self._ring.send(step, [tokens], step.seconds)
        _compute(self._ring, self._watch, step, output, own)
        self._deadline.observe(length, time.monotonic() - began)
        return output if step.wants_hidden else mx.zeros_like(output)

    def wait_until_loaded(self) -> None:
        """Return when every rank has its weights, however long that takes.

        Raises:
            RunnerError: stage_lost.
        """
        self._ring.send(StageLoaded())
        message, _ = self._ring.receive(None)
        if not isinstance(message, StageLoaded):
            raise stage_lost("the last rank", "does not follow the protocol")

    def flush(self) -> None:
        """Tell the other ranks what became of their caches, when no step is about to."""
        if len(self._journal):
            seconds = self._deadline.seconds(1)
            step = StageStep(sequence=0, operations=self._journal.take(), seconds=seconds)
            self._ring.send(step, (), seconds)

    def listen_while_idle(self) -> None:
        """Something came from a neighbour while nothing was asked: its end.

        Raises:
            RunnerError: stage_lost. PeerGoneError: it said goodbye.
        """
        self._ring.raise_if_broken()
        for link in (self._ring.previous, self._ring.following):
            if link.is_readable():
                link.receive(self._deadline.seconds(1))
                raise stage_lost("a neighbour", "spoke without being asked")


class TensorWorker:
    """A rank after rank 0: does what it is told, decides nothing."""

    def __init__(
        self, model: Any, ring: StageRing, watch: StepWatch, stage_seconds: float, *, is_last: bool
    ) -> None:
        self._model = model
        self._ring = ring
        self._watch = watch
        self._stage_seconds = stage_seconds
        self._is_last = is_last
        self._caches = CacheStore(lambda: make_prompt_cache(model))
        self.steps = 0

    @property
    def cache_bytes(self) -> int:
        """Bytes of all key/value caches."""
        return self._caches.bytes_held

    @property
    def cache_count(self) -> int:
        """Live cache handles."""
        return len(self._caches)

    def wait_until_loaded(self) -> None:
        """Pass on that this rank and those before it have their weights.

        Raises:
            RunnerError: stage_lost.
        """
        message, _ = self._ring.receive(None)
        if not isinstance(message, StageLoaded):
            raise stage_lost("the rank before", "does not follow the protocol")
        self._ring.send(message)

    def listen(self, on_busy: Callable[[], None]) -> bool:
        """Do the next step if one has come; returns whether one had.

        Raises:
            RunnerError: stage_lost. PeerGoneError: a neighbour said goodbye.
        """
        if self._ring.following.is_readable():
            self._ring.following.receive(self._stage_seconds)
            raise stage_lost("the next rank", "spoke without being asked")
        if not self._ring.previous.is_readable():
            return False
        on_busy()
        message, arrays = self._ring.receive(self._stage_seconds)
        if not isinstance(message, StageStep):
            raise stage_lost("the rank before", "does not follow the protocol")
        if not self._is_last:
            self._ring.send(message, arrays, max(self._stage_seconds, message.seconds))
        for operation in message.operations:
            operation.apply(self._caches)
        if message.cache:
            self._step(message, arrays)
            self.steps += 1
        return True

    def _step(self, step: StageStep, arrays: list[mx.array]) -> None:
        if len(arrays) != 1:
            raise RunnerError.because(
                "stages_disagree", f"step {step.sequence} came with {len(arrays)} arrays"
            )
        caches = self._caches.get(step.cache)
        output = self._model(arrays[0], cache=caches)
        _compute(self._ring, self._watch, step, output, caches)
        if not step.wants_hidden:
            mx.clear_cache()  # as mlx-lm does after each part of a prompt


def _compute(
    ring: StageRing, watch: StepWatch, step: StageStep, output: mx.array, caches: list[Any]
) -> None:
    """Compute a step together with the other ranks: the very same things, in the same order.

    Of a prompt's part only the caches are wanted; its logits could take more memory than weights.
    """
    wanted = [output] if step.wants_hidden else []
    try:
        with watch.within(step.seconds):
            mx.eval(wanted, [cache.state for cache in caches])
    except RuntimeError as error:
        ring.raise_if_goodbye()
        # The others wait in this step or are gone: no rank can go on without it.
        raise stage_lost("a rank", f"could not compute step {step.sequence}: {error}") from error
