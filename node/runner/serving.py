"""A shard in memory and at work, as `Prepare` describes it."""

import logging
from pathlib import Path

import mlx.core as mx

from node.model.errors import BusyError
from node.model.ids import RequestId
from node.model.instance import RunnerPhase
from node.model.request import GenerationItem
from node.runner.channel import NodeChannel
from node.runner.engine import Engine, EngineSettings
from node.runner.failures import StopAskedError, stopped_failure
from node.runner.inbox import NodeGone
from node.runner.protocol import Cancel, Generate, Item, Prepare, Shutdown
from node.runner.shard_loader import check_files, materialise, open_model, open_tokenizer

DEFAULT_CACHE_BYTES = 1 << 30
logger = logging.getLogger(__name__)


class Serving:
    """One life of a shard: load, warm up, serve."""

    def __init__(self, channel: NodeChannel, prepare: Prepare, stage_seconds: float) -> None:
        self._channel = channel
        self._prepare = prepare
        self._stage_seconds = stage_seconds

    def run(self) -> None:
        """Serve until the node says to stop.

        Raises:
            StopAskedError: the node said so. RunnerError: what ended it.
        """
        directory = Path(self._prepare.model_directory)
        rank = self._prepare.rank
        shard = range(self._prepare.boundaries[rank], self._prepare.boundaries[rank + 1])
        self._channel.announce(RunnerPhase.LOADING)
        self._channel.update(layers_total=len(shard))
        self._channel.beat()
        check_files(directory, shard.start, shard.stop)
        loaded = open_model(directory)
        tokenizer = open_tokenizer(directory, loaded.config)
        model = loaded.model
        materialise(loaded, model.layers, shard, self._prepare.weight_format, self._layer_loaded)
        self._channel.announce(RunnerPhase.WARMING_UP)
        vocabulary_size = int(model(mx.array([[0]])).shape[-1])
        engine = Engine(
            model,
            tokenizer,
            EngineSettings(
                context_tokens=self._prepare.context_tokens,
                vocabulary_size=vocabulary_size,
                batch_max=self._prepare.batch_max,
                queue_max=self._prepare.queue_max,
                cache_bytes_max=self._prepare.cache_bytes_max or DEFAULT_CACHE_BYTES,
                cache_bytes_per_token=1,
            ),
            self._emit,
        )
        self._channel.announce(RunnerPhase.READY)
        self._serve(engine)

    def _layer_loaded(self, count: int) -> None:
        self._channel.update(layers_loaded=count, memory_bytes=mx.get_active_memory())
        self._channel.beat()
        if any(isinstance(command, Shutdown) for command in self._channel.inbox.take()):
            raise StopAskedError

    def _emit(self, request: RequestId, item: GenerationItem) -> None:
        self._channel.send(Item(request=request, item=item))

    def _serve(self, engine: Engine) -> None:
        while True:
            for command in self._channel.inbox.take():
                if isinstance(command, Shutdown):
                    engine.fail_all(BusyError, stopped_failure())
                    raise StopAskedError
                if isinstance(command, Generate):
                    engine.submit(command.request)
                elif isinstance(command, Cancel):
                    engine.cancel(command.request)
                elif isinstance(command, NodeGone):
                    engine.cancel_all()
            self._channel.busy = engine.has_work
            if engine.has_work:
                engine.step()
            self._channel.update(
                requests_running=engine.running_count,
                requests_queued=engine.waiting_count,
                tokens_per_second=engine.tokens_per_second(),
                steps=engine.steps,
                memory_bytes=mx.get_active_memory(),
                cache_bytes=engine.cache_bytes,
            )
            if not engine.has_work:
                self._channel.busy = False
                self._channel.inbox.wait((), None)
