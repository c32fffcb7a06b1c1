"""Store, inbox, frame clock and conversation: the parts between node and screen."""

from collections.abc import Callable
from typing import cast

import msgspec
import pytest

from node.handle import Lagged
from node.model.errors import Failure, UnreachableError
from node.model.event import ProposalRejected
from node.model.ids import ClusterId, ModelId, RequestId
from node.model.register import MachineFigures, Register
from node.model.request import (
    Delta,
    Failed,
    Finished,
    FinishReason,
    Prefilled,
    Queued,
    Usage,
)
from node.model.session import EventId, Rewind, SessionStarted
from node.model.state import Snapshot
from tests.fakes.cluster import NOW, three_node_cluster
from tests.fakes.history import history, trouble
from tui.bridge import inbox as inbox_module
from tui.bridge.conversation import TURNS_MAX, Conversation
from tui.bridge.frame_clock import FrameClock
from tui.bridge.inbox import Connected, Disconnected, Generated, Inbox, Streamed
from tui.bridge.rates import History, Rate
from tui.bridge.store import ALL, EVENTS_MAX, REJECTION_SECONDS, ClusterStore
from tui.context import Context
from tui.timers import Timers

REQUEST = RequestId("q-0000000000000001")


class Wall:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def connected_store() -> tuple[ClusterStore, Wall]:
    wall = Wall()
    store = ClusterStore(wall)
    store.accept(Connected(*three_node_cluster()))
    return store, wall


def test_history_from_before_the_connection_does_not_count_as_a_rate() -> None:
    store, _ = connected_store()
    for entry in history(store.state):
        store.accept(Streamed(entry, store.state))
    assert store.event_rate.value(NOW) == 0.0
    for entry in trouble(store.state):
        assert "events" in store.accept(Streamed(entry, store.state))
    assert store.event_rate.value(NOW) > 0


def test_an_entry_twice_is_held_once_and_a_rewind_takes_back() -> None:
    store, _ = connected_store()
    entries = history(store.state)
    for entry in [*entries, *entries[-3:]]:
        store.accept(Streamed(entry, store.state))
    assert len(store.events) == len(entries)
    cut = entries[-4].index
    assert store.accept(Streamed(Rewind(cut), store.state)) == ALL
    assert store.events[-1].index == cut - 1


def test_a_register_touches_its_topics_and_replaces_the_older_one() -> None:
    store, _ = connected_store()
    node = next(iter(store.state.nodes))
    held = store.registers[node, "MachineFigures"]
    assert isinstance(held.value, MachineFigures)
    newer = Register(
        node=node,
        incarnation=1,
        sequence=2,
        value=msgspec.structs.replace(held.value, memory_bytes_available=0),
    )
    before = store.view
    assert store.accept(Streamed(newer, store.state)) == frozenset(("nodes",))
    assert store.view is not before
    assert store.view.nodes[0].memory_fraction == 1.0


def test_what_was_skipped_is_counted() -> None:
    store, _ = connected_store()
    store.accept(Streamed(Lagged(skipped=1204), store.state))
    assert store.accept(Streamed(Snapshot(state=store.state), store.state)) == ALL
    assert store.skipped == 1204
    assert "session" in store.accept(Streamed(SessionStarted(store.state.session), store.state))


def test_age_is_told_after_three_seconds_and_at_once_where_the_node_is_gone() -> None:
    store, wall = connected_store()
    wall.now += 2
    assert store.stale_seconds == 0
    wall.now += 2
    assert store.stale_seconds == pytest.approx(4)
    store.accept(Streamed(SessionStarted(store.state.session), store.state))
    wall.now += 1
    store.accept(Disconnected(UnreachableError.because("gone", "gone").failure, 0.5))
    assert store.stale_seconds == pytest.approx(1)


def test_events_are_bounded() -> None:
    assert ClusterStore(Wall()).events.maxlen == EVENTS_MAX


def test_inbox_wakes_once_until_it_is_emptied_and_loses_only_of_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox_module, "ITEMS_MAX", 3)
    state, registers = three_node_cluster()
    woken: list[int] = []
    inbox = Inbox(lambda: woken.append(1))
    connected, end = Connected(state, registers), Generated(REQUEST, None)
    entries = [Streamed(entry, state) for entry in history(state)[:7]]
    inbox.put(connected)
    for entry in entries:
        inbox.put(entry)
    inbox.put(end)
    assert len(woken) == 1
    assert inbox.lost_total == 4
    lagged = Streamed(Lagged(skipped=4), state)
    assert inbox.take() == [connected, lagged, *entries[4:], end]
    assert inbox.is_empty
    inbox.put(end)
    assert inbox.take() == [end]
    assert len(woken) == 2


