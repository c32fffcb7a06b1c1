"""The terminal app from process start to its first complete picture, in a pseudo-terminal."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

import psutil

from tests.benchmarks.measure import line

ROUNDS = 3
MARK = b"Topology"
DEADLINE_SECONDS = 30.0


def first_paint(folder: Path, columns: int, rows: int) -> tuple[float, float]:
    """Processor seconds and RSS (MB) when the mark is on the screen."""
    process_id, terminal = pty.fork()
    if process_id == 0:
        os.environ.update(
            TERM="xterm-256color", COLORTERM="truecolor", EXOCTL_STATE_DIR=str(folder / "state"),
            EXOCTL_MODEL_DIR=str(folder / "models"), EXOCTL_CONFIG=str(folder / "none.toml"),
        )  # fmt: skip
        os.execv(
            sys.executable,
            [
                *(sys.executable, "-m", "tui", "--port", "0", "--api-port", "0"),
                *("--bind", "127.0.0.1", "--no-discovery"),
            ],
        )
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    seen = b""
    deadline = time.monotonic() + DEADLINE_SECONDS
    process = psutil.Process(process_id)
    try:
        while MARK not in re.sub(rb"\x1b\[[0-9;?]*[ -/]*[@-~]", b"", seen):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no picture within {DEADLINE_SECONDS} s")
            if select.select([terminal], [], [], 0.05)[0]:
                seen += os.read(terminal, 1 << 16)
        times = process.cpu_times()
        return times.user + times.system, process.memory_info().rss / 1e6
    finally:
        os.kill(process_id, signal.SIGTERM)
        while True:
            try:
                if not os.read(terminal, 1 << 16):
                    break
            except OSError:
                break
        os.waitpid(process_id, 0)


def run() -> None:
    with tempfile.TemporaryDirectory(prefix="exoctl-bench-") as name:
        results = [first_paint(Path(name) / str(turn), 160, 45) for turn in range(ROUNDS)]
    cost, memory = min(cost for cost, _ in results), max(memory for _, memory in results)
    line("start to first picture with embedded node, CPU s", f"{cost:.2f}", "<= 0.8")
    line("RSS at the first picture", f"{memory:.0f} MB")
