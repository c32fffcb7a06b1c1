import pytest

from node.core.replica.durable import (
    Interval,
    KnownWriter,
    Orphaned,
    OrphansSettled,
    Recovered,
    SnapshotImage,
    SnapshotKept,
)
from node.core.replica.effects import Effect, HistoryDropped
from node.core.replica.ledger import Ledger
from node.core.replica.timing import Limits
from node.model.ids import NodeId
from node.model.session import Entry, EventId, Position, Session
from tests.fakes.replica_cluster import CLUSTER

SESSION = Session(1, NodeId("a"), 1)
LATER = Session(2, NodeId("b"), 1)


def image(index: int, last_sequence: int, session: Session = SESSION) -> SnapshotImage:
    known = KnownWriter(NodeId("a"), 1, (Interval(1, last_sequence),))
    return SnapshotImage(
        cluster=CLUSTER, position=Position(session, index), state=b"", known=(known,)
    )


def append(ledger: Ledger, count: int, session: Session = SESSION) -> None:
    for _ in range(count):
        index = ledger.log.last_index + 1
        event_id = EventId(NodeId("a"), 1, index + 1)
        ledger.append(Entry(session, index, event_id, b"x"))


def make(effects: list[Effect], tail_entries: int = 3) -> Ledger:
    recovered = Recovered(incarnation=1, cluster=CLUSTER)
    return Ledger(recovered, Limits(tail_entries=tail_entries), effects)


def waiting(ledger: Ledger) -> list[int]:
    return [entry.id.sequence for entry in ledger.orphans_waiting()]


def test_entries_that_a_snapshot_replaces_are_held_on_to_and_not_offered() -> None:
    ledger = make([])
    append(ledger, 5)
    ledger.install(image(9, last_sequence=5))
    assert len(ledger.orphans) == 5
    assert waiting(ledger) == []


def test_they_are_offered_where_the_next_log_lacks_them() -> None:
    effects: list[Effect] = []
    ledger = make(effects)
    append(ledger, 5)
    ledger.install(image(9, last_sequence=5))
    ledger.install(image(4, last_sequence=2, session=LATER))
    assert waiting(ledger) == [3, 4, 5]
    assert not any(isinstance(effect, HistoryDropped) for effect in effects)


def test_they_are_let_go_when_the_kept_tail_lies_beyond_the_snapshot() -> None:
    ledger = make([])
    append(ledger, 5)
    ledger.install(image(9, last_sequence=5))
    append(ledger, 4, LATER)
    ledger.commit_to(13)
    ledger.compact(Position(LATER, 11), b"")
    assert len(ledger.orphans) == 5
    append(ledger, 4, LATER)
    ledger.commit_to(17)
    ledger.compact(Position(LATER, 17), b"")
    assert ledger.orphans == {}
    write = ledger.take_write()
    assert write is not None
    assert [len(r.ids) for r in write.records if isinstance(r, OrphansSettled)] == [5]


def test_what_only_a_snapshot_remembers_is_reported_when_it_is_replaced() -> None:
    effects: list[Effect] = []
    ledger = make(effects)
    ledger.install(image(9, last_sequence=7))
    ledger.install(image(4, last_sequence=2, session=LATER))
    assert [effect for effect in effects if isinstance(effect, HistoryDropped)] == [
        HistoryDropped(5)
    ]


@pytest.mark.parametrize("index", [2, 9, 30])
def test_entries_that_do_not_lead_to_the_snapshot_are_taken_for_withdrawn(index: int) -> None:
    before = make([])
    append(before, 5)
    recovered = Recovered(
        incarnation=2,
        cluster=CLUSTER,
        snapshot=image(index, last_sequence=2, session=LATER),
        entries=before.log.slice(0, 5),
    )
    ledger = Ledger(recovered, Limits(), [])
    assert ledger.log.last == Position(LATER, index)
    assert ledger.commit_index == index
    assert waiting(ledger) == [3, 4, 5]
    write = ledger.take_write()
    assert write is not None
    assert [type(record) for record in write.records] == [Orphaned, SnapshotKept]


@pytest.mark.parametrize("first", [0, 2, 3])
def test_entries_that_lead_to_the_snapshot_or_on_from_it_are_kept(first: int) -> None:
    before = make([])
    append(before, 6)
    recovered = Recovered(
        incarnation=2,
        cluster=CLUSTER,
        snapshot=image(2, last_sequence=3),
        entries=before.log.slice(first, 6),
    )
    ledger = Ledger(recovered, Limits(), [])
    assert ledger.log.last_index == 5
    assert ledger.orphans == {}
    assert ledger.take_write() is None
