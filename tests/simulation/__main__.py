"""Run seeds: `python -m tests.simulation --seeds 10000 --first 0`, or one kind: `--nodes 3`."""

import argparse
import sys
import time

from tests.simulation.campaign import (
    Campaign,
    Tally,
    mixture,
    replay_command,
    run_seed,
    title_of,
)
from tests.simulation.faults import Mode
from tests.simulation.rules import RULES


def run(campaign: Campaign, first: int, seeds: int) -> Tally:
    """Run and report; a seed that fails is named at once."""
    tally = Tally()
    started = time.process_time()
    for seed in range(first, first + seeds):
        result = run_seed(campaign, seed)
        tally.add(result)
        if isinstance(result, str):
            print(f"seed {seed}: {result}\n  replay: {replay_command(campaign, seed)}", flush=True)
    print(tally.summary(title_of(campaign), time.process_time() - started), flush=True)
    return tally


def main() -> int:
    """Run, report, and name the seeds that failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--nodes", type=int, help="only so many nodes; else 2 to 8, mostly 2 and 3")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--mode", type=Mode, choices=list(Mode), default=Mode.WILD)
    parser.add_argument("--seconds", type=float, default=60.0, help="of faults; 15 quiet follow")
    parser.add_argument("--without", default="", choices=("", *RULES), help="take one rule out")
    options = parser.parse_args()
    if options.nodes is None:
        plan = mixture(options.seeds)
    else:
        campaign = Campaign(
            nodes=options.nodes, mode=options.mode, seconds=options.seconds, without=options.without
        )
        plan = [(campaign, options.seeds)]
    total = Tally()
    started = time.monotonic(), time.process_time()
    for campaign, seeds in plan:
        total.include(run(campaign, options.first, seeds))
    if len(plan) > 1:
        wall, cpu = time.monotonic() - started[0], time.process_time() - started[1]
        print(total.summary(f"all of it, {wall:.0f} s of wall clock, {cpu:.0f} of CPU", cpu))
    return 1 if total.violations else 0


if __name__ == "__main__":
    sys.exit(main())
