"""The command line itself: options, errors, exit codes."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from node.io.node_lock import LockRecord, NodeLock
from node.model.command import Refused
from node.model.errors import (
    KINDS,
    ExoctlError,
    Failure,
    NoFitError,
    NotFoundError,
    UnreachableError,
)
from node.model.ids import CommandId
from node.model.machine import Address
from tests.fakes.command_line import CommandLine
from tests.fakes.fake_handle import FakeHandle
from tests.fakes.surroundings import isolate
from tui.command_line import connect_over_http, execute
from tui.commands import launch, up
from tui.commands.console import Console


@pytest.fixture
def line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    isolate(monkeypatch, tmp_path)
    return CommandLine(FakeHandle(), capsys)


@contextmanager
def running_node(directory: Path, record: LockRecord) -> Generator[None]:
    lock = NodeLock(directory)
    lock.acquire()
    lock.publish(record)
    try:
        yield
    finally:
        lock.release()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nope",), "No such command 'nope'"),
        (("ps", "--nope"), "No such option: --nope"),
        (("plan",), "Missing argument 'MODEL'"),
        (("ps", "-o", "xml"), "'xml' is not one of"),
        (("node",), "Missing command"),
        (("load", "m", "--min-nodes", "0"), "--min-nodes"),
        (("load", "m", "--layers", "1,x"), "no list of counts"),
        (("load", "m", "--nodes", "alpha", "--layers", "1,2"), "one count for each node"),
        (("load", "m", "--nodes", "alpha,alpha"), "names a node twice"),
        (("load", "m", "--ctx", "many"), "no number of tokens"),
        (("load", "m", "--strategy", "magic"), "use auto, single, pipeline"),
        (("ps", "--host", "https://there"), "plain http"),
        (("ps", "--host", "there:99999"), "no address"),
        (("load", "smollm2", "--timeout", "soon"), "no duration"),
        (("events", "--type", "Nonsense"), "no event is called"),
        (("logs", "--level", "loud"), "no level is called"),
        (("wait", "--for", "rain"), "can't be waited for"),
        (("config", "get", "--port", "70000"), "--port 70000 is no port"),
        (("cluster", "invite", "--ttl", "400d"), "out of range"),
    ],
)
def test_what_can_not_be_meant_is_refused_with_code_2_and_words(
    line: CommandLine, arguments: tuple[str, ...], told: str
) -> None:
    outcome = line(*arguments)
    assert outcome.code == 2
    assert told in " ".join(outcome.err.split())
    assert outcome.out == ""


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_failure_has_its_exit_code_and_its_json(
    line: CommandLine, kind: type[ExoctlError]
) -> None:
    line.unreachable = kind(
        Failure(code="a_code", message="what happened", remedy="what helps", node="alpha")
    )
    told = line("ps")
    assert told.code == kind.exit_code
    assert told.err == "error: what happened (on alpha)\n  try: what helps\n"
    for arguments in (("ps", "-o", "json"), ("--json", "ps"), ("ps", "-ondjson")):
        outcome = line(*arguments)
        assert outcome.code == kind.exit_code
        assert outcome.out == ""
        assert outcome.error == {
            "code": "a_code",
            "message": "what happened",
            "reason": kind.__name__,
            "remedy": "what helps",
            "node": "alpha",
        }


def test_a_usage_error_is_json_too_where_json_is_asked_for(line: CommandLine) -> None:
    outcome = line("ps", "--nope", "--output", "json")
    assert outcome.code == 2
    assert outcome.error["code"] == "usage"
    assert outcome.error["remedy"] == "`exoctl ps --help`"


def test_a_failure_inside_nested_task_groups_is_said_as_the_one_it_is(line: CommandLine) -> None:
    wrapped = BaseExceptionGroup(
        "outer", [ExceptionGroup("inner", [NoFitError.because("no_fit", "3 GB short")])]
    )
    line.unreachable = wrapped  # type: ignore[assignment]
    outcome = line("ps")
    assert (outcome.code, outcome.err) == (6, "error: 3 GB short\n")


def test_ctrl_c_ends_with_130_alone_or_in_a_group(line: CommandLine) -> None:
    for raised in (KeyboardInterrupt(), BaseExceptionGroup("tasks", [KeyboardInterrupt()])):
        line.unreachable = raised  # type: ignore[assignment]
        assert line("ps").code == 130


def test_a_mistake_of_ours_is_not_hidden(line: CommandLine) -> None:
    line.unreachable = ZeroDivisionError("ours")  # type: ignore[assignment]
    with pytest.raises(ZeroDivisionError):
        line("ps")


def test_what_the_system_refuses_is_said_in_its_words(line: CommandLine) -> None:
    for raised in (
        OSError(28, "No space left on device", "/state/log"),
        ExceptionGroup("tasks", [OSError(28, "No space left on device", "/state/log")]),
    ):
        line.unreachable = raised  # type: ignore[assignment]
        outcome = line("ps")
        assert outcome.code == 1
        assert "No space left on device: '/state/log'" in outcome.err


@pytest.mark.parametrize("place", ["file", "file/below", "locked/new"])
def test_a_state_directory_that_can_not_be_used_is_told(
    line: CommandLine, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "locked").symlink_to("/proc/self/fdinfo")
    outcome = line.bare("up", "--state-dir", str(tmp_path / place), "--port", "0")
    assert outcome.code == 2
    assert f"{tmp_path / place} can't be used" in outcome.err
    assert "--state-dir" in outcome.err


def test_refusals_exit_as_the_kind_that_they_name(line: CommandLine) -> None:
    assert isinstance(line.handle, FakeHandle)
    failure = Failure(code="no_fit", message="3 GB short on beta", remedy="unload something")
    line.handle.answers.append(
        Refused(id=CommandId("c-1"), kind=NoFitError.__name__, failure=failure)
    )
    outcome = line("load", "smollm2")
    assert outcome.code == 6
    assert "3 GB short on beta" in outcome.err


def test_without_a_node_a_command_says_how_to_start_one(line: CommandLine, tmp_path: Path) -> None:
    outcome = line.bare("ps")
    assert outcome.code == 2
    assert str(tmp_path / "state") in outcome.err
    assert "exoctl up" in outcome.err
    assert line.connections == []


def test_the_node_is_found_by_the_lock_of_its_state_directory(
    line: CommandLine, tmp_path: Path
) -> None:
    record = LockRecord(process_id=1, name="here", api=Address("127.0.0.1", 5005))
    with running_node(tmp_path / "elsewhere", record):
        assert line.bare("ps", "--state-dir", str(tmp_path / "elsewhere")).code == 0
    assert line.connections[-1][0] == Address("127.0.0.1", 5005)


def test_a_node_without_an_api_is_said_to_have_none(line: CommandLine, tmp_path: Path) -> None:
    with running_node(tmp_path / "state", LockRecord(process_id=77, name="mute")):
        outcome = line.bare("ps")
    assert outcome.code == 2
    assert "mute (process 77) has no API" in outcome.err


def test_host_and_token_come_from_option_or_environment_the_option_first(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXOCTL_HOST", "http://10.0.0.9:4000")
    monkeypatch.setenv("EXOCTL_TOKEN", "from-environment")
    line.bare("ps")
    line.bare("--host", "10.0.0.8", "ps", "--token", "mine")
    line.bare("ps", "--host", "[fe80::1]:7")
    assert [each[:2] for each in line.connections] == [
        (Address("10.0.0.9", 4000), "from-environment"),
        (Address("10.0.0.8", 52415), "mine"),
        (Address("fe80::1", 7), "from-environment"),
    ]


def test_the_format_comes_from_the_command_over_the_root_over_the_environment(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXOCTL_OUTPUT", "name")
    assert line("ps").out == "i-00000001\n"
    assert line("-o", "json", "ps").json["kind"] == "Instance"
    assert line("-o", "json", "ps", "-o", "table").lines[0].startswith("ID")
    assert line("-o", "wide", "ps", "--json").json["kind"] == "Instance"
    assert line("ps", "-q").out == "i-00000001\n"


def test_read_only_refuses_every_change_with_code_5(line: CommandLine) -> None:
    assert isinstance(line.handle, FakeHandle)
    for arguments in (
        ("load", "smollm2"),
        ("unload", "i-00000001"),
        ("node", "cordon", "alpha"),
        ("node", "rm", "alpha", "-y"),
        ("cluster", "invite"),
        ("cluster", "join", "CODE"),
        ("cluster", "leave", "-y"),
        ("req", "cancel", "q-0123456789abcdef"),
        ("down",),
    ):
        outcome = line("--read-only", *arguments)
        assert outcome.code == 5, arguments
        assert "read-only" in outcome.err
    assert line.handle.commands == []
    assert line.handle.shut_down == line.handle.left == 0
    assert line("--read-only", "ps").code == 0


def test_where_nobody_can_be_asked_a_dangerous_change_wants_a_yes(line: CommandLine) -> None:
    outcome = line("node", "rm", "beta")
    assert outcome.code == 2
    assert "say yes with -y" in outcome.err
    assert line("node", "rm", "beta", "-y").code == 0


def test_version_and_help_go_to_stdout(line: CommandLine) -> None:
    assert line.bare("--version").out.startswith("exoctl 0.")
    shown = line.bare("--help")
    assert shown.code == 0
    for word in ("run", "status", "demo", "--state-dir", "--no-ui", "cluster"):
        assert word in shown.out


def test_every_command_has_help_that_says_what_it_does(line: CommandLine) -> None:
    for words in (
        *("run", "chat", "plan", "load", "unload", "ps", "status", "events", "logs", "wait"),
        *("up", "down", "doctor", "demo", "completion", "version"),
    ):
        shown = line.bare(words, "--help")
        assert shown.code == 0
        text = shown.out.split("Usage:")[1].split("Options")[0]
        assert len(text.split()) > 8, words


def test_the_app_is_refused_without_a_terminal(line: CommandLine) -> None:
    outcome = line.bare()
    assert outcome.code == 2
    assert "exoctl --no-ui" in outcome.err
    assert "exoctl status" in outcome.err


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def pretend() -> None:
        for stream in ("stdin", "stdout"):
            monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)

    return pretend


@pytest.mark.usefixtures("line")
def test_the_app_is_refused_on_a_dumb_terminal(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch, terminal: Callable[[], None]
) -> None:
    terminal()
    monkeypatch.setenv("TERM", "dumb")
    outcome = line.bare()
    assert outcome.code == 2
    assert "TERM is 'dumb'" in outcome.err


def test_no_ui_runs_the_same_as_up(line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def headless(console: Console) -> None:
        seen.append(console.settings.name)
        console.exit(0)

    monkeypatch.setattr(up, "up", headless)
    assert line.bare("--no-ui", "--name", "a").code == 0
    monkeypatch.setenv("EXOCTL_NO_UI", "1")
    monkeypatch.setenv("EXOCTL_NAME", "b")
    assert line.bare().code == 0
    assert seen == ["a", "b"]


def test_the_exit_code_of_the_app_is_the_exit_code(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends_with_3(console: Console) -> int:
        return 3

    monkeypatch.setattr(launch, "launch", ends_with_3)
    assert line.bare().code == 3


def test_ambiguous_names_are_all_named(line: CommandLine) -> None:
    assert isinstance(line.handle, FakeHandle)
    outcome = line("node", "show", "")
    assert outcome.code == 3
    outcome = line("node", "show", "gamma")
    assert outcome.code == NotFoundError.exit_code
    assert "alpha, beta" in outcome.err


def test_an_unreachable_node_is_code_2(line: CommandLine) -> None:
    line.unreachable = UnreachableError.because("unreachable", "nobody answers at 127.0.0.1:1")
    assert line("status").code == 2


@pytest.mark.parametrize("words", [("ps",), ("load", "smollm2"), ("wait", "--for", "master")])
def test_a_suspended_node_is_named_within_the_time_that_was_given(
    line: CommandLine, tmp_path: Path, words: tuple[str, ...]
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        subprocess.Popen(("sleep", "60")) as process,
    ):
        try:
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)  # until it is
            record = LockRecord(
                process_id=process.pid, name="here", api=Address(*silent.getsockname())
            )
            with running_node(tmp_path / "state", record):
                began = time.monotonic()
                code = execute((*words, "--timeout", "200ms"), connect_over_http)
                assert time.monotonic() - began < 4.0
        finally:
            process.kill()
            process.send_signal(signal.SIGCONT)
    told = line.capsys.readouterr().err
    assert code == UnreachableError.exit_code
    assert f"the node here answers nothing: its process {process.pid} is suspended" in told
    assert f"kill -CONT {process.pid}" in told


def test_each_tab_of_a_served_page_is_as_the_options_say(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[str] = []

    async def remember(console: Console, command: str, port: int, tabs: int) -> None:
        commands.append(command)

    monkeypatch.setattr("tui.commands.web_page.run_page", remember)
    options = ("--read-only", "--ascii", "--no-mouse", "--no-anim", "--theme", "exoctl-light")
    assert line("serve", *options).code == 0
    assert commands[0].endswith(" " + " ".join(options))
