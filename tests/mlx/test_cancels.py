"""Cancels at random moments, in queue, prompt and answer: nothing is left behind."""

import gc
import random
from pathlib import Path
from typing import Any

from mlx_lm.utils import load_model, load_tokenizer

from node.model.ids import RequestId
from node.model.request import Delta, Failed, Finished, FinishReason, GenerationItem
from node.runner.engine import Engine, EngineSettings
from tests.mlx.loop_ring import loop
from tests.mlx.runner_process import chat

CANCELS = 1000


def storm(engine: Engine, items: dict[str, list[GenerationItem]], cache_bytes_max: int) -> None:
    """Requests, steps and cancels in a random order, until enough were cancelled."""
    chance = random.Random(4)
    alive: list[str] = []
    asked = cancelled = 0
    while cancelled < CANCELS:
        move = chance.random()
        if move < 0.5 and len(alive) < 10:
            name = f"q-{asked}"
            asked += 1
            alive.append(name)
            words = "word " * chance.randrange(1, 40)
            engine.submit(chat(name, words, tokens_max=chance.randrange(1, 60)))
        elif move < 0.85 and alive:
            name = alive.pop(chance.randrange(len(alive)))
            engine.cancel(RequestId(name))
            last = items[name][-1]
            cancelled += isinstance(last, Finished) and last.reason is FinishReason.CANCELLED
        else:
            engine.step()
        assert engine.cache_bytes <= 2 * cache_bytes_max


def test_a_thousand_cancels_leave_nothing_in_any_stage(tiny: Path) -> None:
    models: list[Any] = [load_model(tiny)[0] for _ in range(2)]
    tokenizer: Any = load_tokenizer(tiny, eos_token_ids=[256])
    first, (worker,) = loop(models, (0, 2, 4))
    items: dict[str, list[GenerationItem]] = {}
    settings = EngineSettings(
        context_tokens=256, vocabulary_size=272, batch_max=4, queue_max=8,
        cache_bytes_max=2_000_000, cache_bytes_per_token=256,
    )  # fmt: skip

    def emit(request: RequestId, item: GenerationItem) -> None:
        items.setdefault(request, []).append(item)

    engine = Engine(first, tokenizer, settings, emit)

    def answer(name: str) -> str:
        engine.submit(chat(name, "what is left?", tokens_max=8))
        while engine.has_work:
            engine.step()
        return "".join(item.text for item in items[name] if isinstance(item, Delta))

    expected = answer("before")
    storm(engine, items, settings.cache_bytes_max)
    engine.cancel_all()
    assert (engine.running_count, engine.waiting_count) == (0, 0)
    for name, got in items.items():
        ends = [item for item in got if isinstance(item, Finished | Failed)]
        assert len(ends) == 1, name
        assert got[-1] is ends[0], name
    assert answer("after") == expected
    engine._prefix_cache.clear()  # pyright: ignore[reportPrivateUsage]
    gc.collect()
    first.flush()
    worker.listen(lambda: None)
    assert (worker.cache_count, worker.cache_bytes) == (0, 0)