class Scheduler:
    def __init__(self) -> None:
        self.now = 100.0
        self.due: list[tuple[float, object]] = []
        self.painted: list[frozenset[str]] = []
        self.clock = FrameClock(self._after, self.painted.append, lambda: self.now)

    def _after(self, seconds: float, call: object) -> None:
        self.due.append((self.now + seconds, call))

    def run(self) -> None:
        while self.due:
            at, call = self.due.pop(0)
            self.now = max(self.now, at)
            assert callable(call)
            call()


def test_many_changes_make_one_frame_and_ten_frames_a_second_at_most() -> None:
    scheduler = Scheduler()
    for _ in range(1000):
        scheduler.clock.mark(frozenset(("events",)))
    scheduler.clock.mark(frozenset(("nodes",)))
    assert len(scheduler.due) == 1
    scheduler.run()
    assert scheduler.painted == [frozenset(("events", "nodes"))]
    start = scheduler.now
    for _ in range(20):
        scheduler.clock.mark(frozenset(("events",)))
        scheduler.run()
    assert scheduler.now - start == pytest.approx(2.0)


def test_a_clean_clock_runs_no_timer() -> None:
    scheduler = Scheduler()
    scheduler.clock.mark(frozenset())
    assert scheduler.due == []
    assert scheduler.clock.is_clean


def test_rate_sinks_while_nothing_happens() -> None:
    rate = Rate(span_seconds=2.0)
    for second in range(20):
        rate.add(100, float(second))
    steady = rate.value(19.0)
    assert 90 < steady < 150
    assert rate.value(29.0) < 1
    assert Rate().value(5.0) == 0


def test_history_holds_one_value_a_step() -> None:
    history = History(3)
    for step, value in enumerate((1.0, 2.0, 3.0, 4.0)):
        history.add(value, float(step))
    history.add(9.0, 3.2)
    assert list(history.values) == [2.0, 3.0, 9.0]
    assert history.peak == 9.0


def conversation_with_question() -> Conversation:
    conversation = Conversation()
    conversation.model = ModelId("smollm2-135m-instruct")
    request = conversation.ask("Why?", REQUEST, NOW)
    assert [message.role for message in request.messages] == ["user"]
    return conversation


def usage(tokens: int) -> Usage:
    return Usage(prompt_tokens=12, output_tokens=tokens, decode_seconds=2.0)


def test_an_answer_grows_and_carries_its_figures() -> None:
    conversation = conversation_with_question()
    conversation.accept(Generated(REQUEST, Queued(ahead=2)), NOW)
    assert conversation.turns[-1].progress == "queued, 2 ahead"
    conversation.accept(Generated(REQUEST, Prefilled(done=6, total=12)), NOW)
    assert "6 of 12" in conversation.turns[-1].progress
    for place in range(5):
        delta = Delta(index=place, text=f"w{place} ", tokens=(place,))
        conversation.accept(Generated(REQUEST, delta), NOW + 0.5 + place * 0.1)
    turn = conversation.turns[-1]
    assert turn.text == "w0 w1 w2 w3 w4 "
    assert turn.first_seconds == pytest.approx(0.5)
    assert turn.speed == pytest.approx(10.0)
    finished = Finished(reason=FinishReason.STOP, usage=usage(41))
    conversation.accept(Generated(REQUEST, finished), NOW + 2)
    conversation.accept(Generated(REQUEST, None), NOW + 2)
    assert turn.speed == pytest.approx(20.0)
    assert not conversation.is_generating
    assert not turn.is_stopped


def test_an_answer_that_is_stopped_keeps_what_it_has() -> None:
    conversation = conversation_with_question()
    conversation.accept(Generated(REQUEST, Delta(index=0, text="half")), NOW)
    conversation.accept(Generated(REQUEST, None), NOW)
    assert conversation.turns[-1].is_stopped
    assert conversation.turns[-1].text == "half"


def test_a_failed_answer_is_not_told_to_the_model_again() -> None:
    conversation = conversation_with_question()
    failed = Failed(kind="BusyError", failure=Failure(code="busy", message="the queue is full"))
    conversation.accept(Generated(REQUEST, failed), NOW)
    conversation.accept(Generated(REQUEST, None), NOW)
    request = conversation.ask("Again?", RequestId("q-2"), NOW)
    assert [message.content for message in request.messages] == ["Again?"]


def test_items_of_another_request_change_nothing() -> None:
    conversation = conversation_with_question()
    other = Generated(RequestId("q-other"), Delta(index=0, text="stray"))
    assert conversation.accept(other, NOW) == frozenset()
    assert conversation.turns[-1].text == ""


def test_retry_drops_the_answer_and_asks_the_same() -> None:
    conversation = conversation_with_question()
    assert conversation.retry(RequestId("q-2"), NOW) is None
    conversation.accept(Generated(REQUEST, Delta(index=0, text="bad")), NOW)
    conversation.accept(Generated(REQUEST, None), NOW)
    again = conversation.retry(RequestId("q-2"), NOW)
    assert again is not None
    assert [message.content for message in again.messages] == ["Why?"]
    assert conversation.turns[-1].text == ""


