"""What the terminal app's memory comes to under 1,000 entries a second: ten minutes of it."""

import subprocess
import sys

from tests.benchmarks.app import DEADLINE_SECONDS, MARK, Screen
from tests.benchmarks.measure import line

PART_SECONDS = 300.0
BASE = """
import psutil, node.runtime, tests.benchmarks.app_feed
print(psutil.Process().memory_info().rss)
"""
"""The node's modules and the stand-in's, and the app's own that these bring; no app runs."""


def run() -> None:
    base = subprocess.run(
        [sys.executable, "-c", BASE], capture_output=True, text=True, check=True
    ).stdout
    screen = Screen("--nodes", "8", "--rate", "1000")
    try:
        screen.read_for(DEADLINE_SECONDS, MARK)
        screen.read_for(PART_SECONDS)
        after = screen.process.memory_info().rss
        screen.read_for(PART_SECONDS)
        grown = screen.process.memory_info().rss - after
    finally:
        screen.close()
    minutes = PART_SECONDS / 60
    above = f"{after / 1e6:.0f} MB, {(after - int(base)) / 1e6:+.0f} MB"
    line(f"after {minutes:.0f} min: RSS, and above the modules alone", above, "<= +60 MB")
    line(f"growth in the next {minutes:.0f} min", f"{grown / 1e6:+.1f} MB", "<= 2 MB")
