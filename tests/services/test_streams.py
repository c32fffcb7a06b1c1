from collections.abc import AsyncGenerator, Callable

import anyio
import anyio.lowlevel
import msgspec
import pytest
from anyio.abc import TaskGroup

from node.io import clock
from node.model.errors import Failure
from node.model.ids import ModelId, NodeId, RequestId
from node.model.request import (
    Delta,
    Failed,
    Finished,
    FinishReason,
    GenerationItem,
    GenerationRequest,
    Usage,
)
from node.services import streams as module
from node.services.background import background_tasks
from node.services.streams import REQUEST_BYTES_MAX, Streams
from node.wire.message import (
    STREAM_WINDOW,
    ServiceMessage,
    StreamClosed,
    StreamItems,
    StreamOpened,
)

READER, SERVER = NodeId("reader"), NodeId("server")
END = Finished(reason=FinishReason.STOP, usage=Usage(prompt_tokens=1, output_tokens=1))


def request(name: str = "q-1") -> GenerationRequest:
    return GenerationRequest(id=RequestId(name), model=ModelId("m"), prompt="hi")


class Wire:
    """Two nodes whose link can be cut; what is sent over a cut link is lost."""

    def __init__(self, tasks: TaskGroup, count: int) -> None:
        self.up = True
        self.losing = False
        """Taken to be sent, and the link breaks before it is."""
        self.cancelled: list[RequestId] = []
        """By the serving node."""
        self.cancelled_by_reader: list[RequestId] = []
        self.closed_generators = 0
        self.count = count
        self.sent: list[ServiceMessage] = []
        self.gate: anyio.Semaphore | None = None
        self.reader = Streams(tasks, self.to_server, self.generate, self.cancelled_by_reader.append)
        self.server = Streams(tasks, self.to_reader, self.generate, self.cancelled.append)

    async def generate(self, _: GenerationRequest) -> AsyncGenerator[GenerationItem, None]:
        try:
            for i in range(self.count):
                if self.gate is not None:
                    await self.gate.acquire()
                yield Delta(index=i, text=str(i), tokens=(i,))
                await anyio.lowlevel.checkpoint()
            yield END
        finally:
            self.closed_generators += 1

    def to_server(self, _: NodeId, message: ServiceMessage) -> bool:
        return self.post(self.server, READER, message)

    def to_reader(self, _: NodeId, message: ServiceMessage) -> bool:
        return self.post(self.reader, SERVER, message)

    def post(self, to: Streams, sender: NodeId, message: ServiceMessage) -> bool:
        self.sent.append(message)
        if self.losing:
            return True
        if self.up:
            to.on_message(sender, message)  # type: ignore[arg-type]
        return self.up

    def cut(self) -> None:
        self.up = False
        self.reader.on_peer_down(SERVER)
        self.server.on_peer_down(READER)

    def mend(self) -> None:
        self.up = True
        self.reader.on_peer_up(SERVER)
        self.server.on_peer_up(READER)


async def until(holds: Callable[[], bool], wire: Wire) -> None:
    with anyio.fail_after(5):
        while not holds():
            wire.server.tick(clock.monotonic())
            await anyio.lowlevel.checkpoint()


def indices(items: list[GenerationItem]) -> list[int]:
    return [item.index for item in items if isinstance(item, Delta)]


async def test_items_arrive_whole_and_in_order_far_beyond_the_window() -> None:
    async with anyio.create_task_group() as tasks:
        wire = Wire(tasks, 5 * STREAM_WINDOW)
        with anyio.fail_after(10):
            items = [item async for item in wire.reader.read(SERVER, request())]
        assert indices(items) == list(range(5 * STREAM_WINDOW))
        assert items[-1] == END
        await until(lambda: wire.reader.open_count + wire.server.open_count == 0, wire)


