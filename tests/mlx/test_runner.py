"""One runner child: its life, its protocol, and requests that must not hurt one another."""

import json
import signal
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from node.model.errors import Failure
from node.model.ids import ModelId, RequestId
from node.model.instance import RunnerPhase
from node.model.request import (
    Delta,
    FinishReason,
    GenerationRequest,
    Message,
    Prefilled,
    Queued,
    Sampling,
)
from node.runner.claim import proof
from node.runner.frames import FrameBuffer, encode_frame
from node.runner.protocol import (
    Beat,
    Challenge,
    Claim,
    Generate,
    Item,
    PhaseChanged,
    Prepare,
    RunnerMessage,
    Shutdown,
)
from tests.mlx.runner_process import GREEDY, SECRET, RunnerProcess, chat, preparation, stages
from tests.mlx.tiny_model import LAYERS, write_tiny_model

WARM = Sampling(temperature=1.0, seed=7)


def raw(request: str, prompt: str, **options: Any) -> Generate:
    options.setdefault("sampling", GREEDY)
    return Generate(
        request=GenerationRequest(
            id=RequestId(request), model=ModelId("m"), prompt=prompt, **options
        )
    )


def test_it_introduces_itself_at_once_and_tells_every_phase(short_path: Path, tiny: Path) -> None:
    child = RunnerProcess(short_path, 1)
    try:
        hello = child.introduced()
        assert (hello.runner, hello.process_id) == (child.runner, child.process.pid)
        assert hello.phase is RunnerPhase.STARTING
        assert stat.S_IMODE(child.path.stat().st_mode) == 0o600
        child.send(preparation(tiny, (0, LAYERS), 0))
        child.phase(RunnerPhase.READY)
        phases = [m.phase for m in child.seen if isinstance(m, PhaseChanged)]
        assert phases == [RunnerPhase.LOADING, RunnerPhase.WARMING_UP, RunnerPhase.READY]
        # Where the io thread comes late, a beat takes the place of the one before.
        loaded = [m.progress.layers_loaded for m in child.seen if isinstance(m, Beat)]
        assert loaded == sorted(loaded)
        assert loaded[-1] == LAYERS
    finally:
        child.end()


def test_shutdown_ends_it_quickly_and_leaves_no_socket(short_path: Path, tiny: Path) -> None:
    with stages(short_path, tiny, (0, LAYERS)) as (child,):
        child.generate("q1", "go on", tokens_max=400)
        child.wait_for(lambda m: isinstance(m, Item) and isinstance(m.item, Delta))
        began = time.monotonic()
        child.send(Shutdown())
        failed = child.collect("q1")["q1"].failed
        assert failed.failure.code == "runner_stopped"
        assert child.process.wait(5) == 0
        assert time.monotonic() - began <= 1.0
        assert not child.path.exists()


def test_sigterm_ends_it_and_ctrl_c_does_not(short_path: Path) -> None:
    child = RunnerProcess(short_path, 1)
    try:
        child.introduced()
        child.process.send_signal(signal.SIGINT)
        child.beat(lambda _: True)
        began = time.monotonic()
        child.process.send_signal(signal.SIGTERM)
        assert child.process.wait(5) == 0
        assert time.monotonic() - began <= 1.0
    finally:
        child.end()


def test_without_a_node_it_ends_by_itself(short_path: Path) -> None:
    child = RunnerProcess(short_path, 1, "--orphan-seconds", "0.5")
    try:
        child.introduced()
        child.socket.close()
        assert child.process.wait(10) == 0
        assert "no node" in child.text()
    finally:
        child.end()


def test_a_node_that_comes_back_finds_it_ready_and_its_requests_gone(
    short_path: Path, tiny: Path
) -> None:
    with stages(short_path, tiny, (0, LAYERS), context_tokens=512) as (child,):
        child.generate("q1", "go on", tokens_max=400)
        child.wait_for(lambda m: isinstance(m, Item) and isinstance(m.item, Delta))
        child.socket.close()
        child.connect()
        assert child.introduced().phase is RunnerPhase.READY
        child.beat(lambda beat: beat.progress.requests_running == 0)
        assert child.ask("q2", "hello", tokens_max=3).finished.usage.output_tokens == 3


