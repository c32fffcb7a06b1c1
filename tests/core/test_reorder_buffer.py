from node.core.intervals import IntervalSet
from node.core.reorder_buffer import Duplicate, Gap, Released, ReorderBuffer
from node.model.ids import NodeId
from node.model.session import EventId


class Writer:
    """Offers the sequences of one writer, and appends what is released."""

    def __init__(self, held_max: int = 8, origin: str = "a", incarnation: int = 1) -> None:
        self.buffer: ReorderBuffer[int] = ReorderBuffer(held_max)
        self.present = IntervalSet()
        self.origin, self.incarnation = NodeId(origin), incarnation

    def offer(self, sequence: int, floor: int = 1) -> Released[int] | Duplicate | Gap:
        event_id = EventId(self.origin, self.incarnation, sequence)
        outcome = self.buffer.offer(event_id, floor, sequence, self.present)
        if isinstance(outcome, Released):
            for item in outcome.items:
                self.present.add(item)
        return outcome


def test_items_in_order_pass_at_once() -> None:
    writer = Writer()
    assert [writer.offer(sequence) for sequence in (1, 2, 3)] == [
        Released((1,)),
        Released((2,)),
        Released((3,)),
    ]


def test_a_later_item_waits_for_the_missing_one() -> None:
    writer = Writer()
    assert writer.offer(3) == Gap(1)
    assert writer.offer(2) == Gap(1)
    assert writer.buffer.held == 2
    assert writer.offer(1) == Released((1, 2, 3))
    assert writer.buffer.held == 0


def test_an_item_in_the_log_is_a_duplicate() -> None:
    writer = Writer()
    writer.offer(1)
    assert writer.offer(1) == Duplicate()


def test_the_floor_says_that_earlier_items_need_not_come() -> None:
    writer = Writer()
    assert writer.offer(5) == Gap(1)
    assert writer.offer(6, floor=5) == Released((5, 6))


def test_items_below_a_raised_floor_are_dropped() -> None:
    writer = Writer()
    assert writer.offer(3) == Gap(1)
    assert writer.offer(7, floor=6) == Gap(6)
    assert writer.buffer.held == 1
    assert writer.offer(3, floor=1) == Duplicate()


def test_what_entered_the_log_by_another_way_is_passed_over() -> None:
    writer = Writer()
    assert writer.offer(4) == Gap(1)
    assert writer.offer(2) == Gap(1)
    writer.present.add(2)
    writer.present.add(3)
    assert writer.offer(1) == Released((1, 4))
    assert writer.buffer.held == 0


def test_a_full_buffer_drops_the_latest_and_never_what_is_next() -> None:
    writer = Writer(held_max=2)
    assert writer.offer(3) == Gap(1)
    assert writer.offer(4) == Gap(1)
    assert writer.offer(2) == Gap(1)
    assert writer.buffer.held == 2
    assert writer.offer(1) == Released((1, 2, 3))
    assert writer.offer(4) == Released((4,))


def test_a_new_life_of_a_writer_replaces_the_old_one() -> None:
    writer = Writer()
    assert writer.offer(2) == Gap(1)
    writer.incarnation, writer.present = 2, IntervalSet()
    assert writer.offer(1) == Released((1,))
    assert writer.buffer.held == 0
    writer.incarnation = 1
    assert writer.offer(1) == Duplicate()


def test_writers_do_not_wait_for_each_other() -> None:
    writer = Writer()
    assert writer.offer(2) == Gap(1)
    writer.origin, writer.present = NodeId("b"), IntervalSet()
    assert writer.offer(1) == Released((1,))


def test_an_item_that_came_into_the_log_by_another_way_waits_no_more() -> None:
    writer = Writer()
    writer.offer(2)
    writer.offer(3)
    writer.buffer.forget(EventId(NodeId("a"), 1, 2))
    writer.buffer.forget(EventId(NodeId("a"), 2, 3))  # of another life
    writer.buffer.forget(EventId(NodeId("b"), 1, 3))  # of another writer
    assert writer.buffer.held == 1
