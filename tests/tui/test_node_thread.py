"""The node's thread: connecting, following, calling, losing it, coming back, ending."""

import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from node.handle import LocalView, NodeHandle
from node.model.errors import (
    BusyError,
    ConflictError,
    ExoctlError,
    InternalError,
    TimeoutExpiredError,
    UnreachableError,
)
from node.model.ids import ModelId, RequestId
from node.model.request import Delta, Failed, GenerationRequest, Message
from tests.fakes.cluster import three_node_cluster
from tests.fakes.handle import FakeHandle
from tests.fakes.history import history, trouble
from tui.bridge import node_thread
from tui.bridge.inbox import (
    Answered,
    Connected,
    Disconnected,
    Ended,
    Generated,
    Inbox,
    InboxItem,
    Streamed,
)
from tui.bridge.node_thread import CALLS_MAX, Connector, NodeThread

DEADLINE_SECONDS = 10.0


class Reader:
    """Collects what comes to the inbox, on the test's thread."""

    def __init__(self) -> None:
        self.woken = threading.Condition()
        self.inbox = Inbox(self._wake)
        self.items: list[InboxItem] = []
        self._waiting: list[InboxItem] = []

    def _wake(self) -> None:
        with self.woken:
            self.woken.notify_all()

    def until(self, wanted: Callable[[InboxItem], bool]) -> InboxItem:
        end = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < end:
            self._waiting += self.inbox.take()
            while self._waiting:
                item = self._waiting.pop(0)
                self.items.append(item)
                if isinstance(item, Answered):
                    item.reply(item.result)
                if wanted(item):
                    return item
            with self.woken:
                self.woken.wait(0.05)
        raise AssertionError(f"never came; came: {[type(item).__name__ for item in self.items]}")

    def until_type(self, kind: type[InboxItem]) -> InboxItem:
        return self.until(lambda item: isinstance(item, kind))


class Nodes:
    """Opens fake nodes one after another, each with its way to fail."""

    def __init__(self, *failures: ExoctlError | None, kind: type[FakeHandle] = FakeHandle) -> None:
        self.kind = kind
        self.failures = list(failures)
        self.handles: list[FakeHandle] = []
        self.closed = 0

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[NodeHandle]:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        cluster = three_node_cluster()
        handle = self.kind(cluster, history(cluster[0]))
        self.handles.append(handle)
        try:
            yield handle
        finally:
            self.closed += 1
            handle.close()


def run(connector: Connector, reader: Reader, *, is_embedded: bool = True) -> NodeThread:
    thread = NodeThread(connector, reader.inbox, is_embedded=is_embedded)
    thread.start()
    return thread


def test_it_tells_state_history_local_facts_and_what_happens_then() -> None:
    reader, nodes = Reader(), Nodes()
    thread = run(nodes.connect, reader)
    connected = reader.until_type(Connected)
    assert isinstance(connected, Connected)
    assert len(connected.state.nodes) == 3
    reader.until_type(LocalView)
    past = history(connected.state)
    reader.until(lambda item: isinstance(item, Streamed) and item.item == past[-1])
    handle = nodes.handles[0]
    new = trouble(connected.state)[0]
    thread.call(lambda _node: publish(handle, new), lambda _result: None)
    item = reader.until(lambda item: isinstance(item, Streamed) and item.item == new)
    assert isinstance(item, Streamed)
    assert item.state.index == new.index
    thread.close()
    assert nodes.closed == 1


async def publish(handle: FakeHandle, item: object) -> None:
    handle.publish(item)  # type: ignore[arg-type]


def test_results_and_errors_of_calls_come_back_on_the_screens_thread() -> None:
    reader, nodes = Reader(), Nodes()
    thread = run(nodes.connect, reader)
    reader.until_type(Connected)
    got: list[tuple[object, str]] = []

    def reply(result: object) -> None:
        got.append((result, threading.current_thread().name))

    thread.call(lambda node: node.log_sources(), reply)
    reader.until_type(Answered)
    nodes.handles[0].failure = BusyError.because("busy", "no room")
    thread.call(lambda node: node.leave(), reply)
    reader.until_type(Answered)
    thread.close()
    assert got[0] == (
        sorted({"election", "membership", "router", "worker", "runner r-0b1d9e00"}),
        "MainThread",
    )
    assert isinstance(got[1][0], BusyError)