def test_a_second_connection_takes_the_place_of_the_first(runner: RunnerProcess) -> None:
    earlier = runner.socket.dup()
    runner.connect()
    assert runner.introduced().phase is RunnerPhase.READY
    earlier.settimeout(5)
    while earlier.recv(1 << 16):
        pass
    earlier.close()


@pytest.mark.parametrize("what", ["wrong secret", "earlier life", "no claim", "nonsense", "flood"])
def test_a_caller_that_is_not_its_node_takes_nothing_from_it(
    runner: RunnerProcess, what: str
) -> None:
    runner.generate("q1", "go on", tokens_max=40)
    callers: list[socket.socket] = []
    said = b""
    for _ in range(20 if what == "flood" else 1):
        caller = socket.socket(socket.AF_UNIX)
        callers.append(caller)
        caller.settimeout(5)
        caller.connect(str(runner.path))
        said = caller.recv(4096)
    (challenge,) = FrameBuffer[RunnerMessage](RunnerMessage).feed(said)  # type: ignore[arg-type]
    assert isinstance(challenge, Challenge)
    life = 0 if what == "earlier life" else 99
    secret = bytes(32) if what == "wrong secret" else SECRET
    shown = proof("node", secret, runner.runner, challenge.nonce, life)
    claim = Claim(incarnation=life, nonce=bytes(16), proof=shown)
    if what == "nonsense":
        callers[0].sendall(b"x" * 100_000)
    elif what != "flood":
        callers[0].sendall(encode_frame(Shutdown() if what == "no claim" else claim))
    if what != "flood":
        with suppress(ConnectionResetError):
            assert callers[0].recv(4096) == b"", "it is turned away without a word"
    assert runner.collect("q1")["q1"].finished.usage.output_tokens == 40
    for each in callers:
        each.close()


