"""The terminal app under load in a pseudo-terminal: processor, output, and how soon a key shows.

A stand-in for the node feeds it with figures of every node and entries at the rate that is asked
for; what the stand-in costs is in the figures.
"""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import statistics
import struct
import sys
import termios
import time

import psutil

from tests.benchmarks.measure import line

COLUMNS, ROWS = 160, 45
SETTLE_SECONDS = 6.0
WATCH_SECONDS = 15.0
KEYS = 40
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
        size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, size)
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