async def test_a_link_that_comes_back_loses_and_repeats_nothing() -> None:
    async with anyio.create_task_group() as tasks:
        wire = Wire(tasks, 300)
        items: list[GenerationItem] = []
        with anyio.fail_after(10):
            async for item in wire.reader.read(SERVER, request()):
                items.append(item)
                if len(items) % 40 == 0:
                    wire.cut()
                    for _ in range(20):
                        await anyio.lowlevel.checkpoint()
                    wire.mend()
        assert indices(items) == list(range(300))
        assert items[-1] == END


async def test_a_link_that_stays_away_ends_the_stream_with_the_reason() -> None:
    async with anyio.create_task_group() as tasks:
        wire = Wire(tasks, 300)
        wire.gate = anyio.Semaphore(3)
        items: list[GenerationItem] = []
        with anyio.fail_after(10):
            async for item in wire.reader.read(SERVER, request()):
                items.append(item)
                if len(items) == 3:
                    wire.cut()
                    later = clock.monotonic() + module.LINK_LOST_SECONDS + 1
                    wire.reader.tick(later)
                    wire.server.tick(later)
        assert isinstance(items[-1], Failed)
        assert items[-1].failure.code == "node_lost"
        with anyio.fail_after(5):
            while not wire.closed_generators:
                await anyio.lowlevel.checkpoint()


async def test_a_reader_that_goes_away_ends_the_generation() -> None:
    async with anyio.create_task_group() as tasks:
        wire = Wire(tasks, 10_000)
        stream = wire.reader.read(SERVER, request())
        await anext(stream)
        await stream.aclose()
        with anyio.fail_after(5):
            while not wire.closed_generators:
                await anyio.lowlevel.checkpoint()
        assert any(isinstance(message, StreamClosed) for message in wire.sent)
        await until(lambda: wire.server.open_count == 0, wire)


async def test_a_slow_reader_stops_the_sender_at_the_window() -> None:
    async with anyio.create_task_group() as tasks:
        wire = Wire(tasks, 10_000)
        stream = wire.reader.read(SERVER, request())
        await anext(stream)
        for _ in range(3 * STREAM_WINDOW):
            await anyio.lowlevel.checkpoint()
        sent = sum(isinstance(message, StreamItems) for message in wire.sent)
        assert sent <= STREAM_WINDOW + 1
        await stream.aclose()


async def test_cancel_reaches_the_runner_of_the_serving_node() -> None:
    async with anyio.create_task_group() as tasks:
        wire = Wire(tasks, 10_000)
        stream = wire.reader.read(SERVER, request())
        await anext(stream)
        wire.reader.cancel(SERVER, RequestId("q-1"))
        assert wire.cancelled == ["q-1"]
        assert wire.cancelled_by_reader == []
        wire.server.cancel(READER, RequestId("q-2"))
        assert wire.cancelled_by_reader == ["q-2"]
        await stream.aclose()


async def test_a_request_begun_while_its_link_is_down_for_a_moment_is_answered() -> None:
    async with anyio.create_task_group() as tasks:
        wire = Wire(tasks, 3)
        wire.cut()
        items: list[GenerationItem] = []

        async def read() -> None:
            items.extend([item async for item in wire.reader.read(SERVER, request())])

        with anyio.fail_after(10):
            async with anyio.create_task_group() as readers:
                readers.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                assert not items
                wire.mend()
        assert indices(items) == [0, 1, 2]


async def test_a_request_that_was_lost_with_its_link_is_sent_again() -> None:
    async with anyio.create_task_group() as tasks:
        wire = Wire(tasks, 3)
        items: list[GenerationItem] = []

        async def read() -> None:
            items.extend([item async for item in wire.reader.read(SERVER, request())])

        wire.losing = True
        with anyio.fail_after(10):
            async with anyio.create_task_group() as readers:
                readers.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                wire.losing = False
                wire.cut()
                wire.mend()
        assert indices(items) == [0, 1, 2]


async def test_no_link_is_said_at_once() -> None:
    async with anyio.create_task_group() as tasks:
        wire = Wire(tasks, 1)
        wire.up = False
        items = [item async for item in wire.reader.read(SERVER, request())]
        assert [item.failure.code for item in items if isinstance(item, Failed)] == [
            "node_unreachable"
        ]