def test_calls_are_bounded() -> None:
    reader, nodes = Reader(), Nodes()
    thread = run(nodes.connect, reader)
    reader.until_type(Connected)
    results: list[object] = []
    for _ in range(CALLS_MAX + 1):
        thread.call(lambda _node: anyio.sleep_forever(), results.append)
    reader.until_type(Answered)
    assert isinstance(results[0], BusyError)
    thread.close()


def request() -> GenerationRequest:
    return GenerationRequest(
        id=RequestId("q-0000000000000001"),
        model=ModelId("llama-3.3-70b-4bit"),
        messages=(Message(role="user", content="why"),),
    )


def test_generated_items_come_in_order_and_end() -> None:
    reader, nodes = Reader(), Nodes()
    thread = run(nodes.connect, reader)
    reader.until_type(Connected)
    thread.generate(request())
    reader.until(lambda item: isinstance(item, Generated) and item.item is None)
    items = [item.item for item in reader.items if isinstance(item, Generated)]
    assert type(items[0]).__name__ == "Prefilled"
    assert type(items[-2]).__name__ == "Finished"
    thread.close()


def test_a_generation_that_fails_tells_why_and_ends() -> None:
    reader, nodes = Reader(), Nodes()
    thread = run(nodes.connect, reader)
    reader.until_type(Connected)
    nodes.handles[0].failure = BusyError.because("queue_full", "8 of 8 wait")
    thread.generate(request())
    reader.until(lambda item: isinstance(item, Generated) and item.item is None)
    failed = next(item.item for item in reader.items if isinstance(item, Generated))
    assert isinstance(failed, Failed)
    assert failed.failure.message == "8 of 8 wait"
    thread.close()


def test_a_node_that_cannot_start_ends_it_with_the_error() -> None:
    reader = Reader()
    nodes = Nodes(ConflictError.because("port_taken", "port 52415 is taken"))
    thread = run(nodes.connect, reader)
    ended = reader.until_type(Ended)
    assert isinstance(ended, Ended)
    assert isinstance(ended.error, ConflictError)
    thread.close()


def test_an_embedded_node_that_is_told_to_end_ends_the_app_without_error() -> None:
    reader, nodes = Reader(), Nodes()
    thread = run(nodes.connect, reader)
    reader.until_type(Connected)
    handle = nodes.handles[0]
    thread.call(lambda _node: close(handle), lambda _result: None)
    ended = reader.until_type(Ended)
    assert isinstance(ended, Ended)
    assert ended.error is None
    assert nodes.closed == 1
    thread.close()


async def close(handle: FakeHandle) -> None:
    handle.end()


def test_an_attached_node_that_goes_is_tried_again_until_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_thread, "RETRY_SECONDS", (0.01, 0.02))
    reader = Reader()
    gone = UnreachableError.because("refused", "127.0.0.1:52415 does not answer")
    nodes = Nodes(None, gone, gone, None)
    thread = run(nodes.connect, reader, is_embedded=False)
    reader.until_type(Connected)
    handle = nodes.handles[0]
    thread.call(lambda _node: close(handle), lambda _result: None)
    reader.until_type(Disconnected)
    lost = reader.until(
        lambda item: isinstance(item, Disconnected) and "does not answer" in item.failure.message
    )
    assert isinstance(lost, Disconnected)
    reader.until_type(Connected)
    assert len(nodes.handles) == 2
    thread.close()


def test_nobody_at_the_first_try_is_an_error_and_not_a_wait() -> None:
    reader = Reader()
    nodes = Nodes(UnreachableError.because("refused", "nobody there"))
    thread = run(nodes.connect, reader, is_embedded=False)
    ended = reader.until_type(Ended)
    assert isinstance(ended, Ended)
    assert isinstance(ended.error, UnreachableError)
    thread.close()


def test_a_screen_that_does_not_read_never_holds_up_the_node() -> None:
    reader, nodes = Reader(), Nodes()
    thread = run(nodes.connect, reader)
    end = time.monotonic() + DEADLINE_SECONDS
    while reader.inbox.put_total < 10 and time.monotonic() < end:
        with reader.woken:
            reader.woken.wait(0.05)
    assert reader.inbox.put_total >= 10
    assert reader.items == []
    thread.close()
    assert nodes.closed == 1


