"""Stages as real processes: the same tokens as unsplit, and an end for all when one is lost."""

import contextlib
import json
import signal
import socket
import time
from collections.abc import Generator
from pathlib import Path

import mlx.core as mx
import psutil
import pytest

from node.model.instance import RunnerPhase, StageAddress, WeightFormat
from node.model.request import Delta, FinishReason
from node.runner.protocol import Connect, Item, PhaseChanged, Shutdown
from node.runner.shard_loader import layer_of
from node.runner.stage_ring import GREETING_SECONDS
from tests.mlx.runner_process import RunnerProcess, link, preparation, stages
from tests.mlx.tiny_model import LAYERS, write_tiny_model

THREE = (0, 1, 3, LAYERS)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "packed", bits=8)


@pytest.fixture(scope="module")
def pipeline(
    packed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Generator[list[RunnerProcess]]:
    with stages(
        tmp_path_factory.mktemp("r"), packed, THREE, context_tokens=400, encrypt=True
    ) as children:
        yield children


@pytest.fixture(scope="module")
def whole(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[RunnerProcess]:
    with stages(tmp_path_factory.mktemp("r"), packed, (0, LAYERS), context_tokens=400) as children:
        yield children[0]


def test_three_encrypted_stages_answer_as_the_whole_model(
    pipeline: list[RunnerProcess], whole: RunnerProcess
) -> None:
    prompts = {"a": "one", "b": "two " * 30, "c": "three"}
    expected = {name: whole.ask(name, text, tokens_max=20).tokens for name, text in prompts.items()}
    first = pipeline[0]
    first.generate("a", prompts["a"], tokens_max=20)
    first.generate("x", "cancelled on the way", tokens_max=300)
    first.wait_for(lambda m: isinstance(m, Item) and isinstance(m.item, Delta))
    first.generate("b", prompts["b"], tokens_max=20)
    first.cancel("x")
    first.generate("c", prompts["c"], tokens_max=20)
    first.collect("b", "c")
    for name, tokens in expected.items():
        items = [m.item for m in first.seen if isinstance(m, Item) and m.request == name]
        assert [t for item in items if isinstance(item, Delta) for t in item.tokens] == tokens
    again = first.ask("again", prompts["b"], tokens_max=20)
    assert again.tokens == expected["b"]
    assert again.finished.usage.cached_tokens > 100


def test_dense_weights_answer_alike_and_take_their_memory(
    packed: Path, short_path: Path, whole: RunnerProcess
) -> None:
    expected = whole.ask("a", "one", tokens_max=12).tokens
    with stages(short_path, packed, (0, 2, LAYERS), weight_format=WeightFormat.DENSE) as children:
        assert children[0].ask("a", "one", tokens_max=12).tokens == expected


def test_stages_forget_caches_that_rank_0_let_go(pipeline: list[RunnerProcess]) -> None:
    """The store of a worker would grow for ever if frees were lost."""
    first, *workers = pipeline
    held: list[list[int]] = []
    for turn in range(2):
        for number in range(70):
            first.ask(f"q{turn}-{number}", f"{turn} {number} another", tokens_max=1)
        held.append([worker.now().progress.cache_bytes for worker in workers])
    assert all(0 < after <= before * 1.1 for before, after in zip(*held, strict=True))


def test_idle_stages_use_no_processor(pipeline: list[RunnerProcess]) -> None:
    processes = [psutil.Process(child.process.pid) for child in pipeline]
    before = [sum(process.cpu_times()[:2]) for process in processes]
    began = time.monotonic()
    for _ in range(2):
        pipeline[0].beat(lambda _: True)
    seconds = time.monotonic() - began
    used = [sum(p.cpu_times()[:2]) - b for p, b in zip(processes, before, strict=True)]
    assert all(cpu <= 0.01 * seconds + 0.01 for cpu in used), (used, seconds)


@pytest.mark.parametrize(("when", "victim"), [("idle", 1), ("decoding", 0), ("decoding", 2)])
def test_a_killed_stage_ends_the_others_at_once(
    short_path: Path, tiny: Path, victim: int, when: str
) -> None:
    with stages(short_path, tiny, THREE, context_tokens=512) as children:
        if when == "decoding":
            children[0].generate("q", "go on", tokens_max=500)
            children[0].wait_for(lambda m: isinstance(m, Item) and isinstance(m.item, Delta))
        children[victim].process.kill()
        began = time.monotonic()
        for rank, child in enumerate(children):
            if rank != victim:
                failure = child.phase(RunnerPhase.FAILED, seconds=5).failure
                assert failure is not None
                assert failure.code == "stage_lost"
                assert child.process.wait(5) == 1
        assert time.monotonic() - began < 5
        if when == "decoding" and victim != 0:
            items = [m.item for m in children[0].seen if isinstance(m, Item)]
            assert type(items[-1]).__name__ == "Failed"


def test_a_frozen_stage_is_given_up_after_its_deadline(short_path: Path, tiny: Path) -> None:
    with stages(short_path, tiny, (0, 2, LAYERS), options=("--stage-seconds", "1.5")) as children:
        children[0].generate("q", "go on", tokens_max=500)
        children[0].wait_for(lambda m: isinstance(m, Item) and isinstance(m.item, Delta))
        children[1].process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        failure = children[0].phase(RunnerPhase.FAILED, seconds=10).failure
        assert failure is not None
        assert failure.code == "stage_lost"
        assert "stage 1" in failure.message
        assert 1.0 < time.monotonic() - began < 6.0


def test_the_end_of_rank_0_ends_the_others_without_a_failure(short_path: Path, tiny: Path) -> None:
    with stages(short_path, tiny, THREE) as children:
        children[0].send(Shutdown())
        for child in children[1:]:
            child.phase(RunnerPhase.STOPPED, seconds=5)
        assert [child.process.wait(5) for child in children] == [0, 0, 0]


def test_the_end_of_another_stage_ends_rank_0_without_a_failure(
    short_path: Path, tiny: Path
) -> None:
    """Whether it was to be so is for its node to say, which knows what else is stopped."""
    with stages(short_path, tiny, (0, 2, LAYERS)) as children:
        children[1].send(Shutdown())
        children[0].phase(RunnerPhase.STOPPED, seconds=5)
        assert [child.process.wait(5) for child in children] == [0, 0]


def test_a_stop_while_a_stage_is_frozen_is_no_failure(short_path: Path, tiny: Path) -> None:
    with stages(short_path, tiny, (0, 2, LAYERS), context_tokens=512) as children:
        children[0].generate("q", "go on", tokens_max=500)
        children[0].wait_for(lambda m: isinstance(m, Item) and isinstance(m.item, Delta))
        children[1].process.send_signal(signal.SIGSTOP)
        children[0].now()  # by then it waits for the other
        children[0].send(Shutdown())
        assert children[0].collect("q")["q"].failed.failure.code == "runner_stopped"
        children[0].phase(RunnerPhase.STOPPED, seconds=5)
        assert children[0].process.wait(5) == 0


def test_stages_stopped_one_after_the_other_in_an_answer_all_end_well(
    short_path: Path, tiny: Path
) -> None:
    with stages(short_path, tiny, THREE, context_tokens=512) as children:
        children[0].generate("q", "go on", tokens_max=500)
        children[0].wait_for(lambda m: isinstance(m, Item) and isinstance(m.item, Delta))
        children[1].send(Shutdown())
        children[1].phase(RunnerPhase.STOPPED, seconds=5)
        with contextlib.suppress(
            BrokenPipeError
        ):  # its neighbour's goodbye may have ended it already
            children[0].send(Shutdown())
        assert children[0].collect("q")["q"].failed.failure.code == "runner_stopped"
        for child in (children[0], children[2]):
            child.phase(RunnerPhase.STOPPED, seconds=5)
        assert [child.process.wait(5) for child in children] == [0, 0, 0]


def split_files(model: Path) -> Path:
    """Every layer in a file of its own, as large models come."""
    arrays = mx.load(str(model / "model.safetensors"))
    assert isinstance(arrays, dict)
    parts: dict[str, dict[str, mx.array]] = {}
    for name, array in arrays.items():
        layer = layer_of(name)
        part = f"model-{'rest' if layer is None else layer}.safetensors"
        parts.setdefault(part, {})[name] = array
    for part, held in parts.items():
        mx.save_safetensors(str(model / part), held)
    (model / "model.safetensors").unlink()
    index = {name: part for part, held in parts.items() for name in held}
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return model


def test_a_stage_needs_only_the_files_of_its_own_layers(
    tiny: Path, short_path: Path, tmp_path: Path
) -> None:
    models = [split_files(write_tiny_model(tmp_path / f"model{rank}")) for rank in range(2)]
    for layer in (2, 3):
        (models[0] / f"model-{layer}.safetensors").unlink()
    for part in ("0", "1", "rest"):
        (models[1] / f"model-{part}.safetensors").unlink()
    children = [RunnerProcess(short_path, rank) for rank in range(2)]
    try:
        for rank, child in enumerate(children):
            child.send(preparation(models[rank], (0, 2, LAYERS), rank))
        link(children)
        for child in children:
            child.phase(RunnerPhase.READY)
        apart = children[0].ask("q", "hello", tokens_max=10).tokens
    finally:
        for child in children:
            child.end()
    whole_directory = short_path / "whole"
    with stages(whole_directory, tiny, (0, LAYERS)) as (whole,):
        assert whole.ask("q", "hello", tokens_max=10).tokens == apart


def test_a_stage_without_a_file_of_its_own_layers_names_it(
    short_path: Path, tmp_path: Path
) -> None:
    model = split_files(write_tiny_model(tmp_path / "model"))
    (model / "model-2.safetensors").unlink()
    child = RunnerProcess(short_path, 0)
    try:
        child.send(preparation(model, (0, LAYERS), 0))
        failure = child.phase(RunnerPhase.FAILED).failure
        assert failure is not None
        assert failure.code == "model_file_missing"
        assert "model-2.safetensors" in failure.message
    finally:
        child.end()


def test_only_rank_0_takes_requests(pipeline: list[RunnerProcess]) -> None:
    failed = pipeline[1].ask("q", "hello").failed
    assert failed.failure.code == "not_rank_zero"


def started(directory: Path, tiny: Path, attempts: tuple[int, int]) -> list[RunnerProcess]:
    children = [RunnerProcess(directory, rank) for rank in range(2)]
    for rank, child in enumerate(children):
        child.send(preparation(tiny, (0, 2, LAYERS), rank, attempt=attempts[rank]))
    return children


def test_stages_of_different_attempts_do_not_meet(short_path: Path, tiny: Path) -> None:
    children = started(short_path, tiny, (1, 2))
    try:
        link(children)
        failures = [child.phase(RunnerPhase.FAILED).failure for child in children]
        assert all(failure and failure.code == "stage_lost" for failure in failures)
    finally:
        for child in children:
            child.end()


def test_strangers_at_the_door_hurt_nobody(short_path: Path, tiny: Path) -> None:
    children = started(short_path, tiny, (1, 1))
    try:
        addresses = [child.listening() for child in children]
        strangers = [
            socket.create_connection((address.host, address.port))
            for address in addresses
            for _ in range(2)
        ]
        for number, stranger in enumerate(strangers):
            stranger.sendall([b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64][number % 2])
        for rank, child in enumerate(children):
            child.send(Connect(next_stage=addresses[1 - rank]))
        for child in children:
            child.phase(RunnerPhase.READY)
        assert children[0].ask("q", "hello", tokens_max=3).finished.reason is FinishReason.LENGTH
        for stranger in strangers:
            stranger.close()
    finally:
        for child in children:
            child.end()


@pytest.mark.parametrize("first", [0, 1])
def test_an_encrypted_neighbour_may_hear_of_the_others_much_later(
    short_path: Path, tiny: Path, first: int
) -> None:
    children = [RunnerProcess(short_path, rank) for rank in range(2)]
    try:
        for rank, child in enumerate(children):
            child.send(preparation(tiny, (0, 2, LAYERS), rank, encrypt=True))
        addresses = [child.listening() for child in children]
        with contextlib.ExitStack() as strangers:
            for address in addresses:
                for _ in range(3):
                    place = (address.host, address.port)
                    strangers.enter_context(socket.create_connection(place))
            for rank in (first, 1 - first):
                named = time.monotonic()
                children[rank].send(
                    Connect(
                        next_stage=addresses[1 - rank],
                        previous_certificate=addresses[1 - rank].certificate,
                    )
                )
                if rank == first:
                    # Longer than any handshake had before; nothing tells of it.
                    with pytest.raises(AssertionError, match="nothing came"):
                        children[rank].phase(RunnerPhase.LOADING, seconds=GREETING_SECONDS + 1.0)
            for child in children:
                child.phase(RunnerPhase.READY)
            assert time.monotonic() - named < GREETING_SECONDS - 1.0
    finally:
        for child in children:
            child.end()


def test_a_host_that_is_not_here_is_named(short_path: Path, tiny: Path) -> None:
    child = RunnerProcess(short_path, 0)
    try:
        child.send(preparation(tiny, (0, 2, LAYERS), 0, stage_host="203.0.113.7"))
        failure = child.phase(RunnerPhase.FAILED).failure
        assert failure is not None
        assert failure.code == "port_taken"
        assert "203.0.113.7" in failure.message
    finally:
        child.end()


def test_it_can_be_stopped_while_it_waits_for_its_neighbours(short_path: Path, tiny: Path) -> None:
    child = RunnerProcess(short_path, 0)
    try:
        child.send(preparation(tiny, (0, 2, LAYERS), 0))
        child.listening()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            child.send(Connect(next_stage=StageAddress("127.0.0.1", silent.getsockname()[1])))
            silent.accept()[0].close()
            began = time.monotonic()
            child.send(Shutdown())
            assert child.process.wait(5) == 0
            assert time.monotonic() - began <= 1.5
    finally:
        child.end()
    assert any(isinstance(m, PhaseChanged) for m in child.seen)
