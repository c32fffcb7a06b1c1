"""A log file that is open for a while, and what is written to it."""

import queue
from pathlib import Path
from typing import Self

from node.core.replica.durable import (
    ClusterJoined,
    DurableRecord,
    Recovered,
    SessionKept,
    SnapshotImage,
)
from node.io.log_file import LogFile, Synced, open_log
from node.model.ids import ClusterId, NodeId
from node.model.session import Entry, EventId, Position, Session

SESSION = Session(3, NodeId("a"), 1)
CLUSTER = ClusterId("c" * 32)


def entries(first: int, count: int, size: int = 40) -> tuple[Entry, ...]:
    return tuple(
        Entry(SESSION, i, EventId(NodeId("a"), 1, i + 1), bytes([i % 256]) * size)
        for i in range(first, first + count)
    )


def image(index: int) -> SnapshotImage:
    return SnapshotImage(
        cluster=CLUSTER, position=Position(SESSION, index), state=b"state", known=()
    )


class OpenLog:
    """A log that is open for the length of a `with`, written synchronously."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.done: queue.Queue[Synced] = queue.Queue()
        self.failed: queue.Queue[BaseException] = queue.Queue()
        self.token = 0

    def __enter__(self) -> Self:
        self.log, self.recovered = open_log(self.directory)
        self.log.start(self.done.put, self.failed.put)
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()

    def write(self, *records: DurableRecord) -> None:
        self.token += 1
        assert self.log.submit(self.token, records, full_sync=False)
        assert self.done.get(timeout=10).token == self.token


def reopen(directory: Path) -> tuple[LogFile, Recovered]:
    log, recovered = open_log(directory)
    log.close()
    return log, recovered


def founded(session: OpenLog) -> None:
    session.write(ClusterJoined(CLUSTER), SessionKept(SESSION, 3))
