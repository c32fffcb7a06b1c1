"""Events written durably, one at a time and in groups, beside plain writes with one sync each."""

import os
import queue
import tempfile
import time
from pathlib import Path

from node.core.replica.durable import Appended, ClusterJoined
from node.io.log_file import Synced, open_log
from node.model.ids import ClusterId, NodeId
from node.model.session import Entry, EventId, Session
from tests.benchmarks.measure import line

COUNT = 2000
SESSION = Session(1, NodeId("n"), 1)


def entry(index: int) -> Entry:
    return Entry(SESSION, index, EventId(NodeId("n"), 1, index + 1), b"x" * 256)


def plain(folder: Path) -> float:
    descriptor = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT)
    started = time.perf_counter()
    for _ in range(COUNT):
        os.write(descriptor, b"x" * 300)
        os.fdatasync(descriptor)
    os.close(descriptor)
    return COUNT / (time.perf_counter() - started)


def through_log(folder: Path, at_once: int) -> float:
    log, _ = open_log(folder)
    done: queue.Queue[Synced] = queue.Queue()
    log.start(done.put)
    log.submit(0, (ClusterJoined(ClusterId("c" * 32)),), full_sync=False)
    while done.get().token < 0:
        pass
    started = time.perf_counter()
    for first in range(0, COUNT, at_once):
        for index in range(first, first + at_once):
            log.submit(index + 1, (Appended((entry(index),)),), full_sync=False)
        while done.get().token < first + at_once:
            pass
    rate = COUNT / (time.perf_counter() - started)
    log.close()
    return rate


def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        reference = plain(Path(folder))
        line("plain write + sync, per s", f"{reference:,.0f}")
        for at_once in (1, 16, 200):
            rate = through_log(Path(folder) / f"log-{at_once}", at_once)
            line(
                f"log file, {at_once} waiting, per s",
                f"{rate:,.0f}",
                f"{rate / reference:.1f} x plain",
            )
