"""A shard in memory and at work, as `Prepare` describes it."""

import logging
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx

from node.model.errors import BusyError, InternalError, UnreachableError
from node.model.ids import RequestId
from node.model.instance import RunnerPhase
from node.model.request import GenerationItem
from node.runner.architecture import Architecture, find_layers, not_cuttable, trace
from node.runner.cache_cost import cache_bytes_by_slot, cache_bytes_of
from node.runner.channel import NodeChannel
from node.runner.engine import Engine, EngineSettings
from node.runner.failures import (
    RunnerError,
    StopAskedError,
    failure_of,
    request_refused,
    stopped_failure,
)
from node.runner.inbox import NodeGone
from node.runner.pipeline import PipelineModel
from node.runner.protocol import Cancel, Connect, Generate, Item, Prepare, Shutdown
from node.runner.shard_loader import (
    LoadedModel,
    bad_config,
    check_files,
    materialise,
    open_model,
    open_tokenizer,
)
from node.runner.solo_generator import can_batch
from node.runner.stage_link import stage_lost
from node.runner.stage_ring import CONNECT_SECONDS, StageListener, StageRing
from node.runner.stage_worker import StageWorker
from node.runner.step_watch import StepWatch
from node.runner.tensor import TensorModel, TensorWorker
from node.runner.tensor_group import form_group

CACHE_CONTEXTS_DEFAULT = 2
"""Full contexts that the caches may take where the node names no bound."""
CACHE_BYTES_LEAST = 64 * 1024 * 1024
LAST_WORDS_SECONDS = 0.3
"""What the io thread has to tell the node why the process ends."""
logger = logging.getLogger(__name__)

SplitModel = PipelineModel | TensorModel


