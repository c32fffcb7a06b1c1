"""Rank 0 of a pipeline: to mlx-lm it looks like a model, but most of its layers are elsewhere."""

import time
from collections import deque
from typing import Any

import mlx.core as mx

from node.runner.architecture import Architecture
from node.runner.failures import RunnerError
from node.runner.journal import Journal, RemoteCache
from node.runner.stage import Crossing, Stage
from node.runner.stage_frame import StageAnswer, StageLoaded, StageStep
from node.runner.stage_link import stage_lost
from node.runner.stage_ring import StageRing
from node.runner.step_deadline import StepDeadline

PREFILL_CREDITS = 4
"""Steps of prompts that may be under way at once; they need no reply, only room."""


class PipelineModel:
    """Embeds, runs its own layers, has the other stages run theirs, then norm and head.

    Only rank 0 samples, so the stages never have to agree on anything: they replay.
    """

    def __init__(
        self,
        model: Any,
        architecture: Architecture,
        shard: range,
        ring: StageRing,
        least_seconds: float,
    ) -> None:
        self._model = model
        self._stage = Stage(model, architecture, shard, self._exchange)
        self._ring = ring
        self._journal = Journal()
        self._deadline = StepDeadline(least_seconds)
        self._sequence = 0
        self._under_way: deque[tuple[int, int, float]] = deque()
        self._tokens: mx.array = mx.zeros((1, 1), mx.int32)
        self._remote: RemoteCache | None = None

    @property
    def layers(self) -> list[Any]:
        """The model's layers, remote ones among them."""
        return self._model.layers

    def make_cache(self) -> list[Any]:
        """Caches of this stage's layers, and one that stands for all others."""
        return [*self._stage.make_cache(), self._journal.make()]

    def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:
        """Logits; after more than one token they mean nothing, as nobody asks for them."""
        self._tokens = tokens
        self._remote = cache[-1]
        try:
            return self._stage.run(tokens, cache[:-1], None)
        finally:
            self._remote = None  # or the other stages could not let go of it

    def wait_until_loaded(self) -> None:
        """Return when every stage has its weights, however long that takes.

        Raises:
            RunnerError: stage_lost.
        """
        self._ring.send(StageLoaded())
        message, _ = self._ring.receive(None)
        if not isinstance(message, StageLoaded):
            raise stage_lost("the last stage", "does not follow the protocol")

    def flush(self) -> None:
        """Tell the other stages what became of their caches, when no step is about to."""
        if len(self._journal):
            step = StageStep(sequence=0, operations=self._journal.take(), seconds=self._seconds())
            self._ring.send(step, [], step.seconds)

    def listen_while_idle(self) -> None:
        """Something came from a neighbour while nothing was asked: a late answer, or its end.

        Raises:
            RunnerError: stage_lost. PeerGoneError: it said goodbye.
        """
        if self._under_way:
            self._receive()
        else:
            self._ring.raise_if_broken()
            for link in (self._ring.previous, self._ring.following):
                if link.is_readable():
                    link.receive(self._deadline.seconds(1))
                    raise stage_lost("a neighbour", "spoke without being asked")

    def _exchange(self, leaving: Crossing) -> Crossing:
        assert self._remote is not None
        length = int(self._tokens.shape[1])
        self._sequence += 1
        names = list(leaving.extras)
        step = StageStep(
            sequence=self._sequence,
            operations=self._journal.take(),
            cache=self._remote.handle,
            wants_hidden=length == 1,
            extras=names,
            seconds=self._seconds(length),
        )
        tokens = self._tokens.astype(mx.int32)
        arrays = [tokens, leaving.hidden, *(leaving.extras[name] for name in names)]
        mx.eval(arrays)
        self._ring.send(step, arrays, step.seconds)
        self._under_way.append((self._sequence, length, time.monotonic()))
        if length > 1:
            while len(self._under_way) > PREFILL_CREDITS:
                self._receive()
            return Crossing(hidden=mx.zeros_like(leaving.hidden))
        while True:
            sequence, answer = self._receive()
            if sequence == self._sequence:
                return answer

    def _seconds(self, length: int = 1) -> float:
        """The time for what is under way, and for a step of so many tokens with it."""
        return self._deadline.seconds(max(length, *(other for _, other, _ in self._under_way), 1))

    def _receive(self) -> tuple[int, Crossing]:
        """The answer to the oldest step under way."""
        message, arrays = self._ring.receive(self._seconds())
        sequence, length, sent = self._under_way.popleft()
        if not isinstance(message, StageAnswer) or message.sequence != sequence:
            raise RunnerError.because(
                "stages_disagree", f"step {sequence} was answered with {message}"
            )
        if length == 1 or not self._under_way:
            self._deadline.observe(length, time.monotonic() - sent)
        if len(arrays) != (len(message.extras) + 1 if length == 1 else 0):
            raise RunnerError.because(
                "stages_disagree", f"step {sequence} was answered with {len(arrays)} arrays"
            )
        if not arrays:
            return sequence, Crossing(hidden=mx.zeros((1, 1, 1)))
        extras = dict(zip(message.extras, arrays[1:], strict=True))
        return sequence, Crossing(hidden=arrays[0], extras=extras)
