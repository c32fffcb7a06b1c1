import pytest

from node.core.event_order import (
    OUTBOX_MAX,
    RESEND_MAX,
    Duplicate,
    EventOrder,
    Gap,
    OutboxFull,
    Published,
    Released,
)
from node.core.replica.durable import Interval, KnownWriter
from node.core.replica.messages import PAYLOAD_BYTES_MAX, Proposal
from node.core.replica.timing import Timing
from node.model.errors import UsageError
from node.model.ids import NodeId
from node.model.session import NO_SESSION, Entry, EventId

ME = NodeId("me")
TIMING = Timing(resubmit_seconds=0.5, resubmit_seconds_max=4.0)


def make(index: int = -1) -> EventOrder:
    return EventOrder(ME, 3, TIMING, index)


def publish(order: EventOrder, now: float, payload: bytes = b"x") -> Proposal:
    outcome = order.publish(now, payload, 0.0)
    assert isinstance(outcome, Published)
    return outcome.proposal


def entry(index: int, event_id: EventId) -> Entry:
    return Entry(NO_SESSION, index, event_id, b"x")


def foreign(index: int) -> Entry:
    return entry(index, EventId(NodeId("other"), 1, index + 1))


def sequences(proposals: tuple[Proposal, ...]) -> list[int]:
    return [proposal.id.sequence for proposal in proposals]


def test_events_are_numbered_from_one_and_name_the_floor() -> None:
    order = make()
    first, second = publish(order, 0), publish(order, 0)
    assert first.id == EventId(ME, 3, 1)
    assert (second.id.sequence, second.floor) == (2, 1)
    assert order.written == order.unacknowledged == 2


def test_an_event_is_acknowledged_when_it_is_seen_committed() -> None:
    order = make()
    proposal = publish(order, 0)
    outcome = order.receive(1.0, (foreign(0), entry(1, proposal.id)))
    assert isinstance(outcome, Released)
    assert outcome.acknowledged == (proposal.id,)
    assert order.unacknowledged == 0
    assert publish(order, 1.0).floor == 2


def test_events_of_another_life_acknowledge_nothing() -> None:
    order = make()
    publish(order, 0)
    outcome = order.receive(1.0, (entry(0, EventId(ME, 2, 1)),))
    assert outcome == Released((entry(0, EventId(ME, 2, 1)),), ())
    assert order.unacknowledged == 1


def test_the_outbox_is_offered_again_in_order_and_ever_more_seldom() -> None:
    order = make()
    publish(order, 0)
    publish(order, 0)
    offers = [tenth / 10 for tenth in range(200) if order.tick(tenth / 10)]
    assert offers == [0.5, 1.5, 3.5, 7.5, 11.5, 15.5, 19.5]
    assert order.resends == len(offers)
    assert sequences(order.session_began(20.0)) == [1, 2]


def test_progress_makes_it_hurry_again() -> None:
    order = make()
    first = publish(order, 0)
    publish(order, 0)
    assert order.tick(0.5)
    assert order.tick(1.5)
    order.receive(2.0, (entry(0, first.id),))
    assert order.resends == 0
    again = order.tick(2.5)
    assert sequences(again) == [2]
    assert again[0].floor == 2


def test_a_new_session_has_everything_offered_at_once() -> None:
    order = make()
    for _ in range(RESEND_MAX + 5):
        publish(order, 0)
    assert sequences(order.session_began(0.1)) == list(range(1, RESEND_MAX + 1))
    assert order.tick(0.2) == ()
    assert order.tick(0.6)


def test_nothing_is_offered_while_nothing_waits() -> None:
    order = make()
    assert order.tick(99.0) == ()
    assert order.session_began(99.0) == ()
    assert order.oldest_seconds(99.0) == 0.0


def test_a_full_outbox_takes_no_more() -> None:
    order = make()
    for _ in range(OUTBOX_MAX):
        publish(order, 0)
    assert order.publish(1.0, b"x", 0.0) == OutboxFull(OUTBOX_MAX)
    assert order.oldest_seconds(3.0) == 3.0


def test_an_event_too_large_for_a_frame_is_not_taken() -> None:
    order = make()
    with pytest.raises(UsageError, match="allowed"):
        order.publish(0, b"x" * (PAYLOAD_BYTES_MAX + 1), 0.0)
    assert order.unacknowledged == 0


def test_entries_are_released_once_and_in_order() -> None:
    order = make(index=4)
    assert order.receive(0, (foreign(6),)) == Gap(5, 5)
    assert order.receive(0, (foreign(5), foreign(6))) == Released((foreign(5), foreign(6)), ())
    assert order.receive(0, (foreign(5), foreign(6))) == Duplicate()
    assert order.receive(0, ()) == Duplicate()
    assert order.receive(0, (foreign(6), foreign(7))) == Released((foreign(7),), ())
    assert order.index == 7


def test_withdrawn_entries_are_released_again() -> None:
    order = make()
    order.receive(0, (foreign(0), foreign(1), foreign(2)))
    order.rewind(1)
    assert order.index == 0
    assert isinstance(order.receive(0, (foreign(1),)), Released)
    order.rewind(9)
    assert order.index == 1


def test_a_snapshot_settles_the_events_it_stands_for() -> None:
    order = make()
    proposals = [publish(order, 0) for _ in range(4)]
    known = (
        KnownWriter(ME, 2, (Interval(1, 9),)),
        KnownWriter(ME, 3, (Interval(1, 2), Interval(4, 4))),
        KnownWriter(NodeId("other"), 3, (Interval(1, 9),)),
    )
    settled = order.install(1.0, 50, known)
    assert settled == (proposals[0].id, proposals[1].id, proposals[3].id)
    assert order.index == 50
    assert sequences(order.session_began(1.0)) == [3]


def test_a_waiting_event_can_be_replaced_and_keeps_its_place() -> None:
    order = make()
    first, second = publish(order, 0, b"one"), publish(order, 0, b"two")
    assert order.replace(first.id, b"withdrawn")
    assert [proposal.payload for proposal in order.session_began(0)] == [b"withdrawn", b"two"]
    order.receive(0, (entry(0, second.id),))
    assert not order.replace(second.id, b"too late")
    assert not order.replace(EventId(ME, 2, 1), b"another life")


def test_another_cluster_gets_none_of_the_old_events() -> None:
    order = make(index=7)
    publish(order, 0)
    order.abandon()
    assert (order.unacknowledged, order.index) == (0, -1)
    fresh = publish(order, 1.0)
    assert (fresh.id.sequence, fresh.floor) == (2, 2)
