"""Any bytes in the files of a log: it opens with a true prefix of what was written."""

import queue
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.core.replica.durable import (
    Appended,
    ClusterJoined,
    DurableRecord,
    SessionKept,
    SnapshotImage,
    SnapshotKept,
)
from node.core.replica.replica import Replica
from node.core.replica.timing import Timing
from node.io.log_file import LogFile, Synced, log_file, open_log
from node.model.ids import ClusterId, NodeId
from node.model.session import Entry, EventId, Position, Session

NODE = NodeId("n")
CLUSTER = ClusterId("c" * 32)
SESSION = Session(3, NODE, 1)

Damage = tuple[int, str, float, bytes]
"""Which file, what is done to it, where in it, and with which bytes."""

damages = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.sampled_from(["cut", "overwrite", "insert", "replace", "delete", "double"]),
        st.floats(0, 1),
        st.binary(max_size=40),
    ),
    min_size=1,
    max_size=3,
)


def entry(index: int) -> Entry:
    return Entry(SESSION, index, EventId(NODE, 1, index + 1), b"payload %d" % index)


def write(log: LogFile, batches: list[DurableRecord]) -> None:
    done: queue.Queue[Synced] = queue.Queue()
    log.start(done.put)
    for token, record in enumerate(batches, 1):
        log.submit(token, (record,), full_sync=False)
    while batches and done.get(timeout=20).token < len(batches):
        pass
    log.close()


@pytest.fixture(scope="module")
def sound() -> dict[str, bytes]:
    """The files of a log with several segments and two snapshots."""
    with tempfile.TemporaryDirectory() as folder:
        log, _ = open_log(Path(folder))
        records: list[DurableRecord] = [ClusterJoined(CLUSTER), SessionKept(SESSION, 3)]
        for first in range(0, 60, 10):
            records.append(Appended(tuple(entry(first + step) for step in range(10))))
            if first in (20, 40):
                image = SnapshotImage(
                    cluster=CLUSTER, position=Position(SESSION, first), state=b"s", known=()
                )
                records.append(SnapshotKept(image, log_reset=False))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log_file, "SEGMENT_BYTES_MAX", 600)
            write(log, records)
        return {path.name: path.read_bytes() for path in Path(folder).glob("*.*")}


def spoil(directory: Path, damage: Damage) -> None:
    which, what, where, content = damage
    files = sorted(directory.iterdir())
    if not files:
        return
    path = files[which % len(files)]
    before = path.read_bytes()
    place = round(where * len(before))
    match what:
        case "cut":
            path.write_bytes(before[:place])
        case "overwrite":
            path.write_bytes(before[:place] + content + before[place + len(content) :])
        case "insert":
            path.write_bytes(before[:place] + content + before[place:])
        case "replace":
            path.write_bytes(content)
        case "delete":
            path.unlink()
        case _:
            path.write_bytes(before + before[place:])


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(damaged=damages)
def test_whatever_lies_in_the_files_it_opens_and_goes_on(
    sound: dict[str, bytes], damaged: list[Damage]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        for name, content in sound.items():
            (directory / name).write_bytes(content)
        for damage in damaged:
            spoil(directory, damage)
        log, recovered = open_log(directory)
        assert all(found == entry(found.index) for found in recovered.entries)
        indices = [found.index for found in recovered.entries]
        assert indices == list(range(indices[0], indices[0] + len(indices)) if indices else [])
        replica = Replica(NODE, recovered, Timing(), 0.0)
        following = replica.last_index + 1
        more = [Appended((entry(following),))] if recovered.cluster else []
        if recovered.entries and following != recovered.entries[-1].index + 1:
            more = []  # the replica has begun anew from the snapshot, and says so in its next write
        write(log, list(more))
        _, again = open_log(directory)
        assert again.cluster == recovered.cluster
        assert again.incarnation > recovered.incarnation
        if more:
            assert again.entries[-1] == entry(following)
