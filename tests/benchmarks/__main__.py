"""`python -m tests.benchmarks [NAME …]`: measurements, each beside its reference in the same run.

Prints ratios and processor time, not wall clocks: machines are shared. Nothing here is a test.
"""

import argparse
import importlib
import signal
import sys

NAMES = (
    *("startup", "idle", "failover", "streaming", "first_paint", "log_file", "commit", "million"),
    "engine",
    "app",
    "app_memory",
    "app_work",
    "isolation",
    "links",
    "download",
    "spread",
    "cable",
)

SLOW = ("app_memory",)
"""Only where they are named."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[*NAMES, *SLOW, []], help="all where none is named"
    )
    chosen = parser.parse_args().names or NAMES
    # Whoever ends it by `kill` wants its nodes and namespaces gone as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for name in chosen:
        print(f"== {name}", flush=True)
        importlib.import_module(f"tests.benchmarks.{name}").run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
