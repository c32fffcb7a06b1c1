"""A cluster in which nothing happens: `python -m tests.simulation.idle --hours 24 --nodes 8`.

Its log must hardly grow, and its memory not at all. Clocks differ by 2 % at most; the network's
delays vary, and nothing is lost.
"""

import argparse
import gc
import sys
import time

from tests.simulation.faults import Mode
from tests.simulation.simulation import QUIET_SECONDS, Simulation

HOUR_SECONDS = 3600.0
ENTRIES_MAX = 50
GROWTH_MAX = 0.01
"""Of the interpreter's memory blocks, from the first sample on to the last."""
SAMPLES = 12


class Idle:
    """One run, sampled at equal times."""

    def __init__(self, hours: float, nodes: int, seed: int) -> None:
        seconds = hours * HOUR_SECONDS
        self._simulation = Simulation(seed, nodes, Mode.IDLE, seconds - QUIET_SECONDS)
        self.blocks: list[int] = []
        self.entries = 0
        self._started = time.process_time()
        for sample in range(1, SAMPLES + 1):
            self._simulation.later(seconds * sample / SAMPLES - 0.01, self._sample, None)

    def run(self) -> None:
        """Run to the end; every invariant is checked there."""
        self.entries = self._simulation.run().log_length

    def _sample(self, _: None) -> None:
        gc.collect()
        self.blocks.append(sys.getallocatedblocks())
        simulation = self._simulation
        last = max(node.replica.last_index for node in simulation.nodes if node is not None)
        print(
            f"after {simulation.time / HOUR_SECONDS:5.2f} h: {last + 1} entries, "
            f"{simulation.checker.sessions_declared()} sessions, "
            f"{simulation.counts.messages} messages, {self.blocks[-1]} memory blocks, "
            f"{time.process_time() - self._started:.0f} s of CPU",
            flush=True,
        )

    def verdict(self) -> str:
        """What is wrong; empty where nothing is."""
        if self.entries >= ENTRIES_MAX:
            return f"{self.entries} entries in the log, fewer than {ENTRIES_MAX} are allowed"
        first, last = self.blocks[0], self.blocks[-1]
        if last > first * (1 + GROWTH_MAX):
            return f"memory grew from {first} to {last} blocks"
        return ""


def main() -> int:
    """Run, and say what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.idle", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    idle = Idle(options.hours, options.nodes, options.seed)
    idle.run()
    wrong = idle.verdict()
    print(wrong or f"{options.nodes} nodes, {options.hours:g} h: {idle.entries} entries, flat")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
