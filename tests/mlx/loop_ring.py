"""A whole pipeline in one process: links are queues, and workers run when rank 0 waits."""

from collections import deque
from typing import Any

import mlx.core as mx

from node.runner.architecture import trace
from node.runner.pipeline import PipelineModel
from node.runner.stage_frame import (
    StageMessage,
    array_bytes,
    array_from_bytes,
    decode_header,
    encode_header,
)
from node.runner.stage_worker import StageWorker

Frame = tuple[bytes, list[bytes]]


class QueueLink:
    """Frames really become bytes on the way."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self.workers: list[StageWorker] = []

    def send(self, message: StageMessage, arrays: Any = (), seconds: float = 0) -> None:
        listed = list(arrays)
        raw = [bytes(array_bytes(array)) if array.size else b"" for array in listed]
        self._frames.append((encode_header(message, listed), raw))

    def receive(self, seconds: float | None) -> tuple[StageMessage, list[mx.array]]:
        for _ in range(100):
            if self._frames:
                break
            for worker in self.workers:
                worker.listen(lambda: None)
        header, raw = self._frames.popleft()
        envelope = decode_header(header[4:])
        arrays = [
            array_from_bytes(layout, bytearray(part))
            for layout, part in zip(envelope.arrays, raw, strict=True)
        ]
        return envelope.message, arrays

    def is_readable(self) -> bool:
        return bool(self._frames)


class Silence(QueueLink):
    """The direction in which nothing is ever said."""


class LoopRing:
    """Both links of one stage."""

    def __init__(self, previous: QueueLink, following: QueueLink, backward: QueueLink) -> None:
        self.previous = previous
        self.following = _Following(following, backward)
        self.send = following.send
        self.receive = previous.receive

    def raise_if_broken(self) -> None:
        """Never broken."""


class _Following:
    def __init__(self, forward: QueueLink, backward: QueueLink) -> None:
        self.send = forward.send
        self.receive = backward.receive
        self.is_readable = backward.is_readable


def loop(models: list[Any], boundaries: tuple[int, ...]) -> tuple[PipelineModel, list[StageWorker]]:
    """Rank 0 and its workers, each with a copy of the model of its own."""
    links = [QueueLink() for _ in models]
    silence = Silence()
    rings: list[Any] = [
        LoopRing(links[rank - 1], links[rank], silence) for rank in range(len(models))
    ]
    shards = [range(boundaries[rank], boundaries[rank + 1]) for rank in range(len(models))]
    workers = [
        StageWorker(models[rank], trace(models[rank]), shards[rank], rings[rank], 1.0)
        for rank in range(1, len(models))
    ]
    links[-1].workers = workers
    first = PipelineModel(models[0], trace(models[0]), shards[0], rings[0], 1.0)
    return first, workers