def test_turns_are_bounded() -> None:
    conversation = conversation_with_question()
    conversation.accept(Generated(REQUEST, None), NOW)
    for number in range(TURNS_MAX):
        request = RequestId(f"q-{number}")
        conversation.ask("more", request, NOW)
        conversation.accept(Generated(request, None), NOW)
    assert len(conversation.turns) <= TURNS_MAX


def test_another_cluster_begins_with_an_empty_log_and_without_strangers_figures() -> None:
    store, _ = connected_store()
    entries = history(store.state)
    for entry in entries:
        store.accept(Streamed(entry, store.state))
    before = store.events_version
    here = next(iter(store.state.nodes))
    other = msgspec.structs.replace(
        store.state,
        cluster=ClusterId("c-other"),
        index=3,
        nodes={here: store.state.nodes[here]},
    )
    store.accept(Streamed(Snapshot(state=other), other))
    assert list(store.events) == []
    assert store.events_version > before
    assert {node for node, _ in store.registers} == {here}
    first = msgspec.structs.replace(entries[0], index=4)
    store.accept(Streamed(first, other))
    assert list(store.events) == [first]


def test_a_reconnection_to_an_earlier_index_drops_the_later_entries() -> None:
    store, _ = connected_store()
    for entry in history(store.state):
        store.accept(Streamed(entry, store.state))
    earlier = msgspec.structs.replace(store.state, index=store.events[0].index)
    store.accept(Connected(earlier, store.registers))
    assert list(store.events) == []


def test_a_question_without_an_answer_in_words_is_left_out_with_it() -> None:
    conversation = conversation_with_question()
    conversation.accept(Generated(REQUEST, Delta(index=0, reasoning="hm", tokens=(1,))), NOW)
    conversation.accept(Generated(REQUEST, None), NOW)
    second = RequestId("q-2")
    request = conversation.ask("Two?", second, NOW)
    assert [message.content for message in request.messages] == ["Two?"]
    conversation.accept(Generated(second, Delta(index=0, text="yes")), NOW)
    conversation.accept(Generated(second, None), NOW)
    request = conversation.ask("Three?", RequestId("q-3"), NOW)
    assert [message.content for message in request.messages] == ["Two?", "yes", "Three?"]


def test_a_graph_moves_on_while_nothing_comes() -> None:
    history = History(60)
    for second in range(5):
        history.add(30.0, float(second))
    assert history.shown(4.0) == [30.0] * 5
    assert history.shown(8.0) == [30.0] * 5
    assert history.shown(24.0)[-10:] == [0.0] * 10
    assert history.shown(3600.0) == [0.0] * 60
    history.add(7.0, 3600.0)
    assert list(history.values) == [*[0.0] * 59, 7.0]


class StillScreen:
    """A context and its timers on a clock of its own."""

    def __init__(self) -> None:
        self.wall = Wall()
        self.store = ClusterStore(self.wall)
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.seen: list[float] = []
        self.timers = Timers(cast("Context", self), self._start)

    def _start(self, seconds: float, call: Callable[[], None]) -> None:
        self.due.append((self.wall.now + seconds, call))

    def mark(self, _topics: frozenset[str]) -> None:
        self.seen.append(self.store.stale_seconds)
        self.timers.watch_age()

    def go_on(self, until: float) -> None:
        while self.due and self.due[0][0] <= until:
            self.wall.now, call = self.due.pop(0)
            call()
        self.wall.now = until


@pytest.mark.parametrize("period", [0.25, 0.7, 2.0])
def test_figures_that_stop_coming_are_noticed_whenever_they_stop(period: float) -> None:
    screen = StillScreen()
    screen.store.accept(Connected(*three_node_cluster()))
    for _ in range(11):
        screen.store.accept(
            Streamed(SessionStarted(screen.store.state.session), screen.store.state)
        )
        screen.timers.watch_age()
        screen.go_on(screen.wall.now + period)
    assert screen.seen == []
    screen.go_on(screen.wall.now + 60.0)
    assert 3.0 < screen.seen[0] < 7.0
    assert len(screen.seen) > 10


def test_a_withdrawn_command_is_told_of_for_ten_minutes_and_never_before_a_failure() -> None:
    store, wall = connected_store()
    node = next(iter(store.state.nodes))
    failure = Failure(code="no_fit", message="phi-4 no longer fits")
    rejected = ProposalRejected(id=EventId(node, 1, 7), asked_by=node, failure=failure)
    store.accept(
        Connected(msgspec.structs.replace(store.state, rejections=(rejected,)), store.registers)
    )
    titles = [notice.title for notice in store.view.notices]
    assert "Withdrawn after a partition" in titles
    order = [("bad", "warn").index(n.level) for n in store.view.notices if n.level != "idle"]
    assert order == sorted(order)
    wall.now += REJECTION_SECONDS + 1
    store.forget_view()
    assert "Withdrawn after a partition" not in [notice.title for notice in store.view.notices]
