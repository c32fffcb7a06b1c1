"""Answers: streamed to stdout, figures and progress on stderr, faults with their exit codes."""

import io
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from node.model.command import PlaceInstance
from node.model.errors import BusyError, Failure, NoFitError
from node.model.ids import InstanceId
from node.model.instance import RunnerPhase
from node.model.request import (
    Delta,
    Failed,
    Finished,
    FinishReason,
    Message,
    Prefilled,
    Queued,
    Usage,
)
from tests.fakes.command_line import CommandLine
from tests.fakes.fake_handle import (
    INSTANCE,
    MODEL,
    FakeHandle,
    make_state,
)
from tests.fakes.surroundings import pretend_terminal
from tui.commands.chat import HELP

USAGE = Usage(prompt_tokens=5, output_tokens=2, cached_tokens=3, prefill_seconds=0.1)


def type_lines(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_run_streams_the_text_and_only_the_text_to_stdout(
    line: CommandLine, handle: FakeHandle
) -> None:
    outcome = line("run", "smollm2", "What", "is", "this?")
    assert (outcome.code, outcome.out, outcome.err) == (0, "Hello there\n", "")
    [request] = handle.generations
    assert request.model == MODEL
    assert request.messages == (Message(role="user", content="What is this?"),)
    assert request.sampling.seed is None


def test_run_passes_its_options_on(line: CommandLine, handle: FakeHandle) -> None:
    line(
        *("run", "smollm2", "Hi", "--system", "Be brief.", "--temperature", "0"),
        *("--max-tokens", "9", "--seed", "42"),
    )
    [request] = handle.generations
    assert request.messages[0] == Message(role="system", content="Be brief.")
    assert (request.sampling.temperature, request.sampling.seed) == (0.0, 42)
    assert request.tokens_max == 9


def test_run_reads_the_prompt_from_stdin(
    line: CommandLine, handle: FakeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_lines(monkeypatch, "first line\nsecond line\n")
    assert line("run", "smollm2").code == 0
    assert handle.generations[0].messages[0].content == "first line\nsecond line\n"


def test_run_without_any_prompt_is_a_usage_error(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_lines(monkeypatch, "  \n")
    outcome = line("run", "smollm2")
    assert outcome.code == 2
    assert "the prompt is empty" in outcome.err


def test_stats_and_progress_go_to_stderr(line: CommandLine, handle: FakeHandle) -> None:
    handle.script = [
        Queued(ahead=2),
        Prefilled(done=5, total=5),
        Delta(index=0, text="Hi"),
        Finished(reason=FinishReason.LENGTH, usage=USAGE),
    ]
    outcome = line("run", "smollm2", "x", "--stats")
    assert outcome.out == "Hi\n"
    assert "queued behind 2" in outcome.err
    assert "5 prompt tokens (3 cached), 2 output tokens" in outcome.err
    assert "tok/s" in outcome.err


def test_run_as_json_is_one_object_and_as_ndjson_a_record_for_each_piece(
    line: CommandLine,
) -> None:
    item = line("run", "smollm2", "x", "-o", "json").json["items"][0]
    assert (item["text"], item["reason"], item["model"]) == ("Hello there", "stop", MODEL)
    assert item["usage"]["prompt_tokens"] == 5
    records = line("run", "smollm2", "x", "-o", "ndjson").records
    assert [record["type"] for record in records] == ["delta", "delta", "answer"]
    assert records[1]["text"] == " there"


def test_run_loads_a_model_that_is_not_loaded(line: CommandLine, handle: FakeHandle) -> None:
    handle.state = make_state(RunnerPhase.FAILED)

    async def becomes_ready(instance: InstanceId, timeout_seconds: float) -> None:
        assert instance == INSTANCE
        handle.state = make_state()

    handle.wait_instance = becomes_ready
    assert line("run", "smollm2", "x").out == "Hello there\n"
    assert [type(command) for command in handle.commands] == [PlaceInstance]


def test_run_waits_for_an_instance_that_is_already_starting(
    line: CommandLine, handle: FakeHandle
) -> None:
    handle.state = make_state(RunnerPhase.LOADING)

    async def becomes_ready(instance: InstanceId, timeout_seconds: float) -> None:
        assert instance == INSTANCE
        handle.state = make_state()

    handle.wait_instance = becomes_ready
    assert line("run", "smollm2", "x").code == 0
    assert handle.commands == []


def test_an_answer_that_somebody_cancelled_is_code_1(line: CommandLine, handle: FakeHandle) -> None:
    handle.script = [
        Delta(index=0, text="Hal"),
        Finished(reason=FinishReason.CANCELLED, usage=USAGE),
    ]
    outcome = line("run", "smollm2", "x")
    assert (outcome.code, outcome.out) == (1, "Hal\n")
    assert "was cancelled" in outcome.err


def test_a_failed_generation_exits_as_its_kind(line: CommandLine, handle: FakeHandle) -> None:
    failure = Failure(code="queue_full", message="64 requests wait", remedy="try again later")
    handle.script = [Delta(index=0, text="Hal"), Failed(kind="BusyError", failure=failure)]
    outcome = line("run", "smollm2", "x")
    assert outcome.code == BusyError.exit_code
    assert outcome.out == "Hal"
    assert "64 requests wait" in outcome.err


def test_a_refusal_before_the_first_token_exits_as_its_kind(
    line: CommandLine, handle: FakeHandle
) -> None:
    handle.failing["generate"] = NoFitError.because("no_fit", "too long: 9000 of 8192 tokens")
    assert line("run", "smollm2", "x").code == 6


def test_a_stream_without_an_end_is_our_mistake(line: CommandLine, handle: FakeHandle) -> None:
    handle.script = [Delta(index=0, text="Hal")]
    outcome = line("run", "smollm2", "x")
    assert outcome.code == 1
    assert "ended without a last item" in outcome.err


def test_what_a_model_says_can_not_drive_the_terminal_but_a_pipe_gets_it_raw(
    line: CommandLine, handle: FakeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle.script = [
        Delta(index=0, text="a\x1b[2Jb\tc\nd"),
        Finished(reason=FinishReason.STOP, usage=USAGE),
    ]
    assert line("run", "smollm2", "x").out == "a\x1b[2Jb\tc\nd\n"
    pretend_terminal(monkeypatch)
    assert line("run", "smollm2", "x").out == "a\N{REPLACEMENT CHARACTER}[2Jb\tc\nd\n"


def test_chat_keeps_the_conversation(
    line: CommandLine, handle: FakeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_lines(monkeypatch, "one\n\ntwo\n/clear\nthree\n/bye\nnever\n")
    outcome = line("chat", "smollm2", "--system", "Be brief.")
    assert outcome.code == 0
    assert outcome.out == "Hello there\n" * 3
    asked = [[m.content for m in request.messages] for request in handle.generations]
    assert asked == [
        ["Be brief.", "one"],
        ["Be brief.", "one", "Hello there", "two"],
        ["Be brief.", "three"],
    ]


def test_chat_takes_the_loaded_model_and_obeys_its_commands(
    line: CommandLine, handle: FakeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_lines(monkeypatch, "/help\n/system You are loud.\n/stats\nhi\n/what\n/system\n")
    outcome = line("chat")
    assert outcome.code == 0
    assert handle.generations[0].model == MODEL
    assert handle.generations[0].messages[0].content == "You are loud."
    assert "/clear" in outcome.err
    assert "5 prompt tokens" in outcome.err
    assert "no command is called /what" in outcome.err
    assert "instructions: You are loud." in outcome.err


def test_a_failed_turn_is_told_and_forgotten_and_the_chat_goes_on(
    line: CommandLine, handle: FakeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_lines(monkeypatch, "one\n/clear\ntwo\n")
    failure = Failure(code="too_long", message="9000 of 8192 tokens", remedy="/clear")
    handle.script = [Failed(kind="UsageError", failure=failure)]
    outcome = line("chat")
    assert outcome.code == 0
    assert outcome.err.count("error: 9000 of 8192 tokens") == 2
    assert [len(request.messages) for request in handle.generations] == [1, 1]


def test_ctrl_c_stops_the_answer_and_keeps_what_was_said(
    line: CommandLine, handle: FakeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_lines(monkeypatch, "one\ntwo\n")
    handle.script = [
        Delta(index=0, text="Half"),
        60.0,
        Finished(reason=FinishReason.STOP, usage=USAGE),
    ]

    def press_ctrl_c() -> None:
        while not handle.running:
            time.sleep(0.01)
        handle.script = [
            Delta(index=0, text="Whole"),
            Finished(reason=FinishReason.STOP, usage=USAGE),
        ]
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press_ctrl_c)
    presser.start()
    outcome = line("chat", "smollm2")
    presser.join()
    assert outcome.code == 0
    assert "stopped" in outcome.err
    assert "Whole" in outcome.out
    assert handle.closed[0] == handle.generations[0].id
    assert len(handle.generations[1].messages) == 3


def test_chat_has_no_json(line: CommandLine) -> None:
    assert line("chat", "-o", "json").code == 2


def test_chat_without_any_model_says_where_to_look(line: CommandLine, handle: FakeHandle) -> None:
    handle.state = make_state()
    handle.state.instances.clear()
    outcome = line("chat")
    assert outcome.code == 3
    assert "exoctl model ls" in outcome.err


def test_run_sends_the_schema_of_a_file(
    line: CommandLine, handle: FakeHandle, tmp_path: Path
) -> None:
    file = tmp_path / "cat.json"
    file.write_text('{"type": "object", "required": ["name"]}')
    assert line("run", MODEL, "a cat", "--json-schema", str(file)).code == 0
    assert handle.generations[-1].answer_schema == file.read_text()
    assert line("run", MODEL, "a cat", "--json-schema", "-").code == 0
    assert handle.generations[-1].answer_schema == '{"type": "object"}'
    for text in ("[1]", "{"):
        file.write_text(text)
        ran = line("run", MODEL, "a cat", "--json-schema", str(file))
        assert (ran.code, "bad_schema" in ran.err or "JSON" in ran.err) == (2, True)
    missing = line("run", MODEL, "a cat", "--json-schema", str(tmp_path / "none.json"))
    assert missing.code == 2
    assert f"{tmp_path / 'none.json'}: No such file or directory\n" in missing.err


def test_the_help_of_a_chat_fits_a_terminal_of_eighty_columns() -> None:
    assert max(len(line) for line in HELP.split("\n")) < 80
