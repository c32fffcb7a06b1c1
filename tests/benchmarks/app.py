"""The terminal app under load in a pseudo-terminal: processor, output, and how soon a key shows.

A stand-in for the node feeds it with figures of every node and entries at the rate that is asked
for; what the stand-in costs is in the figures.
"""

import contextlib
import fcntl
import os
import pty
import random
import re
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

import psutil

from tests.benchmarks.measure import line

COLUMNS, ROWS = 160, 45
SETTLE_SECONDS = 6.0
WATCH_SECONDS = 15.0
KEYS = 40
BURST_SECONDS = 10.0
RESIZES, RESIZE_SECONDS = 200, 0.05
MARK = b"mac-000"
DEADLINE_SECONDS = 40.0
_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Screen:
    """The app in a pseudo-terminal."""

    def __init__(self, *arguments: str) -> None:
        self.process_id, self.terminal = pty.fork()
        if self.process_id == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
            os.execv(
                sys.executable, [sys.executable, "-m", "tests.benchmarks.app_feed", *arguments]
            )
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = psutil.Process(self.process_id)
        self.written = 0

    def read_for(self, seconds: float, until: bytes = b"") -> bytes:
        """What it wrote meanwhile; ends early once the words are in it."""
        seen, end = b"", time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.terminal], [], [], min(left, 0.02))[0]:
                continue
            piece = os.read(self.terminal, 1 << 16)
            self.written += len(piece)
            seen += piece
            if until and until in _ESCAPES.sub(b"", seen):
                break
        return seen

    def resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, size)
        os.kill(self.process_id, signal.SIGWINCH)

    def processor(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system

    def key_seconds(self, key: bytes) -> float:
        """From a key to the first change of the screen after it."""
        while select.select([self.terminal], [], [], 0.0)[0]:
            self.written += len(os.read(self.terminal, 1 << 16))
        started = time.monotonic()
        os.write(self.terminal, key)
        if select.select([self.terminal], [], [], 2.0)[0]:
            self.written += len(os.read(self.terminal, 1 << 16))
        return time.monotonic() - started

    def close(self) -> None:
        os.kill(self.process_id, signal.SIGTERM)
        with contextlib.suppress(OSError):
            while os.read(self.terminal, 1 << 16):
                pass
        os.waitpid(self.process_id, 0)


def watch(name: str, limit: str, *arguments: str, keys: bool = False) -> None:
    screen = Screen(*arguments)
    try:
        screen.read_for(DEADLINE_SECONDS, MARK)
        paint = screen.processor()
        screen.read_for(SETTLE_SECONDS)
        before, written, started = screen.processor(), screen.written, time.monotonic()
        memory = screen.process.memory_info().rss
        screen.read_for(WATCH_SECONDS)
        elapsed = time.monotonic() - started
        share = (screen.processor() - before) / elapsed
        line(f"{name}: share of a core", f"{share:.1%}", limit)
        line(f"{name}: output", f"{(screen.written - written) / elapsed / 1000:.1f} kB/s")
        grown = (screen.process.memory_info().rss - memory) / 1e6
        line(
            f"{name}: RSS, and growth in {WATCH_SECONDS:.0f} s",
            f"{memory / 1e6:.0f} {grown:+.1f} MB",
        )
        if keys:
            os.write(screen.terminal, b"\t\t\t")
            screen.read_for(1.0)
            waits = sorted(screen.key_seconds(b"k") for _ in range(KEYS))
            high = waits[int(0.95 * KEYS)]
            words = f"{1000 * statistics.median(waits):.0f} / {1000 * high:.0f} ms"
            line(f"{name}: key to paint, p50 / p95", words, "p95 <= 50 ms at load < 3")
        else:
            line(f"{name}: first picture, CPU s", f"{paint:.2f}", "<= 0.6")
    finally:
        screen.close()


def burst() -> None:
    """10,000 entries a second that end: how soon the last of them is on the screen."""
    with tempfile.TemporaryDirectory(prefix="exoctl-burst-") as folder:
        end = Path(folder) / "end"
        seconds = f"{BURST_SECONDS + SETTLE_SECONDS:g}"
        screen = Screen(
            *("--nodes", "8", "--rate", "10000", "--view", "events"),
            *("--seconds", seconds, "--end", str(end)),
        )
        try:
            screen.read_for(DEADLINE_SECONDS, MARK)
            while not end.exists():
                screen.read_for(0.02)
            words = end.read_text(encoding="utf-8").split()
            ended, last = float(words[0]), f"{int(words[1]):,}".encode()
            screen.read_for(5.0, last)
            # The read that ends the wait may already lie behind: the index is then on the screen.
            late = time.monotonic() - ended
            line("10,000 entries/s end: last index shown after", f"{late:.2f} s", "<= 0.5 s")
        finally:
            screen.close()


def resizes() -> None:
    """200 random sizes in 10 s under 1,000 entries a second."""
    chance = random.Random(7)
    screen = Screen("--nodes", "8", "--rate", "1000")
    try:
        screen.read_for(DEADLINE_SECONDS, MARK)
        screen.read_for(SETTLE_SECONDS)
        before, started = screen.processor(), time.monotonic()
        for _ in range(RESIZES):
            screen.resize(chance.randint(20, 220), chance.randint(5, 70))
            screen.read_for(RESIZE_SECONDS)
        share = (screen.processor() - before) / (time.monotonic() - started)
        screen.resize(COLUMNS, ROWS)
        shown = screen.read_for(3.0, MARK)
        whole = "yes" if MARK in _ESCAPES.sub(b"", shown) else "no"
        line(
            f"{RESIZES} sizes at {1 / RESIZE_SECONDS:.0f} a second: share of a core", f"{share:.0%}"
        )
        line(f"{RESIZES} sizes: draws the last one whole", whole, "yes")
    finally:
        screen.close()


def run() -> None:
    line("load average of the machine", " ".join(f"{each:.1f}" for each in os.getloadavg()))
    watch("5 nodes, figures at 1 Hz", "<= 3 %", "--nodes", "5", "--rate", "0")
    watch("8 nodes, 1,000 entries/s", "<= 15 %", "--nodes", "8", "--rate", "1000", keys=True)
    watch("8 nodes, 10,000 entries/s", "<= 50 %", "--nodes", "8", "--rate", "10000", keys=True)
    watch(
        "200 nodes, figures at 2 Hz",
        "<= 12 %",
        "--nodes",
        "200",
        "--rate",
        "0",
        "--hz",
        "2",
        "--view",
        "nodes",
    )
    burst()
    resizes()
