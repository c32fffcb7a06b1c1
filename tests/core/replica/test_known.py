from node.core.replica.durable import Interval, KnownWriter
from node.core.replica.known import LIVES_MAX, RUNS_MAX, KnownEvents
from node.model.ids import NodeId
from node.model.session import EventId


def event(sequence: int, incarnation: int = 1, origin: str = "a") -> EventId:
    return EventId(NodeId(origin), incarnation, sequence)


def test_events_are_known_until_they_are_withdrawn() -> None:
    known = KnownEvents()
    assert event(1) not in known
    known.add(event(1))
    assert event(1) in known
    assert event(1, incarnation=2) not in known
    assert event(1, origin="b") not in known
    known.discard(event(1))
    known.discard(event(5, origin="z"))
    assert event(1) not in known
    assert known.writers() == ()


def test_a_snapshots_writers_give_the_same_set_back() -> None:
    known = KnownEvents()
    for sequence in (1, 2, 3, 7):
        known.add(event(sequence, origin="b"))
    known.add(event(4, incarnation=9))
    writers = known.writers()
    assert writers == (
        KnownWriter(NodeId("a"), 9, (Interval(4, 4),)),
        KnownWriter(NodeId("b"), 1, (Interval(1, 3), Interval(7, 7))),
    )
    assert KnownEvents(writers).writers() == writers


def test_events_of_forgotten_lives_count_as_known() -> None:
    known = KnownEvents()
    for incarnation in range(1, LIVES_MAX + 11):
        known.add(event(1, incarnation))
    assert len(known.writers()) == LIVES_MAX
    assert event(99, incarnation=3) in known
    assert event(99, incarnation=11) not in known
    assert event(99, incarnation=LIVES_MAX + 50) not in known


def test_holes_beyond_the_bound_are_filled_from_the_oldest() -> None:
    known = KnownEvents()
    for sequence in range(1, 2 * RUNS_MAX + 5, 2):
        known.add(event(sequence))
    (writer,) = known.writers()
    assert len(writer.intervals) == RUNS_MAX
    assert event(2) in known
    assert event(2 * RUNS_MAX) not in known


def test_missing_counts_what_is_neither_in_the_other_nor_held() -> None:
    ours, theirs = KnownEvents(), KnownEvents()
    for sequence in range(1, 11):
        ours.add(event(sequence))
    for sequence in (1, 2, 3, 8):
        theirs.add(event(sequence))
    assert ours.missing(theirs, []) == 6
    assert ours.missing(theirs, [event(4), event(8), event(77)]) == 5
    assert ours.missing(ours, []) == 0
    assert KnownEvents().missing(theirs, []) == 0
