"""Every way out, in a real terminal: it is left as it was found, and the node has cleaned up."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DEADLINE_SECONDS = 30.0
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
CURSOR_SHOWN = b"\x1b[?25h"
MOUSE_OFF = b"\x1b[?1000l"


class Terminal:
    """A process in a pseudo terminal, and all that it wrote."""

    def __init__(self, mark: Path, what: str, **variables: str) -> None:
        self.mark = mark
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        for name in ("LINES", "COLUMNS"):  # they would count before the terminal's own size
            environment.pop(name, None)
        environment |= variables
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.pty_app", str(mark), what],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        self.output = b""

    def read_until(self, words: bytes) -> None:
        end = time.monotonic() + DEADLINE_SECONDS
        while words not in self.output:
            if time.monotonic() > end:
                raise AssertionError(f"{words!r} never came: {self.output[-2000:]!r}")
            if not self._read():
                raise AssertionError(f"ended before {words!r}: {self.output[-3000:]!r}")

    def _read(self) -> bool:
        ready, _, _ = select.select([self.master], [], [], 0.2)
        if not ready:
            return self.process.poll() is None
        try:
            piece = os.read(self.master, 65536)
        except OSError:
            return False
        self.output += piece
        return bool(piece)

    def send(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def wait(self) -> int:
        end = time.monotonic() + DEADLINE_SECONDS
        while self._read() and time.monotonic() < end:
            pass
        return self.process.wait(DEADLINE_SECONDS)

    def hang_up(self) -> None:
        os.close(self.master)
        self.master = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.master >= 0:
            os.close(self.master)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


def started(mark: Path, what: str = "nothing") -> Iterator[Terminal]:
    terminal = Terminal(mark, what)
    try:
        terminal.read_until(b"studio-a")
        yield terminal
    finally:
        terminal.close()


@pytest.fixture
def terminal(mark: Path) -> Iterator[Terminal]:
    yield from started(mark)


def check_left_as_found(terminal: Terminal) -> None:
    assert terminal.output.rindex(LEAVE) > terminal.output.rindex(ENTER)
    assert terminal.output.rindex(CURSOR_SHOWN) > terminal.output.rindex(b"\x1b[?25l")
    assert MOUSE_OFF in terminal.output
    assert terminal.mark.read_text() == "left the cluster"


def test_q_asks_and_y_ends(terminal: Terminal) -> None:
    terminal.send(b"q")
    terminal.read_until(b"Quit this node?")
    terminal.send(b"y")
    assert terminal.wait() == 0
    check_left_as_found(terminal)


def test_ctrl_q_ends_at_once(terminal: Terminal) -> None:
    terminal.send(b"\x11")
    assert terminal.wait() == 0
    check_left_as_found(terminal)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signal_ends_cleanly_with_its_exit_code(terminal: Terminal, number: int) -> None:
    terminal.process.send_signal(number)
    assert terminal.wait() == 128 + number
    check_left_as_found(terminal)


def test_terminal_that_goes_away_takes_the_node_down_cleanly(terminal: Terminal) -> None:
    terminal.hang_up()
    terminal.process.send_signal(signal.SIGHUP)
    terminal.process.wait(DEADLINE_SECONDS)
    assert terminal.mark.read_text() == "left the cluster"


def test_error_of_the_screen_shows_after_the_terminal_is_restored(terminal: Terminal) -> None:
    terminal.send(b"!")
    assert terminal.wait() == 1
    check_left_as_found(terminal)
    after = terminal.output[terminal.output.rindex(LEAVE) :]
    assert b"the screen fell over" in after


def test_error_of_the_node_shows_after_the_terminal_is_restored(mark: Path) -> None:
    for terminal in started(mark, "node"):
        assert terminal.wait() == 1
        check_left_as_found(terminal)
        after = terminal.output[terminal.output.rindex(LEAVE) :]
        assert b"the node fell over" in after


def test_error_at_the_start_is_said_in_words_with_its_exit_code(mark: Path) -> None:
    terminal = Terminal(mark, "start")
    try:
        assert terminal.wait() == 4
        after = terminal.output[terminal.output.rindex(LEAVE) :]
        assert b"port 52415 is taken by process 4711" in after
        assert b"give --api-port another" in after
        assert b"Traceback" not in terminal.output
    finally:
        terminal.close()


def test_no_colour_is_sent_where_none_is_wanted(mark: Path) -> None:
    terminal = Terminal(mark, "nothing", NO_COLOR="1")
    try:
        terminal.read_until(b"studio-a")
        terminal.send(b"q")
        terminal.read_until(b"Quit this node?")
        terminal.send(b"n?")  # at once: help waits until the question is gone
        terminal.read_until(b"Everywhere")
        terminal.send(b"\x11")
        assert terminal.wait() == 0
        sent = set(re.findall(rb"\x1b\[([0-9;:]*)m", terminal.output))
        assert sent <= {b"0", b"39;49", b"1;39;49", b"2;39;49", b"7;39;49", b"1;7;39;49"}
    finally:
        terminal.close()
