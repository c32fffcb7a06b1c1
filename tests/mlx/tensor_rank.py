"""`python -m tests.mlx.tensor_rank`: one of the two processes that `tensor_pair` starts."""

import gc
import os
import select
import socket
import sys
from pathlib import Path

import mlx.core as mx
import msgspec

from node.runner.environment import name_ring
from node.runner.solo_generator import can_batch
from node.runner.stage_link import PeerGoneError, StageLink
from node.runner.stage_ring import StageRing
from node.runner.step_watch import StepWatch
from node.runner.tensor import TensorModel, TensorWorker
from tests.mlx import exactness
from tests.mlx.tensor_pair import Found

STEP_SECONDS = 60.0


def main(family: str, rank: int, path: str, previous: int, following: int) -> int:
    """One rank."""
    name_ring(Path(path), rank)
    group = mx.distributed.init(strict=True, backend="ring")
    ring = StageRing(
        previous=StageLink(socket.socket(fileno=previous), "the other rank"),
        following=StageLink(socket.socket(fileno=following), "the other rank"),
    )
    watch = StepWatch(lambda _: os._exit(3))
    model = exactness.build(family)
    model.shard(group)
    if rank:
        return _work(TensorWorker(model, ring, watch, STEP_SECONDS, is_last=True), ring)
    first = TensorModel(model, ring, watch, STEP_SECONDS)
    whole = exactness.build(family)
    ways = [exactness.answers_alone]
    if can_batch(whole):
        ways.insert(0, exactness.answers_together)
    found = Found(exact=True)
    try:
        for answers in ways:
            expected, given = answers(whole), answers(first)
            found.worst = max(found.worst, exactness.difference(given, expected))
            assert exactness.tokens_of(given) == exactness.tokens_of(expected), "other tokens"
            assert found.worst < exactness.TOLERANCE, f"differs by {found.worst:.4f}"
            del given
        gc.collect()
        first.flush()
    except Exception as error:  # noqa: BLE001 - a family that fails is a line of the table
        found = Found(reason=f"{type(error).__name__}: {error}"[:200])
    # Behind the flush, and only there; then until the other has read both and is gone.
    ring.following.say_goodbye()
    select.select([ring.previous.socket], [], [], 10)
    print(msgspec.json.encode(found).decode(), flush=True)
    return 0


def _work(worker: TensorWorker, ring: StageRing) -> int:
    try:
        while True:
            select.select([ring.previous.socket], [], [])
            worker.listen(lambda: None)
    except PeerGoneError:
        assert worker.cache_count == 0, f"{worker.cache_count} caches are left behind"
        return 0


if __name__ == "__main__":
    _, family_name, own_rank, hosts_path, *ends_given = sys.argv
    sys.exit(main(family_name, int(own_rank), hosts_path, *map(int, ends_given)))
