import anyio

from node.handle import Lagged
from node.model.session import Rewind
from node.model.state import Snapshot, State
from node.services.feed import READER_ITEMS_MAX, Feed


async def test_every_reader_gets_the_backlog_and_then_what_happens() -> None:
    feed = Feed(lambda: Snapshot(state=State()))
    with feed.reader([Rewind(0)]) as one, feed.reader([]) as two:
        feed.publish(Rewind(1))
        assert [one.receive_nowait(), one.receive_nowait()] == [Rewind(0), Rewind(1)]
        assert two.receive_nowait() == Rewind(1)


async def test_a_reader_that_falls_behind_is_told_and_starts_from_a_snapshot() -> None:
    feed = Feed(lambda: Snapshot(state=State(index=7)))
    with feed.reader([]) as slow, feed.reader([]) as quick:
        for i in range(READER_ITEMS_MAX + 10):
            feed.publish(Rewind(i))
            assert quick.receive_nowait() == Rewind(i)
        seen = [slow.receive_nowait() for _ in range(READER_ITEMS_MAX)]
        assert seen == [Rewind(i) for i in range(READER_ITEMS_MAX)]
        feed.publish(Rewind(99_999))
        assert slow.receive_nowait() == Lagged(10)
        assert slow.receive_nowait() == Snapshot(state=State(index=7))
        feed.publish(Rewind(1))
        assert slow.receive_nowait() == Rewind(1)


async def test_a_backlog_too_long_for_the_buffer_becomes_a_snapshot() -> None:
    feed = Feed(lambda: Snapshot(state=State(index=3)))
    with feed.reader([Rewind(i) for i in range(READER_ITEMS_MAX)]) as reader:
        assert reader.receive_nowait() == Snapshot(state=State(index=3))


async def test_a_reader_that_left_costs_nothing() -> None:
    feed = Feed(lambda: Snapshot(state=State()))
    with feed.reader([]) as reader:
        pass
    feed.publish(Rewind(1))
    try:
        reader.receive_nowait()
    except anyio.ClosedResourceError:
        return
    raise AssertionError("the stream is still open")
