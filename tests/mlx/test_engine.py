"""The engine without a process: faults in a step, room for caches, pace, early cancels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.utils import load_model, load_tokenizer

from node.model.ids import ModelId, RequestId
from node.model.request import (
    Delta,
    Failed,
    Finished,
    FinishReason,
    GenerationItem,
    GenerationRequest,
    Prefilled,
    Queued,
    Sampling,
)
from node.runner.engine import Engine, EngineSettings
from node.runner.failures import StopAskedError
from node.runner.prefill_pace import Chunk, PrefillPace
from node.runner.prompt import Tokenizer
from node.runner.stage_link import PeerGoneError
from node.runner.step_deadline import StepDeadline
from tests.mlx.runner_process import chat

ENDLESS = Sampling(temperature=0.0, logit_bias={65: 500.0})
Items = dict[str, list[GenerationItem]]


class Faulty:
    """The tiny model, that can be told to raise."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.fault: Exception | None = None
        self.calls: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, tokens: Any, cache: Any) -> Any:
        if self.fault is not None:
            raise self.fault
        self.calls.append(tuple(tokens.shape))
        return self._model(tokens, cache=cache)


@pytest.fixture(scope="module")
def parts(tiny: Path) -> tuple[Any, Tokenizer]:
    model, config = load_model(tiny)
    tokenizer: Any = load_tokenizer(tiny, eos_token_ids=config["eos_token_id"])
    return model, tokenizer


@pytest.fixture
def make(parts: tuple[Any, Tokenizer]) -> Callable[..., tuple[Engine, Faulty, Items]]:
    def build(**changes: Any) -> tuple[Engine, Faulty, Items]:
        items: Items = {}
        model = Faulty(parts[0])
        bounds: dict[str, Any] = {
            "context_tokens": 256, "vocabulary_size": 272, "batch_max": 3, "queue_max": 8,
            "cache_bytes_max": 10_000_000, "cache_bytes_per_token": 1024, **changes,
        }  # fmt: skip

        def emit(request: RequestId, item: GenerationItem) -> None:
            items.setdefault(request, []).append(item)

        return Engine(model, parts[1], EngineSettings(**bounds), emit), model, items

    return build


def run(engine: Engine, steps: int = 10_000) -> None:
    while engine.has_work and steps:
        engine.step()
        steps -= 1


def test_a_failing_step_fails_its_batch_and_the_engine_goes_on(make: Any) -> None:
    engine, model, items = make()
    engine.submit(chat("a", "one", tokens_max=20))
    engine.submit(chat("b", "two", tokens_max=20))
    run(engine, 4)
    model.fault = RuntimeError("[METAL] Insufficient Memory")
    engine.step()
    for request in ("a", "b"):
        last = items[request][-1]
        assert isinstance(last, Failed)
        assert (last.kind, last.failure.code) == ("InternalError", "out_of_memory")
    assert not engine.has_work
    model.fault = None
    engine.submit(chat("c", "three", tokens_max=5))
    run(engine)
    assert isinstance(items["c"][-1], Finished)


def test_a_second_failing_step_ends_the_runner(make: Any) -> None:
    engine, model, items = make()
    model.fault = RuntimeError("broken for good")
    engine.submit(chat("a", "one", tokens_max=20))
    engine.step()
    engine.submit(chat("b", "two", tokens_max=20))
    with pytest.raises(RuntimeError, match="broken for good"):
        engine.step()
    assert isinstance(items["b"][-1], Failed)


