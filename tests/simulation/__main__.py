"""Run seeds: `python -m tests.simulation --nodes 3 --seeds 150 --first 0`."""

import argparse
import sys
import time

from tests.simulation.campaign import Campaign, replay_command, run_seed
from tests.simulation.faults import Mode
from tests.simulation.rules import RULES


def main() -> int:
    """Run, report, and name the seeds that failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--mode", type=Mode, choices=list(Mode), default=Mode.ALL)
    parser.add_argument("--seconds", type=float, default=60.0, help="of faults; 15 quiet follow")
    parser.add_argument("--without", default="", choices=("", *RULES), help="take one rule out")
    options = parser.parse_args()
    campaign = Campaign(
        nodes=options.nodes, mode=options.mode, seconds=options.seconds, without=options.without
    )
    started = time.process_time()
    results = [
        run_seed(campaign, seed) for seed in range(options.first, options.first + options.seeds)
    ]
    failures = [
        (seed, result)
        for seed, result in enumerate(results, options.first)
        if isinstance(result, str)
    ]
    print(campaign.summary(results, time.process_time() - started))
    for seed, message in failures[:10]:
        print(f"seed {seed}: {message}\n  replay: {replay_command(campaign, seed)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
