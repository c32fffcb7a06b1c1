"""What a command costs before it does anything."""

import sys

from tests.benchmarks.measure import command_seconds, line

ROUNDS = 5


def run() -> None:
    bare = min(command_seconds(sys.executable, "-c", "pass") for _ in range(ROUNDS))
    line("python alone, CPU s", f"{bare:.2f}")
    for arguments in (("--help",), ("ps", "--help"), ("version",)):
        cost = min(command_seconds(sys.executable, "-m", "tui", *arguments) for _ in range(ROUNDS))
        line(f"exoctl {' '.join(arguments)}, CPU s", f"{cost:.2f}", "<= 0.35 for --help")
