"""The node in its own thread with its own loop: neither it nor the screen can hold up the other."""

import contextlib
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import Any, Protocol

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from node.handle import NodeHandle
from node.model.errors import BusyError, ExoctlError, TimeoutExpiredError, UnreachableError
from node.model.ids import RequestId
from node.model.request import Failed, GenerationRequest
from tui.bridge.inbox import (
    Answered,
    Connected,
    Disconnected,
    Ended,
    Generated,
    Inbox,
    Streamed,
)

Connector = Callable[[], AbstractAsyncContextManager[NodeHandle]]
Work = Callable[[NodeHandle], Awaitable[object]]
Reply = Callable[[object], None]

CALLS_MAX = 16
LOCAL_SECONDS = 2.0
HISTORY_ENTRIES = 2000
"""Entries from before the connection that are asked for."""
RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0)
STOP_SECONDS = 15.0


class NodeLink(Protocol):
    """What the screen can have the node do."""

    def call(self, work: Work, reply: Reply) -> None:
        """Run work on the node; `reply` gets its result, or the `ExoctlError`, on the screen."""
        ...

    def generate(self, request: GenerationRequest) -> None:
        """Generate; the items come to the inbox as `Generated`."""
        ...

    def stop_generating(self, request: RequestId) -> None:
        """End a generation; what came so far stays."""
        ...


class NodeThread:
    """Opens a node by its connector, follows it, and carries calls to it."""

    def __init__(self, connector: Connector, inbox: Inbox, *, is_embedded: bool) -> None:
        self._connector = connector
        self._inbox = inbox
        self._is_embedded = is_embedded
        self._handle: NodeHandle | None = None
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._main: Future[None] | None = None
        self._generations: dict[RequestId, Future[None]] = {}
        self._calls = 0

    def start(self) -> None:
        """Start the thread and return at once."""
        self._portal = self._stack.enter_context(start_blocking_portal())
        self._main = self._portal.start_task_soon(self._serve)

    def close(self) -> None:
        """End the node, or let go of it where it is not ours, and the thread.

        Raises:
            TimeoutExpiredError: the node did not end in time; the thread still runs.
        """
        if self._main is None or self._portal is None:
            return
        for generation in list(self._generations.values()):
            generation.cancel()
        self._main.cancel()
        try:
            self._main.result(STOP_SECONDS)
        except TimeoutError:
            self._stack.pop_all()
            raise TimeoutExpiredError.because(
                "node_not_ended",
                f"the node did not end within {STOP_SECONDS:.0f} s",
                "its runners end by themselves 30 s after it is gone",
            ) from None
        except CancelledError:
            pass
        self._portal.call(self._portal.stop, True)  # noqa: FBT003 - whatever still waits ends too
        self._portal = None
        self._stack.close()

    def call(self, work: Work, reply: Reply) -> None:
        """Run work on the node; `reply` gets its result, or the `ExoctlError`, on the screen."""
        if self._portal is None or self._calls >= CALLS_MAX:
            busy = BusyError.because("calls", f"{self._calls} calls are under way", "try again")
            self._inbox.put(Answered(reply, busy))
            return
        self._calls += 1

        def counted(result: object) -> None:
            self._calls -= 1
            reply(result)

        self._portal.start_task_soon(self._call, work, counted)

    def generate(self, request: GenerationRequest) -> None:
        """Generate; the items come to the inbox as `Generated`."""
        if self._portal is not None:
            self._generations[request.id] = self._portal.start_task_soon(self._generate, request)

    def stop_generating(self, request: RequestId) -> None:
        """End a generation; what came so far stays."""
        generation = self._generations.get(request)
        if generation is not None:
            generation.cancel()

    async def _serve(self) -> None:
        try:
            await self._keep_connected()
        except Exception as error:  # noqa: BLE001 - whatever ends the node is told to the person
            self._inbox.put(Ended(error))

    async def _keep_connected(self) -> None:
        attempt = 0
        while True:
            try:
                async with self._connector() as handle:
                    self._handle = handle
                    attempt = 0
                    await self._follow(handle)
                if self._is_embedded:
                    self._inbox.put(Ended(None))
                    return
                gone = UnreachableError.because("node_gone", "the node has ended")
            except (ExoctlError, ExceptionGroup) as raised:
                gone = _cause(raised)
            if self._is_embedded or self._handle is None:
                raise gone
            wait = RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]
            self._inbox.put(Disconnected(gone.failure, wait))
            attempt += 1
            await anyio.sleep(wait)

    async def _follow(self, handle: NodeHandle) -> None:
        self._inbox.put(Connected(handle.state, dict(handle.registers)))
        since = max(0, handle.state.index - HISTORY_ENTRIES)
        async with handle.subscribe(since) as stream, anyio.create_task_group() as group:
            group.start_soon(self._watch_local, handle)
            async for item in stream:
                self._inbox.put(Streamed(item, handle.state))
            group.cancel_scope.cancel()

    async def _watch_local(self, handle: NodeHandle) -> None:
        known = None
        while True:
            with contextlib.suppress(ExoctlError):
                view = await handle.local()
                if view != known:
                    known = view
                    self._inbox.put(view)
            await anyio.sleep(LOCAL_SECONDS)

    async def _call(self, work: Work, reply: Reply) -> None:
        result: object
        try:
            if self._handle is None:
                raise UnreachableError.because("node_starting", "the node is not up yet")
            result = await work(self._handle)
        except ExoctlError as error:
            result = error
        self._inbox.put(Answered(reply, result))

    async def _generate(self, request: GenerationRequest) -> None:
        try:
            if self._handle is None:
                raise UnreachableError.because("node_starting", "the node is not up yet")
            async with contextlib.aclosing(self._handle.generate(request)) as items:
                async for item in items:
                    self._inbox.put(Generated(request.id, item))
        except ExoctlError as error:
            failed = Failed(kind=type(error).__name__, failure=error.failure)
            self._inbox.put(Generated(request.id, failed))
        finally:
            self._generations.pop(request.id, None)
            self._inbox.put(Generated(request.id, None))


def _cause(raised: ExoctlError | ExceptionGroup[Any]) -> ExoctlError:
    """The first `ExoctlError` in a group; the group itself is raised where there is none."""
    if isinstance(raised, ExoctlError):
        return raised
    matched, _ = raised.split(ExoctlError)
    found: BaseException | None = matched
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    if not isinstance(found, ExoctlError):
        raise raised
    return found