@pytest.mark.parametrize("end", [StopAskedError(), PeerGoneError("stage 1")])
@pytest.mark.parametrize("place", ["step", "insert", "answer"])
def test_a_stop_is_no_fault_of_what_it_interrupts(
    make: Any, monkeypatch: pytest.MonkeyPatch, end: Exception, place: str
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise end

    engine, model, items = make()
    engine.warm_up()
    if place == "insert":
        monkeypatch.setattr(engine._generator, "insert", stop)
        with pytest.raises(type(end)):
            engine.submit(chat("a", "one", tokens_max=5))
    else:
        engine.submit(chat("a", "one", tokens_max=5))
        if place == "step":
            model.fault = end
        else:
            monkeypatch.setattr(engine._running[1], "take", stop)
        with pytest.raises(type(end)):
            run(engine)
    assert not any(isinstance(item, Failed) for item in items.get("a", []))


def test_those_who_wait_are_told_for_how_long(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _, items = make(batch_max=1, queue_max=2)
    engine.submit(chat("first", "one", tokens_max=3, sampling=ENDLESS))
    run(engine)
    took = next(item for item in items["first"] if isinstance(item, Finished)).usage
    for name in ("a", "b", "c"):
        engine.submit(chat(name, "one", tokens_max=3, sampling=ENDLESS))
    engine.submit(chat("d", "one", tokens_max=3))
    refused = items["d"][-1]
    assert isinstance(refused, Failed)
    assert refused.failure.code == "queue_full"
    waits = [item.wait_seconds for item in (items["b"][0], items["c"][0])]
    each = took.prefill_seconds + took.decode_seconds
    assert waits == pytest.approx([each, 2 * each], abs=0.11)
    assert refused.failure.retry_seconds == pytest.approx(each, abs=0.11)
    assert refused.failure.retry_seconds > 0


@pytest.mark.parametrize("place", ["queued", "running"])
def test_a_fault_while_one_is_cancelled_is_its_own(
    make: Any, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def fault(_: object) -> None:
        raise ValueError("no text")

    engine, _, items = make(batch_max=1 if place == "queued" else 3)
    for name in "ab":
        engine.submit(chat(name, name, tokens_max=20))
    for _ in range(3):
        engine.step()
    victim = engine._find("b")
    monkeypatch.setattr(victim, "finish", fault)
    engine.cancel("b")
    assert isinstance(items["b"][-1], Failed)
    run(engine)
    assert isinstance(items["a"][-1], Finished)
    assert engine.running_count == 0


def test_the_speed_is_of_the_steps_between(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _, items = make()
    now = [100.0]
    monkeypatch.setattr("node.runner.engine.time.monotonic", lambda: now[0])
    engine.submit(chat("a", "one", tokens_max=40, sampling=ENDLESS))
    while not any(isinstance(item, Delta) for item in items.get("a", [])):
        engine.step()
    assert engine.tokens_per_second() == 0.0
    for _ in range(4):
        now[0] += 0.25
        engine.step()
    assert engine.tokens_per_second() == pytest.approx(4.0)
    now[0] += 60
    assert engine.tokens_per_second() == 0.0


def test_one_cancelled_in_the_queue_only_waited(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _, items = make(batch_max=1)
    now = [100.0]
    monkeypatch.setattr("node.runner.generation.time.monotonic", lambda: now[0])
    for name in "ab":
        engine.submit(chat(name, name, tokens_max=20))
    now[0] += 2.5
    engine.cancel("b")
    usage = items["b"][-1].usage
    assert (usage.queue_seconds, usage.prefill_seconds, usage.decode_seconds) == (2.5, 0, 0)


def test_a_request_waits_until_there_is_room_for_its_cache(make: Any) -> None:
    engine, _, items = make(cache_bytes_max=150 * 1024)
    for name in ("a", "b", "c"):
        engine.submit(chat(name, "x" * 30, tokens_max=40))
    engine.step()
    assert (engine.running_count, engine.waiting_count) == (2, 1)
    assert items["c"] == [Queued(ahead=0)]
    run(engine)
    assert all(isinstance(items[name][-1], Finished) for name in ("a", "b", "c"))


def test_one_request_always_runs_however_little_room_there_is(make: Any) -> None:
    engine, _, items = make(cache_bytes_max=1)
    engine.submit(chat("a", "x", tokens_max=3))
    run(engine)
    assert isinstance(items["a"][-1], Finished)
    assert engine.cache_bytes == 0


def test_kept_caches_stay_within_their_bound(make: Any) -> None:
    engine, _, _ = make(cache_bytes_max=600_000)
    for number in range(30):
        engine.submit(chat(f"q{number}", f"{number} " * 20, tokens_max=2))
        run(engine)
        assert engine.cache_bytes <= 600_000
    assert engine.cache_bytes > 0


def test_what_is_kept_of_a_batch_does_not_keep_the_batch(make: Any) -> None:
    engine, _, _ = make(context_tokens=400, batch_max=4)
    before = mx.get_active_memory()
    for number in range(4):
        engine.submit(chat(f"q{number}", f"{number} " * 100, tokens_max=4 + number))
    run(engine)
    assert engine.cache_bytes > 100_000
    assert mx.get_active_memory() - before < 1.3 * engine.cache_bytes + 20_000


def test_a_long_prompt_goes_in_chunks_and_can_be_cancelled_between(make: Any) -> None:
    engine, model, items = make()
    engine.submit(chat("long", "x" * 200, tokens_max=3))
    engine.step()
    assert items["long"][-1] == Prefilled(done=64, total=203)
    assert all(length <= 64 for _, length in model.calls)
    engine.cancel(RequestId("long"))
    last = items["long"][-1]
    assert isinstance(last, Finished)
    assert last.reason is FinishReason.CANCELLED
    assert not engine.has_work
    engine.submit(chat("next", "y", tokens_max=2))
    run(engine)
    assert isinstance(items["next"][-1], Finished)


def test_others_go_on_answering_while_a_prompt_is_read(make: Any) -> None:
    engine, _, items = make()
    engine.submit(chat("short", "y", tokens_max=200))
    run(engine, 4)
    engine.submit(chat("long", "x" * 200, tokens_max=3))
    seen: list[tuple[bool, bool]] = []
    while not any(isinstance(item, Delta) for item in items.get("long", [])):
        before = [len(items[name]) if name in items else 0 for name in ("short", "long")]
        engine.step()
        seen.append((len(items["short"]) > before[0], len(items.get("long", [])) > before[1]))
    assert sum(both == (True, True) for both in seen) >= 2


def test_the_same_request_twice_is_one(make: Any) -> None:
    engine, _, items = make()
    for _ in range(2):
        engine.submit(chat("a", "one", tokens_max=3))
    run(engine)
    assert sum(isinstance(item, Finished) for item in items["a"]) == 1


def test_an_oversize_prompt_is_not_even_tokenised(make: Any) -> None:
    engine, _, items = make()
    engine.submit(chat("a", "x" * 10_000_000))
    (failed,) = items["a"]
    assert isinstance(failed, Failed)
    assert failed.failure.code == "context_too_long"
    assert "10000000" in failed.failure.message


def test_one_at_a_time_serves_the_same(make: Any) -> None:
    answers: list[list[int]] = []
    for can_batch in (True, False):
        engine, _, items = make(can_batch=can_batch)
        for name in ("a", "b"):
            request = GenerationRequest(
                id=RequestId(name), model=ModelId("m"), prompt=f"say {name}", tokens_max=12,
                sampling=Sampling(seed=3, presence_penalty=0.2), top_logprobs=1,
            )  # fmt: skip
            engine.submit(request)
        run(engine)
        answers.append(
            [t for n in "ab" for i in items[n] if isinstance(i, Delta) for t in i.tokens]
        )
        assert all(isinstance(items[n][-1], Finished) for n in "ab")
    assert answers[0] == answers[1]


def test_the_pace_follows_the_speed() -> None:
    pace = PrefillPace()
    assert pace.chunk(prompts=1, is_decoding=True) == Chunk(prompts=1, tokens_each=64)
    for _ in range(8):
        pace.observe(64, 6.4)
    assert pace.chunk(prompts=9, is_decoding=True) == Chunk(prompts=1, tokens_each=8)
    assert pace.chunk(prompts=9, is_decoding=False) == Chunk(prompts=1, tokens_each=16)
    for _ in range(12):
        pace.observe(512, 0.1)
    assert pace.chunk(prompts=1, is_decoding=False) == Chunk(prompts=1, tokens_each=2048)
    assert pace.chunk(prompts=9, is_decoding=False) == Chunk(prompts=4, tokens_each=512)


def test_the_deadline_follows_the_steps() -> None:
    deadline = StepDeadline(10.0)
    assert deadline.seconds(1) == 120.0
    for _ in range(5):
        deadline.observe(1, 0.1)
    assert deadline.seconds(1) == 10.0
    assert deadline.seconds(64) == 120.0
    for _ in range(64):
        deadline.observe(1, 2.0)
        deadline.observe(64, 6.4)
    assert deadline.seconds(1) == 40.0
    assert deadline.seconds(100) == pytest.approx(200.0)
