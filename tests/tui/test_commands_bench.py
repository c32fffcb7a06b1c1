"""`exoctl bench`: clients at once, figures with where they come from, two runs compared."""

from pathlib import Path

import pytest

from node.model.errors import BusyError
from tests.fakes.command_line import CommandLine
from tests.fakes.fake_handle import MODEL, FakeHandle, make_script


@pytest.fixture
def handle() -> FakeHandle:
    handle = FakeHandle()
    handle.script = [0.01, *make_script("one two three")]
    return handle


def test_each_number_of_clients_asks_at_once(line: CommandLine, handle: FakeHandle) -> None:
    outcome = line("bench", MODEL, "--concurrency", "1,3", "--gen", "3", "-o", "json")
    assert outcome.code == 0, outcome.err
    assert [point["concurrency"] for point in outcome.json["items"]] == [1, 3]
    assert [point["output_tokens"] for point in outcome.json["items"]] == [3, 9]
    made = outcome.json["provenance"]
    assert (made["model"], made["nodes"], made["output_tokens"]) == (MODEL, ["alpha"], 3)
    assert len(handle.generations) == 1 + 1 + 3
    prompts = {request.prompt for request in handle.generations}
    assert len(prompts) == 5
    assert all(request.tokens_max == 3 for request in handle.generations)


def test_prompts_begin_alike_only_where_it_is_asked(line: CommandLine, handle: FakeHandle) -> None:
    line("bench", MODEL, "--concurrency", "2", "--prompt", "20")
    apart = {(request.prompt or "")[:8] for request in handle.generations}
    assert len(apart) == len(handle.generations)
    handle.generations.clear()
    line("bench", MODEL, "--concurrency", "2", "--prompt", "20", "--prefix-reuse")
    alike = {(request.prompt or "")[:200] for request in handle.generations}
    assert len(alike) == 1


def test_failures_are_counted_and_said(line: CommandLine, handle: FakeHandle) -> None:
    handle.script = [BusyError.because("queue_full", "64 wait")]
    outcome = line("bench", MODEL, "--concurrency", "2")
    assert outcome.code == 1
    assert "2 failed: 64 wait" in outcome.out


def test_figures_that_can_not_be_kept_are_shown_still(line: CommandLine, tmp_path: Path) -> None:
    outcome = line("bench", MODEL, "--concurrency", "2", "--save", str(tmp_path / "no" / "x"))
    assert outcome.code == 2
    assert "TOK/S" in outcome.out


def test_two_kept_runs_are_compared(line: CommandLine, tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    assert line("bench", MODEL, "--concurrency", "1,2", "--save", str(first)).code == 0
    assert (
        line("bench", MODEL, "--concurrency", "2,3", "--gen", "9", "--save", str(second)).code == 0
    )
    outcome = line("bench", "--compare", str(first), str(second), "-o", "json")
    assert [row["concurrency"] for row in outcome.json["items"]] == [2]
    assert outcome.json["items"][0]["ratio"] > 0
    assert "not alike: output_tokens was 32, is 9" in outcome.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("bench",),
        ("bench", MODEL, "--concurrency", "0"),
        ("bench", MODEL, "--concurrency", "1,x"),
        ("bench", MODEL, "--concurrency", "\N{SUPERSCRIPT TWO}"),
        ("bench", MODEL, "--concurrency", "1,,2"),
        ("bench", MODEL, "--concurrency", "65"),
        ("bench", "--compare", "nothing.json", "neither.json"),
    ],
)
def test_what_makes_no_sense_is_refused(line: CommandLine, arguments: tuple[str, ...]) -> None:
    assert line(*arguments).code == 2