async def test_a_restarted_server_is_told_apart_from_a_slow_one() -> None:
    async with anyio.create_task_group() as tasks:
        wire = Wire(tasks, 50)
        wire.gate = anyio.Semaphore(2)
        items: list[GenerationItem] = []
        with anyio.fail_after(10):
            async for item in wire.reader.read(SERVER, request()):
                items.append(item)
                if len(items) == 2:
                    wire.cut()
                    wire.server = Streams(
                        tasks, wire.to_reader, wire.generate, wire.cancelled.append
                    )
                    wire.mend()
        assert isinstance(items[-1], Failed)
        assert items[-1].failure.code == "stream_gone"
        tasks.cancel_scope.cancel()


async def test_too_many_streams_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERVED_MAX", 1)
    async with anyio.create_task_group() as tasks:
        wire = Wire(tasks, 10_000)
        first = wire.reader.read(SERVER, request("q-1"))
        await anext(first)
        second = [item async for item in wire.reader.read(SERVER, request("q-2"))]
        assert isinstance(second[-1], Failed)
        assert second[-1].kind == "BusyError"
        await first.aclose()


async def test_messages_of_a_stranger_touch_no_stream() -> None:
    async with anyio.create_task_group() as tasks:
        wire = Wire(tasks, 10)
        wire.gate = anyio.Semaphore(1)
        stream = wire.reader.read(SERVER, request())
        await anext(stream)
        forged = Failed(kind="InternalError", failure=Failure(code="x", message="x"))
        stranger = NodeId("stranger")
        wire.reader.on_message(
            stranger, StreamItems(request=RequestId("q-1"), first=1, items=(forged,))
        )
        wire.server.on_message(stranger, StreamClosed(request=RequestId("q-1")))
        wire.server.on_message(READER, StreamOpened(request=request()))
        for _ in range(20):
            wire.gate.release()
        rest = [item async for item in stream]
        assert rest[-1] == END


async def test_a_link_that_comes_back_to_one_end_too_late_ends_the_stream_at_once() -> None:
    async with anyio.create_task_group() as tasks:
        wire = Wire(tasks, 300)
        wire.gate = anyio.Semaphore(3)
        items: list[GenerationItem] = []
        with anyio.fail_after(5):
            async for item in wire.reader.read(SERVER, request()):
                items.append(item)
                if len(items) == 3:
                    wire.cut()
                    wire.server.tick(clock.monotonic() + module.LINK_LOST_SECONDS + 1)
                    for _ in range(20):
                        await anyio.lowlevel.checkpoint()
                    wire.mend()
        assert indices(items) == [0, 1, 2]
        last = items[-1]
        assert isinstance(last, Failed)
        assert last.failure.code == "link_lost"
        tasks.cancel_scope.cancel()


async def test_a_request_too_large_for_another_node_says_both_sizes() -> None:
    async with background_tasks() as tasks:
        wire = Wire(tasks, 3)
        large = msgspec.structs.replace(request(), prompt="x" * (REQUEST_BYTES_MAX + 1))
        items = [item async for item in wire.reader.read(SERVER, large)]
    (refused,) = items
    assert isinstance(refused, Failed)
    assert (refused.kind, refused.failure.code) == ("UsageError", "request_too_large")
    assert f"{REQUEST_BYTES_MAX:,}" in refused.failure.message
    assert wire.sent == []


async def test_a_mistake_in_one_stream_is_its_own_and_ends_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with background_tasks() as tasks:
        wire = Wire(tasks, 3)

        async def mistaken(_: GenerationRequest) -> AsyncGenerator[GenerationItem]:
            yield Delta(index=0, text="0", tokens=(0,))
            raise ZeroDivisionError

        wire.server = Streams(tasks, wire.to_reader, mistaken, wire.cancelled.append)
        items = [item async for item in wire.reader.read(SERVER, request())]
        assert isinstance(items[-1], Failed)
        assert items[-1].kind == "InternalError"
    assert "ZeroDivisionError" in caplog.text
