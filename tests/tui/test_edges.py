"""What a shell can do to a command: bytes that are no text, closed streams, ctrl-c."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.command_line import CommandLine
from tests.fakes.fake_handle import FakeHandle
from tests.fakes.surroundings import isolate
from tui.command_line import connect_over_http, execute

ROOT = Path(__file__).parents[2]
NODE = ("--port", "0", "--api-port", "0", "--bind", "127.0.0.1", "--no-discovery")
BAD = "k=\udcff"
"""`$'k=\\xff'` as Python hands it over."""


@pytest.fixture
def line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    isolate(monkeypatch, tmp_path)
    return CommandLine(FakeHandle(), capsys)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[bytes]]:
    """Runs a shell's line in which `exoctl` is the command; its code, stdout and stderr."""
    isolate(monkeypatch, tmp_path)

    def run(words: str, given: bytes = b"") -> list[bytes]:
        done = subprocess.run(
            ("bash", "-c", f'exoctl() {{ "{sys.executable}" -m tui "$@"; }}; {words}'),
            cwd=ROOT,
            input=given,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return [str(done.returncode).encode(), done.stdout, done.stderr]

    return run


@pytest.mark.parametrize(
    "words",
    [
        ("run", "smollm2", BAD),
        ("chat", BAD),
        ("node", "label", "a", BAD),
        ("node", "rename", "a", BAD),
        ("load", BAD),
        ("load", "m", "--nodes", BAD),
        ("model", "search", BAD),
        ("cluster", "join", BAD),
        ("ps", "--host", BAD),
        ("up", "--state-dir", BAD),
        (BAD,),
    ],
)
def test_an_argument_that_is_no_text_is_refused_by_its_place(
    line: CommandLine, words: tuple[str, ...]
) -> None:
    outcome = line.bare(*words)
    assert outcome.code == 2
    place = f"argument {words.index(BAD) + 1} is no UTF-8 text: byte 0xff at offset 2"
    assert place in outcome.err
    assert outcome.err.count("\n") == 2
    assert line.bare(*words, "--json").error["code"] == "not_text"


def test_a_variable_of_ours_that_is_no_text_is_refused_by_its_name(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXOCTL_HOST", "\udcff")
    outcome = line.bare("ps")
    assert outcome.code == 2
    assert "EXOCTL_HOST is no UTF-8 text: byte 0xff at offset 0" in outcome.err


@pytest.mark.parametrize(
    "host", ["a\nb", "a b", "a/b", "x@y", "http://\x7f", "x:99999", "x:" + "9" * 5000]
)
def test_a_host_that_can_be_none_is_refused(line: CommandLine, host: str) -> None:
    outcome = line.bare("ps", "--host", host)
    assert outcome.code == 2
    assert "is no address" in outcome.err


def test_a_host_that_no_url_can_hold_is_refused() -> None:
    assert execute(["ps", "--host", "x\u0378y:1"], connect_over_http) == 2


@pytest.mark.parametrize(("words", "locale"), [("run smollm2", "C"), ("apply -f -", "C.UTF-8")])
def test_stdin_that_is_no_text_is_refused_by_the_offset(
    shell: Callable[..., list[bytes]], words: str, locale: str
) -> None:
    code, out, err = shell(f"LC_ALL={locale} exoctl {words}", b"x" * 9000 + b"\xe9t\xe9")
    assert (code, out) == (b"2", b"")
    assert b"stdin is no UTF-8 text: byte 0xe9 at offset 9000" in err


@pytest.mark.parametrize("closed", ["<&- >&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_the_null_device(
    shell: Callable[..., list[bytes]], closed: str
) -> None:
    code, _, err = shell(f"exoctl status {closed}")
    assert code == b"2"
    assert b"Traceback" not in err
    assert (b"no node runs here" in err) is ("2>" not in closed)


def test_the_streams_of_a_node_are_never_its_sockets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    isolate(monkeypatch, tmp_path)
    words = f'exec "{sys.executable}" -m tui up {" ".join(NODE)} <&- >&- 2>&-'
    node = subprocess.Popen(("bash", "-c", words), cwd=ROOT)
    try:
        opened = Path(f"/proc/{node.pid}/fd")
        end = time.monotonic() + 60
        while (
            not (tmp_path / "state" / "node.lock").exists()
            or b"api" not in (tmp_path / "state" / "node.lock").read_bytes()
        ):
            assert node.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        if opened.exists():
            assert {str((opened / each).readlink()) for each in "012"} == {os.devnull}
        node.send_signal(signal.SIGTERM)
        assert node.wait(30) == 0
    finally:
        node.kill()
        node.wait()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux alone has a device that is full")
@pytest.mark.parametrize("words", [">/dev/full", "2>/dev/full"])
def test_what_can_not_be_written_traces_nothing(
    shell: Callable[..., list[bytes]], words: str
) -> None:
    code, _, err = shell(f"exoctl version {words}; exit")
    assert b"Traceback" not in err
    assert code == (b"0" if words.startswith("2") else b"1")
    assert (b"No space left" in err) is words.startswith(">")


_INTERRUPTED = """
import os, signal, sys
from tui import cli
def main():
    cli.os.kill(os.getpid(), signal.SIGINT)
cli.fill_missing_streams = main
cli.main()
"""


def test_ctrl_c_is_the_systems_before_anything_is_loaded(
    shell: Callable[..., list[bytes]],
) -> None:
    done = subprocess.run(
        (sys.executable, "-c", _INTERRUPTED), cwd=ROOT, capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")
    loaded = "import sys; a = set(sys.modules); import tui.cli; print(*set(sys.modules) - a)"
    done = subprocess.run(
        (sys.executable, "-c", loaded), cwd=ROOT, capture_output=True, check=False, timeout=60
    )
    assert set(done.stdout.split()) <= {b"tui", b"tui.cli", b"_signal"}