@pytest.mark.parametrize("nonsense", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x03abc", b"GET / HTTP"])
def test_nonsense_on_its_socket_ends_the_connection_alone(
    runner: RunnerProcess, nonsense: bytes
) -> None:
    runner.socket.sendall(nonsense)
    runner.socket.settimeout(5)
    try:
        while runner.socket.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    runner.connect()
    assert runner.ask("q", "still there?", tokens_max=2).finished.usage.output_tokens == 2


def test_an_answer_is_streamed_with_progress_and_usage(runner: RunnerProcess) -> None:
    answer = runner.ask("q", "x" * 100, tokens_max=5)
    assert isinstance(answer.items[0], Prefilled)
    progress = [(i.done, i.total) for i in answer.items if isinstance(i, Prefilled)]
    assert progress == sorted(progress)
    assert len(answer.tokens) == 5
    usage = answer.finished.usage
    assert answer.finished.reason is FinishReason.LENGTH
    assert (usage.prompt_tokens, usage.output_tokens) == (103, 5)
    assert usage.prefill_seconds > 0


def test_an_idle_runner_says_that_it_makes_no_tokens(runner: RunnerProcess) -> None:
    runner.ask("idle", "hello", tokens_max=4)
    beat = runner.now()
    assert not beat.busy
    assert beat.progress.tokens_per_second == 0.0
    assert beat.progress.requests_running == 0


def test_a_known_beginning_is_not_computed_again(runner: RunnerProcess) -> None:
    first = runner.ask("q1", "the same long beginning, then one", tokens_max=4)
    exact = runner.ask("q2", "the same long beginning, then one", tokens_max=4)
    other = runner.ask("q3", "the same long beginning, then two", tokens_max=4)
    assert exact.tokens == first.tokens
    assert exact.finished.usage.cached_tokens == exact.finished.usage.prompt_tokens - 1
    assert 20 < other.finished.usage.cached_tokens < other.finished.usage.prompt_tokens


def test_a_prompt_that_continues_an_answer_exactly_is_no_end_of_all(runner: RunnerProcess) -> None:
    """The exact hit in the prompt cache that ends mlx-lm's own server."""
    runner.send(raw("q1", "abc", tokens_max=2))
    first = runner.collect("q1")["q1"]
    runner.send(raw("q2", "abc" + first.text, tokens_max=2))
    assert runner.collect("q2")["q2"].is_over
    assert runner.ask("q3", "alive", tokens_max=1).finished


def test_requests_join_and_leave_a_batch_without_touching_others(runner: RunnerProcess) -> None:
    alone = {name: runner.ask(name, name, tokens_max=24).tokens for name in ("one", "two", "three")}
    runner.generate("a", "one", tokens_max=24)
    runner.generate("c", "cancel me", tokens_max=200)
    runner.wait_for(lambda m: isinstance(m, Item) and isinstance(m.item, Delta))
    runner.generate("b", "two", tokens_max=24)
    runner.cancel("c")
    runner.generate("d", "three", tokens_max=24)
    answers = runner.collect("a", "b", "d")
    assert answers["b"].tokens == alone["two"]
    assert answers["d"].tokens == alone["three"]
    together = [m.item for m in runner.seen if isinstance(m, Item) and m.request == RequestId("a")]
    tokens = [t for item in together if isinstance(item, Delta) for t in item.tokens]
    assert tokens == alone["one"]


def test_a_seed_draws_the_same_text_in_any_company(runner: RunnerProcess) -> None:
    alone = runner.ask("q1", "dice", tokens_max=24, sampling=WARM).tokens
    for number in range(3):
        runner.generate(f"n{number}", f"noise {number}", tokens_max=30, sampling=WARM)
    runner.generate("q2", "dice", tokens_max=24, sampling=WARM)
    answers = runner.collect("q2", "n0", "n1", "n2")
    assert answers["q2"].tokens == alone
    unseeded = Sampling(temperature=1.0)
    drawn = {
        tuple(runner.ask(f"u{n}", "dice", tokens_max=12, sampling=unseeded).tokens)
        for n in range(3)
    }
    assert len(drawn) == 3


def test_every_way_of_sampling_works_and_probabilities_are_told(runner: RunnerProcess) -> None:
    sampling = Sampling(
        temperature=0.7, top_p=0.9, top_k=20, min_p=0.05, seed=-1, presence_penalty=0.5,
        frequency_penalty=0.5, repetition_penalty=1.1, logit_bias={65: 2.0},
    )  # fmt: skip
    answer = runner.ask("q", "hello", tokens_max=6, sampling=sampling, top_logprobs=3)
    assert len(answer.tokens) >= 1
    for delta in answer.deltas:
        assert len(delta.logprobs) == len(delta.tokens)
        for logprob in delta.logprobs:
            assert logprob.logprob <= 0
            assert len(logprob.top) == 3
            assert [value for _, value in logprob.top] == sorted(
                (value for _, value in logprob.top), reverse=True
            )
    forced = runner.ask("f", "hello", tokens_max=4, sampling=Sampling(logit_bias={65: 500.0}))
    assert forced.tokens == [65] * 4


def test_a_full_queue_refuses_and_positions_are_told(runner: RunnerProcess) -> None:
    for number in range(8):
        runner.generate(f"q{number}", "long " * 5, tokens_max=200)
    runner.generate("too-many", "x", tokens_max=1)
    refused = runner.collect("too-many")["too-many"].failed
    assert (refused.kind, refused.failure.code) == ("BusyError", "queue_full")
    for number in range(8):
        runner.cancel(f"q{number}")
    answers = {
        number: [m.item for m in runner.seen if isinstance(m, Item) and m.request == f"q{number}"]
        for number in range(8)
    }
    waiting = [n for n, items in answers.items() if any(isinstance(i, Queued) for i in items)]
    assert waiting
    assert runner.ask("after", "x", tokens_max=1).finished


@pytest.mark.parametrize("when", ["queued", "decoding"])
def test_a_cancelled_request_frees_its_place_at_once(runner: RunnerProcess, when: str) -> None:
    busy = 5 if when == "queued" else 1
    for number in range(busy):
        runner.generate(f"q{number}", "x", tokens_max=200)
    target = f"q{busy - 1}"
    if when == "queued":
        runner.wait_for(lambda m: isinstance(m, Item) and isinstance(m.item, Queued))
    else:
        runner.wait_for(lambda m: isinstance(m, Item) and isinstance(m.item, Delta))
    runner.cancel(target)
    last = runner.collect(target)[target].finished
    assert last.reason is FinishReason.CANCELLED
    for number in range(busy - 1):
        runner.cancel(f"q{number}")
    runner.beat(lambda beat: beat.progress.requests_running == 0)


FAULTS: dict[str, tuple[GenerationRequest, str, str]] = {
    "too long": (chat("q", "x" * 400), "UsageError", "context_too_long"),
    "odd role": (
        GenerationRequest(
            id=RequestId("q"), model=ModelId("m"), messages=(Message(role="wizard", content="x"),)
        ),
        "UsageError",
        "bad_prompt",
    ),
    "nothing": (
        GenerationRequest(id=RequestId("q"), model=ModelId("m")), "UsageError", "empty_prompt",
    ),
    "no prompt": (
        GenerationRequest(id=RequestId("q"), model=ModelId("m"), prompt=""),
        "UsageError", "empty_prompt",
    ),
    "bad bias": (
        chat("q", "x", sampling=Sampling(logit_bias={99999: 1.0})), "UsageError", "bad_sampling",
    ),
    "bad top_p": (chat("q", "x", sampling=Sampling(top_p=7.0)), "UsageError", "bad_sampling"),
    "not a number": (
        chat("q", "x", sampling=Sampling(temperature=float("nan"))), "UsageError", "bad_sampling",
    ),
    "unknown tool": (
        chat("q", "x", tool_choice={"function": {"name": "none"}}), "UsageError", "bad_tool_choice",
    ),
    "tool arguments": (
        GenerationRequest(
            id=RequestId("q"),
            model=ModelId("m"),
            messages=(
                Message(role="assistant", tool_calls=({"function": {"arguments": "{not json"}},)),
            ),
        ),
        "UsageError",
        "bad_tool_call",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_request_hurts_only_itself(runner: RunnerProcess, fault: str) -> None:
    request, kind, code = FAULTS[fault]
    expected = runner.ask("before", "good", tokens_max=16).tokens
    runner.generate("good", "good", tokens_max=16)
    runner.send(Generate(request=request))
    answers = runner.collect("good", "q")
    failed = answers["q"].failed
    assert (failed.kind, failed.failure.code) == (kind, code)
    assert answers["good"].tokens == expected


def test_the_context_bound_says_both_numbers(runner: RunnerProcess) -> None:
    failure = runner.ask("q", "x" * 400).failed.failure
    assert "403" in failure.message
    assert "256" in failure.message
    to_the_end = runner.ask("q", "x" * 243).finished
    assert to_the_end.usage.prompt_tokens + to_the_end.usage.output_tokens <= 256


def test_a_template_that_never_ends_is_seen_as_work_without_a_step(short_path: Path) -> None:
    model = write_tiny_model(short_path / "model")
    settings = json.loads((model / "tokenizer_config.json").read_text())
    settings["chat_template"] = (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    )
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    with stages(short_path / "r", model, (0, LAYERS)) as children:
        steps = children[0].now().progress.steps
        children[0].generate("q", "go on", tokens_max=5)
        beat = children[0].beat(lambda beat: beat.busy)
        assert beat.progress.steps == steps
        children[0].send(Shutdown())
        assert children[0].process.wait(5) == 0


def test_work_before_it_is_ready_is_refused(short_path: Path) -> None:
    child = RunnerProcess(short_path, 1)
    try:
        child.generate("q", "x")
        assert child.collect("q")["q"].failed.failure.code == "runner_not_ready"
    finally:
        child.end()


def test_what_can_not_be_loaded_is_named_and_ends_it(short_path: Path) -> None:
    model = write_tiny_model(short_path / "model")
    (model / "config.json").write_text('{"model_type": "llama", "model_file": "x.py"}')
    failure = failure_of_start(short_path, preparation(model, (0, LAYERS), 0))
    assert failure.code == "remote_code_refused"


def test_a_model_placed_with_other_layers_is_refused(short_path: Path, tiny: Path) -> None:
    failure = failure_of_start(short_path, preparation(tiny, (0, LAYERS + 3), 0))
    assert failure.code == "bad_config"
    assert f"{LAYERS} layers" in failure.message


def failure_of_start(directory: Path, prepare: Prepare) -> Failure:
    child = RunnerProcess(directory, 1)
    try:
        child.send(prepare)
        failure = child.phase(RunnerPhase.FAILED).failure
        assert child.process.wait(5) == 1
    finally:
        child.end()
    assert failure is not None
    return failure
