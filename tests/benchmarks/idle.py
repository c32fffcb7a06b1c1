"""What a headless node costs while nothing happens."""

import time

import psutil

from tests.benchmarks.measure import line, processor_seconds, real_nodes

SETTLE_SECONDS = 8.0
WATCH_SECONDS = 30.0


def run() -> None:
    with real_nodes() as nodes:
        members = nodes.cluster("one", "two", "three")
        time.sleep(SETTLE_SECONDS)
        ids = [node.process.pid for node in members]
        before, started = [processor_seconds([pid]) for pid in ids], time.monotonic()
        time.sleep(WATCH_SECONDS)
        elapsed = time.monotonic() - started
        for node, pid, seconds in zip(members, ids, before, strict=True):
            share = (processor_seconds([pid]) - seconds) / elapsed
            rss = psutil.Process(pid).memory_info().rss / 1e6
            line(f"{node.name} of three, idle: share of a core", f"{share:.1%}", "<= 2 %")
            line(f"{node.name} of three, idle: RSS without runner", f"{rss:.0f} MB", "<= 120 MB")
