"""`make fuzz`: damaged frames, floods, and what they cost; exit 1 on harm."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import anyio

from tests.fuzz.flood import Report, flood
from tests.fuzz.frames import campaign

RSS_BYTES_MAX = 20_000_000


def main() -> int:
    """Run the campaign, then the flood."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--push-bytes", type=int, default=1_000_000_000)
    options = parser.parse_args()
    started = time.process_time()
    before, after = campaign(options.frames, options.seed)
    seconds = time.process_time() - started
    print(f"{options.frames:,} mutated frames, seed {options.seed}, {seconds:.0f} s of processor")
    for title, tally in (("before authentication", before), ("after", after)):
        print(
            f"  {title}: {tally.refused:,} refused, {tally.ignored:,} ignored,"
            f" {tally.taken:,} still read as something"
        )
    with tempfile.TemporaryDirectory() as directory:
        report: Report = anyio.run(flood, Path(directory), options.seed, options.push_bytes)
    for line in report.lines():
        print(f"  {line}")
    if report.effects or report.grown_bytes > RSS_BYTES_MAX or not report.still_links:
        print(f"HARM: effects {report.effects}, memory +{report.grown_bytes / 1e6:.1f} MB")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
