"""A stage after rank 0: holds layers, does what it is sent, decides nothing."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from node.runner.architecture import Architecture
from node.runner.failures import RunnerError
from node.runner.journal import CacheStore
from node.runner.stage import Crossing, Stage
from node.runner.stage_frame import StageAnswer, StageLoaded, StageStep
from node.runner.stage_link import stage_lost
from node.runner.stage_ring import StageRing


class StageWorker:
    """Replays rank 0's steps on its own layers."""

    def __init__(
        self,
        model: Any,
        architecture: Architecture,
        shard: range,
        ring: StageRing,
        stage_seconds: float,
    ) -> None:
        self._stage = Stage(model, architecture, shard)
        self._is_last = shard.stop == architecture.layer_count
        self._ring = ring
        self._stage_seconds = stage_seconds
        self._allowed_seconds = stage_seconds
        self._caches = CacheStore(self._stage.make_cache)
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
        """Pass on that this stage and those before it have their weights.

        Raises:
            RunnerError: stage_lost.
        """
        message, _ = self._ring.receive(None)
        if not isinstance(message, StageLoaded):
            raise stage_lost("the stage before", "does not follow the protocol")
        self._ring.send(message)

    def listen(self, on_busy: Callable[[], None]) -> bool:
        """Do the next step if one has come; returns whether one had.

        Raises:
            RunnerError: stage_lost. PeerGoneError: a neighbour said goodbye.
        """
        if self._ring.following.is_readable():
            self._ring.following.receive(self._stage_seconds)
            raise stage_lost("the next stage", "spoke without being asked")
        if not self._ring.previous.is_readable():
            return False
        on_busy()
        message, arrays = self._ring.receive(self._allowed_seconds)
        if not isinstance(message, StageStep):
            raise stage_lost("the stage before", "does not follow the protocol")
        self._allowed_seconds = max(self._stage_seconds, message.seconds)
        for operation in message.operations:
            operation.apply(self._caches)
        if message.cache:
            self._step(message, arrays)
            self.steps += 1
        elif not self._is_last:
            self._ring.send(message, (), self._allowed_seconds)
        return True

    def _step(self, step: StageStep, arrays: list[mx.array]) -> None:
        if len(arrays) != len(step.extras) + 2:
            raise RunnerError.because(
                "stages_disagree", f"step {step.sequence} came with {len(arrays)} arrays"
            )
        tokens, hidden, *others = arrays
        arrived = Crossing(hidden=hidden, extras=dict(zip(step.extras, others, strict=True)))
        caches = self._caches.get(step.cache)
        self._stage.run(tokens, caches, arrived)
        leaving = self._stage.leaving
        names = list(leaving.extras)
        results = [leaving.hidden, *(leaving.extras[name] for name in names)]
        mx.eval(results, [cache.state for cache in caches])
        if not self._is_last:
            onward = StageStep(
                sequence=step.sequence,
                operations=step.operations,
                cache=step.cache,
                wants_hidden=step.wants_hidden,
                extras=names,
                seconds=step.seconds,
            )
            self._ring.send(onward, [tokens, *results], self._allowed_seconds)
        elif step.wants_hidden:
            answer = StageAnswer(sequence=step.sequence, extras=names)
            self._ring.send(answer, results, self._allowed_seconds)
        else:
            self._ring.send(StageAnswer(sequence=step.sequence), (), self._allowed_seconds)
        if not step.wants_hidden:
            mx.clear_cache()  # as mlx-lm does after each part of a prompt
