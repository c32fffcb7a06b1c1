"""The app over a fake node that answers at once, without threads: for tests and pictures."""

from collections.abc import Coroutine
from typing import Any, cast

from node.model.errors import ExoctlError
from node.model.ids import RequestId
from node.model.request import Failed, GenerationRequest
from node.model.session import Entry
from tests.fakes.cluster import NOW, Cluster
from tests.fakes.handle import FakeHandle
from tests.fakes.history import history
from tui.app import ExoctlApp
from tui.app_options import AppOptions
from tui.bridge.inbox import Answered, Connected, Generated, Inbox, Streamed
from tui.bridge.node_thread import Reply, Work


def _finish(work: Coroutine[Any, Any, object]) -> object:
    """Run a coroutine that never really waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the fake node waits for something")


class StillNode:
    """A `NodeLink` over a fake handle: every call is answered before it returns."""

    def __init__(self, handle: FakeHandle, inbox: Inbox) -> None:
        self.handle = handle
        self.inbox = inbox
        self.generated: list[GenerationRequest] = []
        self.stopped: list[RequestId] = []
        self.items_max = 10_000

    def call(self, work: Work, reply: Reply) -> None:
        result: object
        try:
            result = _finish(cast("Coroutine[Any, Any, object]", work(self.handle)))
        except ExoctlError as error:
            result = error
        self.inbox.put(Answered(reply, result))

    def generate(self, request: GenerationRequest) -> None:
        self.generated.append(request)
        items = self.handle.generate(request)
        for _ in range(self.items_max):
            try:
                item = _finish(items.__anext__())
            except ExoctlError as error:
                failed = Failed(kind=type(error).__name__, failure=error.failure)
                self.inbox.put(Generated(request.id, failed))
                self.inbox.put(Generated(request.id, None))
                break
            except StopAsyncIteration:
                self.inbox.put(Generated(request.id, None))
                break
            self.inbox.put(Generated(request.id, item))  # type: ignore[arg-type]

    def stop_generating(self, request: RequestId) -> None:
        self.stopped.append(request)
        self.inbox.put(Generated(request, None))


class Screenplay:
    """An app with its fake node; use `app.run_test(size=…)`, then `start`."""

    def __init__(
        self,
        cluster: Cluster,
        options: AppOptions | None = None,
        *,
        node: str = "",
        entries: list[Entry] | None = None,
        is_embedded: bool = True,
        handle: type[FakeHandle] = FakeHandle,
    ) -> None:
        self.now = NOW
        self._steps = 0.0
        self.entries = history(cluster[0]) if entries is None else entries
        self.app = ExoctlApp(
            options or AppOptions(animations=False),
            is_embedded=is_embedded,
            wall=lambda: self.now,
            monotonic=self._step,
            zone_seconds=0.0,
        )
        self.handle = handle(cluster, self.entries, node)
        self.node = StillNode(self.handle, self.app.inbox)
        self.app.attach(self.node)

    def _step(self) -> float:
        """A clock on which every frame is due at once."""
        self._steps += 1.0
        return self._steps

    def start(self) -> None:
        """Have the node answer, with its history."""
        inbox = self.app.inbox
        inbox.put(Connected(self.handle.state, self.handle.registers))
        inbox.put(self.handle.view)
        for entry in self.entries:
            inbox.put(Streamed(entry, self.handle.state))

    def follow(self, entries: list[Entry]) -> None:
        """Have more entries come."""
        for entry in entries:
            self.app.inbox.put(Streamed(entry, self.handle.state))

    def close(self) -> None:
        """Let go of the fake node's stream."""
        self.handle.close()