class Serving:
    """One life of a shard: connect, load, warm up, serve."""

    def __init__(self, channel: NodeChannel, prepare: Prepare, stage_seconds: float) -> None:
        """Raises:
        RunnerError: the stages' boundaries don't make sense.
        """
        boundaries = prepare.boundaries
        ranges = 1 if prepare.tensor else prepare.stages
        if (
            not 0 <= prepare.rank < prepare.stages
            or len(boundaries) != ranges + 1
            or boundaries[0] != 0
            or any(low >= high for low, high in pairwise(boundaries))
        ):
            raise bad_config(
                f"{prepare.stages} stages with boundaries {boundaries}, of which this is"
                f" number {prepare.rank}"
            )
        self._channel = channel
        self._prepare = prepare
        self._stage_seconds = stage_seconds
        own = 0 if prepare.tensor else prepare.rank
        self._shard = range(boundaries[own], boundaries[own + 1])
        self._ring: StageRing | None = None
        self._group: Any = None

    def run(self) -> None:
        """Serve until the node says to stop.

        Raises:
            StopAskedError: the node said so, or another stage has. RunnerError: what ended it.
        """
        try:
            if self._prepare.stages > 1:
                self._ring = self._connect()
                if self._prepare.tensor:
                    self._group = form_group(self._ring, self._prepare)
            self._hold()
        except StopAskedError:
            # By its node or, as a neighbour's goodbye tells, by another: the instance is over.
            if self._ring is not None:
                self._ring.say_goodbye()
            raise

    def _connect(self) -> StageRing:
        self._channel.announce(RunnerPhase.CONNECTING)
        listener = StageListener(self._prepare)
        self._channel.listening(listener.address)
        deadline = time.monotonic() + CONNECT_SECONDS
        while time.monotonic() < deadline:
            self._channel.inbox.raise_if_stopped()
            for command in self._channel.inbox.take():
                if isinstance(command, Connect):
                    return listener.connect(command, self._channel.inbox)
            self._channel.inbox.wait((), max(0.0, deadline - time.monotonic()))
        raise stage_lost("the node", f"named no neighbours within {CONNECT_SECONDS:.0f} s")

    def _hold(self) -> None:
        directory = Path(self._prepare.model_directory)
        self._channel.announce(RunnerPhase.LOADING)
        self._channel.update(layers_total=len(self._shard))
        self._channel.beat()
        check_files(directory, self._shard.start, self._shard.stop)
        loaded = open_model(directory)
        tokenizer = open_tokenizer(directory, loaded.config) if self._prepare.rank == 0 else None
        architecture = self._architecture(loaded)
        layers = find_layers(loaded.model) if architecture is not None else loaded.model.layers
        placed = self._prepare.boundaries[-1]
        if len(layers) != placed:
            raise bad_config(f"the model has {len(layers)} layers, but was placed as {placed}")
        materialise(
            loaded,
            layers,
            self._shard,
            self._prepare.weight_format,
            self._layer_loaded,
            self._group,
        )
        if tokenizer is None:
            self._work(loaded.model, architecture)
            return
        settings = self._settings(loaded.model, architecture)
        split = self._split(loaded.model, architecture)
        engine = Engine(split or loaded.model, tokenizer, settings, self._emit)
        self._channel.announce(RunnerPhase.WARMING_UP)
        engine.warm_up()
        self._figure(engine)
        self._channel.announce(RunnerPhase.READY)
        try:
            self._serve(engine, split)
        except StopAskedError:
            engine.fail_all(BusyError, stopped_failure())
            raise
        except RunnerError as error:
            engine.fail_all(UnreachableError, error.failure)
            raise
        except Exception as error:
            engine.fail_all(InternalError, failure_of(error))
            raise

    def _architecture(self, loaded: LoadedModel) -> Architecture | None:
        """How the model is cut between layers; not needed where it is not."""
        if self._ring is None or self._prepare.tensor:
            return None
        architecture = trace(loaded.model)
        for cut in self._prepare.boundaries[1:-1]:
            if cut in architecture.forbidden_cuts:
                raise not_cuttable(f"layers before and after {cut} share a cache")
        return architecture

    def _split(self, model: Any, architecture: Architecture | None) -> SplitModel | None:
        """What stands for the whole model on rank 0, with the others ready to work."""
        if self._ring is None:
            return None
        split: SplitModel
        if architecture is None:
            split = TensorModel(model, self._ring, self._step_watch(), self._stage_seconds)
        else:
            split = PipelineModel(model, architecture, self._shard, self._ring, self._stage_seconds)
        split.wait_until_loaded()
        return split

    def _step_watch(self) -> StepWatch:
        """Ends the process where the mlx thread can't: it waits for another rank within mlx."""

        def overdue(seconds: float) -> None:
            lost = stage_lost("a rank", f"did not do its part of a step within {seconds:.1f} s")
            self._channel.announce(RunnerPhase.FAILED, lost.failure)
            time.sleep(LAST_WORDS_SECONDS)
            os._exit(1)

        return StepWatch(overdue)

    def _settings(self, model: Any, architecture: Architecture | None) -> EngineSettings:
        prepare = self._prepare
        if architecture is not None:
            bytes_per_token = cache_bytes_of(model, architecture, self._shard)
        else:
            bytes_per_token = sum(cache_bytes_by_slot(model))
        default = CACHE_CONTEXTS_DEFAULT * prepare.context_tokens * bytes_per_token
        return EngineSettings(
            context_tokens=prepare.context_tokens,
            vocabulary_size=int(model(mx.array([[0]])).shape[-1]),
            batch_max=max(1, prepare.batch_max),
            queue_max=max(1, prepare.queue_max),
            cache_bytes_max=prepare.cache_bytes_max or max(default, CACHE_BYTES_LEAST),
            cache_bytes_per_token=bytes_per_token,
            can_batch=can_batch(model),
        )

    def _layer_loaded(self, count: int) -> None:
        self._channel.update(layers_loaded=count, memory_bytes=mx.get_active_memory())
        self._channel.beat()
        self._channel.inbox.raise_if_stopped()
        if self._ring is not None:
            self._ring.raise_if_broken()

    def _emit(self, request: RequestId, item: GenerationItem) -> None:
        self._channel.send(Item(request=request, item=item))

    def _serve(self, engine: Engine, split: SplitModel | None) -> None:
        sockets = self._ring.sockets if self._ring is not None else ()
        while True:
            self._obey(engine)
            self._channel.busy = engine.has_work
            if engine.has_work:
                engine.step()
                self._figure(engine)
                continue
            if split is not None:
                split.flush()
            mx.clear_cache()
            self._figure(engine)
            self._channel.update(tokens_per_second=0.0)  # nothing will bring it down later
            if self._channel.inbox.wait(sockets, None) and split is not None:
                split.listen_while_idle()

    def _obey(self, engine: Engine) -> None:
        commands = self._channel.inbox.take()
        if any(isinstance(command, Generate) for command in commands):
            # Reading a prompt runs the model's own template, which may never end.
            self._channel.busy = True
        for command in commands:
            if isinstance(command, Shutdown):
                raise StopAskedError
            if isinstance(command, Generate):
                engine.submit(command.request)
            elif isinstance(command, Cancel):
                engine.cancel(command.request)
            elif isinstance(command, NodeGone):
                engine.cancel_all()

    def _figure(self, engine: Engine) -> None:
        self._channel.update(
            requests_running=engine.running_count,
            requests_queued=engine.waiting_count,
            tokens_per_second=engine.tokens_per_second(),
            steps=engine.steps,
            memory_bytes=mx.get_active_memory(),
            cache_bytes=engine.cache_bytes,
        )

    def _worker(self, model: Any, architecture: Architecture | None) -> StageWorker | TensorWorker:
        assert self._ring is not None
        if architecture is not None:
            return StageWorker(model, architecture, self._shard, self._ring, self._stage_seconds)
        is_last = self._prepare.rank == self._prepare.stages - 1
        return TensorWorker(
            model, self._ring, self._step_watch(), self._stage_seconds, is_last=is_last
        )

    def _work(self, model: Any, architecture: Architecture | None) -> None:
        assert self._ring is not None
        worker = self._worker(model, architecture)
        worker.wait_until_loaded()
        self._channel.announce(RunnerPhase.READY)
        while True:
            self._channel.inbox.raise_if_stopped()
            for command in self._channel.inbox.take():
                if isinstance(command, Generate):
                    refused = request_refused(
                        InternalError, "not_rank_zero", "only the first stage takes requests"
                    )
                    self._emit(command.request.id, refused)
            if worker.listen(self._set_busy):
                self._channel.update(
                    steps=worker.steps,
                    memory_bytes=mx.get_active_memory(),
                    cache_bytes=worker.cache_bytes,
                )
                continue
            self._channel.busy = False
            self._channel.inbox.wait(self._ring.sockets, None)

    def _set_busy(self) -> None:
        self._channel.busy = True
