"""Tensor parallel over real processes: the same answers, and no rank is waited for without end."""

import signal
import time
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from node.model.instance import RunnerPhase
from node.model.request import Delta, FinishReason, Sampling
from node.runner.protocol import Beat, Item, RunnerMessage, Shutdown
from tests.mlx.runner_process import Answer, RunnerProcess, stages
from tests.mlx.tiny_model import LAYERS

WHOLE = (0, LAYERS)
IDLE_SECONDS = 1.0
ENDLESS = Sampling(temperature=0.0, logit_bias={256: -100.0})
"""Never the token that ends an answer."""
BESIDE_BYTES = 272 * 64 * 4 + 256 * 16 * 2 * 4 * LAYERS
"""The embedding, and the first piece of a rank's caches: beats may tell of them already."""
PROMPTS = {
    "a": "the first of them is a good deal longer than the others are, by far",
    "b": "short",
    "c": "one of middling length",
}


@pytest.fixture(scope="module")
def ranks(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[list[RunnerProcess]]:
    """Two READY ranks of the tiny model, shared by the tests that end well."""
    with stages(tmp_path_factory.mktemp("r"), tiny, WHOLE, stages=2, tensor=True) as children:
        yield children


def ask_together(child: RunnerProcess) -> dict[str, Answer]:
    """Answers to all prompts at once, beside one that leaves while they are made."""
    child.generate("gone", "it is cancelled amid its answer", tokens_max=200)
    for name, prompt in PROMPTS.items():
        child.generate(name, prompt, tokens_max=24)
    child.cancel("gone")
    return child.collect(*PROMPTS, "gone")


def is_token(message: RunnerMessage) -> bool:
    """Whether an answer has begun."""
    return isinstance(message, Item) and isinstance(message.item, Delta)


def bytes_of_layers(child: RunnerProcess) -> int:
    """What it held when its last layer was loaded."""
    loaded = (message for message in child.seen if isinstance(message, Beat))
    return next(
        beat.progress.memory_bytes for beat in loaded if beat.progress.layers_loaded == LAYERS
    )


def test_ranks_answer_as_one_does_in_a_batch_that_others_join_and_leave(
    ranks: list[RunnerProcess], runner: RunnerProcess
) -> None:
    expected = {name: runner.ask(name, text, tokens_max=24) for name, text in PROMPTS.items()}
    computed, cached = ask_together(ranks[0]), ask_together(ranks[0])
    for found in (computed, cached):
        assert found["gone"].finished.reason is FinishReason.CANCELLED
        for name, answer in expected.items():
            assert found[name].tokens == answer.tokens
    assert cached["a"].finished.usage.cached_tokens > len(PROMPTS["a"])


def test_a_rank_holds_half_of_the_layers_and_an_idle_one_does_not_spin(
    ranks: list[RunnerProcess], runner: RunnerProcess
) -> None:
    held = [bytes_of_layers(child) for child in ranks]
    assert max(held) < 0.55 * bytes_of_layers(runner) + BESIDE_BYTES
    processes = [psutil.Process(child.process.pid) for child in ranks]
    before = [sum(process.cpu_times()[:2]) for process in processes]
    time.sleep(IDLE_SECONDS)
    after = [sum(process.cpu_times()[:2]) for process in processes]
    assert max(b - a for a, b in zip(before, after, strict=True)) <= 0.02 * IDLE_SECONDS


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_stopped_amid_an_answer_ends_the_other_without_a_failure(
    short_path: Path, tiny: Path, victim: int
) -> None:
    with stages(short_path, tiny, WHOLE, stages=2, tensor=True) as children:
        children[0].generate("q", "a long answer", tokens_max=900, sampling=ENDLESS)
        children[0].wait_for(is_token)
        children[victim].send(Shutdown())
        for child in (children[victim], children[1 - victim]):
            child.phase(RunnerPhase.STOPPED, seconds=5)
            assert child.process.wait(5) == 0


@pytest.mark.parametrize(
    ("number", "victim"), [(signal.SIGKILL, 0), (signal.SIGKILL, 1), (signal.SIGSTOP, 1)]
)
def test_a_rank_that_dies_or_freezes_ends_the_others_with_a_named_failure(
    short_path: Path, tiny: Path, number: signal.Signals, victim: int
) -> None:
    with stages(
        short_path, tiny, WHOLE, stages=2, tensor=True, options=("--stage-seconds", "1.5")
    ) as children:
        other = children[1 - victim]
        children[0].ask("before", "so that steps have been measured", tokens_max=8)
        children[0].generate("q", "a long answer", tokens_max=900, sampling=ENDLESS)
        children[0].wait_for(is_token)
        began = time.monotonic()
        children[victim].process.send_signal(number)
        changed = other.phase(RunnerPhase.FAILED, seconds=10)
        assert time.monotonic() - began < 5
        assert changed.failure is not None
        assert changed.failure.code == "stage_lost"
        assert other.process.wait(5) == 1