def test_a_node_whose_loop_stands_still_never_holds_up_the_screen() -> None:
    begun, may_go = threading.Event(), threading.Event()
    answers: list[object] = []

    async def stand_still(handle: NodeHandle) -> object:
        begun.set()
        may_go.wait(10)
        return handle.state.index

    async def later(handle: NodeHandle) -> object:
        return handle.state.master

    reader = Reader()
    thread = run(Nodes().connect, reader)
    reader.until_type(Connected)
    thread.call(stand_still, answers.append)
    assert begun.wait(DEADLINE_SECONDS)
    started = time.monotonic()
    thread.call(later, answers.append)
    thread.generate(GenerationRequest(id=RequestId("q-1"), model=ModelId("m"), messages=()))
    thread.stop_generating(RequestId("q-1"))
    waited = time.monotonic() - started
    may_go.set()
    reader.until(lambda _: len(answers) == 2)
    thread.close()
    assert waited < 1.0  # the loop would have stood still for ten


def test_closing_twice_and_closing_before_the_start_are_fine() -> None:
    reader, nodes = Reader(), Nodes()
    NodeThread(nodes.connect, reader.inbox, is_embedded=True).close()
    thread = run(nodes.connect, reader)
    thread.close()
    thread.close()


async def fail_by_mistake(_node: NodeHandle) -> object:
    raise AssertionError("not opened")


def test_a_mistake_in_a_call_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    reader, nodes = Reader(), Nodes()
    thread = run(nodes.connect, reader)
    reader.until_type(Connected)
    results: list[object] = []
    for _ in range(CALLS_MAX + 2):
        thread.call(fail_by_mistake, results.append)
        reader.until_type(Answered)
    thread.close()
    assert all(isinstance(result, InternalError) for result in results)
    assert "not opened" in str(results[-1])
    assert "mistake" in caplog.text


class MistakenHandle(FakeHandle):
    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Delta, None]:
        yield Delta(index=0, text="half")
        raise AssertionError("not opened")


def test_a_mistake_while_generating_ends_the_answer_with_why() -> None:
    reader, nodes = Reader(), Nodes(kind=MistakenHandle)
    thread = run(nodes.connect, reader)
    reader.until_type(Connected)
    thread.generate(request())
    reader.until(lambda item: isinstance(item, Generated) and item.item is None)
    thread.close()
    failed = [item.item for item in reader.items if isinstance(item, Generated)][-2]
    assert isinstance(failed, Failed)
    assert "not opened" in failed.failure.message


def test_calls_are_answered_while_the_node_is_gone_and_after_it_came_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_thread, "RETRY_SECONDS", (0.2,))
    reader = Reader()
    nodes = Nodes(None, UnreachableError.because("refused", "nobody there"), None)
    thread = run(nodes.connect, reader, is_embedded=False)
    reader.until_type(Connected)
    first = nodes.handles[0]
    thread.call(lambda _node: close(first), lambda _result: None)
    reader.until_type(Disconnected)
    used: list[object] = []

    async def use(node: NodeHandle) -> None:
        used.append(node)

    results: list[object] = []
    thread.call(use, results.append)
    reader.until_type(Answered)
    assert isinstance(results[0], UnreachableError)
    assert used == []
    reader.until_type(Connected)
    thread.call(use, results.append)
    reader.until_type(Answered)
    thread.close()
    assert results[1] is None
    assert used == [nodes.handles[1]]


def test_a_node_that_does_not_end_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_thread, "STOP_SECONDS", 0.2)
    monkeypatch.setattr(node_thread, "THREAD_SECONDS", 0.2)
    reader, nodes = Reader(), Nodes()
    let_go = threading.Event()

    @asynccontextmanager
    async def connect() -> AsyncGenerator[NodeHandle]:
        async with nodes.connect() as handle:
            try:
                yield handle
            finally:
                let_go.wait(DEADLINE_SECONDS)

    thread = run(connect, reader)
    reader.until_type(Connected)
    start = time.monotonic()
    with pytest.raises(TimeoutExpiredError):
        thread.close()
    thread.close()
    assert time.monotonic() - start < DEADLINE_SECONDS / 2
    let_go.set()
    held = next(item for item in threading.enumerate() if item.name == "node")
    held.join(DEADLINE_SECONDS)
    assert not held.is_alive()
