"""The app over a stand-in for a node that feeds it figures and entries; for benchmarks."""

import argparse
import itertools
import sys
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from node.handle import NodeHandle
from node.model.instance import RunnerPhase
from tests.fakes.cluster import MACS, Builder, Cluster
from tests.fakes.handle import FakeHandle
from tests.fakes.history import history
from tui.app import ExoctlApp, run_with
from tui.app_options import AppOptions
from tui.bridge.inbox import Streamed

BATCH_SECONDS = 0.05


def cluster_of(number: int) -> Cluster:
    """So many nodes, each linked with the next, and a model over five of them."""
    names = [f"mac-{place:03d}" for place in range(number)]
    like = list(MACS.values())
    for place, name in enumerate(names):
        MACS[name] = msgspec.structs.replace(like[place % len(like)], name=name)
    builder = Builder(tuple(names))
    for near, far in itertools.pairwise(names):
        builder.link(near, far, "ethernet", 9.4, 0.3)
    split = dict.fromkeys(names[:5], 16)
    builder.place("7f2c81aa", "llama-3.3-70b-4bit", split, RunnerPhase.READY)
    return builder.build()


def feed(app: ExoctlApp, handle: FakeHandle, chosen: argparse.Namespace) -> None:
    """Put what a node would put, in a thread of its own: for ever, or until the burst ends."""
    rate, hertz = chosen.rate, chosen.hz
    ends_at = time.monotonic() + chosen.seconds if chosen.seconds else float("inf")
    state, entries = handle.state, handle.entries
    index, debt, sequence, due = state.index, 0.0, 1, 0.0
    while True:
        now = time.monotonic()
        if now >= due:
            due, sequence = now + 1.0 / hertz, sequence + 1
            for register in handle.registers.values():
                later = msgspec.structs.replace(register, sequence=sequence)
                app.inbox.put(Streamed(later, state))
        debt += rate * BATCH_SECONDS
        for _ in range(int(debt)):
            index += 1
            entry = msgspec.structs.replace(entries[index % len(entries)], index=index)
            app.inbox.put(Streamed(entry, msgspec.structs.replace(state, index=index)))
        debt -= int(debt)
        if now > ends_at:
            Path(chosen.end).write_text(f"{time.monotonic()} {index}", encoding="utf-8")
            rate, ends_at, debt = 0.0, float("inf"), 0.0
        time.sleep(BATCH_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--hz", type=float, default=1.0)
    parser.add_argument("--view", default="overview")
    parser.add_argument("--seconds", type=float, default=0.0, help="entries end after so long")
    parser.add_argument("--end", default="", help="file that gets the end's time and last index")
    chosen = parser.parse_args()
    cluster = cluster_of(chosen.nodes)
    handle = FakeHandle(cluster, history(cluster[0]))
    app = ExoctlApp(AppOptions(view=chosen.view), is_embedded=False)

    @asynccontextmanager
    async def connect() -> AsyncGenerator[NodeHandle]:
        threading.Thread(target=feed, args=(app, handle, chosen), daemon=True).start()
        yield handle

    return run_with(app, connect, is_embedded=False)


if __name__ == "__main__":
    sys.exit(main())
