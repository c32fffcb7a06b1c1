"""The node in its own thread with its own loop: neither it nor the screen can hold up the other."""

import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import anyio
from anyio.from_thread import BlockingPortal

from node.handle import NodeHandle
from node.model.errors import (
    BusyError,
    ExoctlError,
    Failure,
    InternalError,
    TimeoutExpiredError,
    UnreachableError,
)
from node.model.ids import RequestId
from node.model.request import Failed, GenerationRequest
from tui.bridge.errands import Errands
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
"""For the node to end."""
THREAD_SECONDS = 2.0
"""For its thread to start, and to end after the node."""

_log = logging.getLogger(__name__)


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
        self._thread: threading.Thread | None = None
        self._is_known = False
        """It answered once, so it is worth trying again."""
        self._portal: BlockingPortal | None = None
        self._main: Future[None] | None = None
        self._errands: Errands | None = None
        self._generations: dict[RequestId, Future[None]] = {}
        self._calls = 0
        self._ended = threading.Event()

    def start(self) -> None:
        """Start the thread and return at once."""
        opened: Future[BlockingPortal] = Future()

        async def hold_portal() -> None:
            async with BlockingPortal() as portal:
                opened.set_result(portal)
                await portal.sleep_until_stopped()

        # a daemon: a node that hangs while it ends must not hold up the process
        self._thread = threading.Thread(
            target=lambda: anyio.run(hold_portal), name="node", daemon=True
        )
        self._thread.start()
        self._portal = opened.result(THREAD_SECONDS)
        self._main = self._portal.start_task_soon(self._serve)
        self._errands = Errands()

    def close(self) -> None:
        """End the node, or let go of it where it is not ours, and the thread.

        Raises:
            TimeoutExpiredError: the node did not end in time; the thread still runs.
        """
        portal, self._portal = self._portal, None
        main, errands = self._main, self._errands
        if main is None or portal is None or self._thread is None or errands is None:
            return
        errands.close()

        def end() -> None:
            """In a thread of its own: asking a loop for something waits for that loop."""
            portal.start_task_soon(self._cancel, main, *list(self._generations.values()))
            self._ended.wait(STOP_SECONDS)
            portal.start_task_soon(portal.stop, True)  # noqa: FBT003 - what still waits ends too

        threading.Thread(target=end, name="node end", daemon=True).start()
        self._thread.join(STOP_SECONDS + THREAD_SECONDS)
        if self._thread.is_alive():
            raise TimeoutExpiredError.because(
                "node_not_ended",
                f"the node did not end within {STOP_SECONDS + THREAD_SECONDS:.0f} s",
                "its runners end by themselves 30 s after it is gone",
            )

    def call(self, work: Work, reply: Reply) -> None:
        """Run work on the node; `reply` gets its result, or the `ExoctlError`, on the screen."""
        portal, errands = self._portal, self._errands
        if portal is None or errands is None or self._calls >= CALLS_MAX:
            busy = BusyError.because("calls", f"{self._calls} calls are under way", "try again")
            self._inbox.put(Answered(reply, busy))
            return
        self._calls += 1

        def counted(result: object) -> None:
            self._calls -= 1
            reply(result)

        errands.do(lambda: portal.start_task_soon(self._call, work, counted))

    def generate(self, request: GenerationRequest) -> None:
        """Generate; the items come to the inbox as `Generated`."""
        portal = self._portal
        if portal is None or self._errands is None:
            return

        def start() -> None:
            generation = portal.start_task_soon(self._generate, request)
            self._generations[request.id] = generation
            if generation.done():
                self._generations.pop(request.id, None)

        self._errands.do(start)

    def stop_generating(self, request: RequestId) -> None:
        """End a generation; what came so far stays."""
        portal = self._portal
        if portal is None or self._errands is None:
            return

        def stop() -> None:
            generation = self._generations.get(request)
            if generation is not None:
                portal.start_task_soon(self._cancel, generation)

        self._errands.do(stop)

    @staticmethod
    def _cancel(*tasks: Future[None]) -> None:
        """On the node's thread: on the screen's a cancel would wait for that thread."""
        for task in tasks:
            task.cancel()

    async def _serve(self) -> None:
        try:
            await self._keep_connected()
        except Exception as error:  # noqa: BLE001 - whatever ends the node is told to the person
            self._inbox.put(Ended(error))
        finally:
            self._ended.set()

    async def _keep_connected(self) -> None:
        attempt = 0
        while True:
            try:
                async with self._connector() as handle:
                    attempt = 0
                    self._is_known = True
                    await self._hold(handle)
                if self._is_embedded:
                    self._inbox.put(Ended(None))
                    return
                gone = UnreachableError.because("node_gone", "the node has ended")
            except (ExoctlError, ExceptionGroup) as raised:
                gone = _cause(raised)
            if self._is_embedded or not self._is_known:
                raise gone
            wait = RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]
            self._inbox.put(Disconnected(gone.failure, wait))
            attempt += 1
            await anyio.sleep(wait)

    async def _hold(self, handle: NodeHandle) -> None:
        """Calls go to this handle as long as it is followed."""
        self._handle = handle
        try:
            await self._follow(handle)
        finally:
            self._handle = None

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

    def _handle_now(self) -> NodeHandle:
        if self._handle is None:
            words = "the node does not answer now" if self._is_known else "the node is not up yet"
            raise UnreachableError.because("node_starting", words, "try again in a few seconds")
        return self._handle

    async def _call(self, work: Work, reply: Reply) -> None:
        result: object
        try:
            result = await work(self._handle_now())
        except ExoctlError as error:
            result = error
        except Exception as error:  # noqa: BLE001 - logged; who asked is told
            result = _mistake(error)
        except BaseException:  # the thread ends: whoever asked is told so, if they still look
            gone = UnreachableError.because("node_gone", "the node ended before it answered")
            self._inbox.put(Answered(reply, gone))
            raise
        self._inbox.put(Answered(reply, result))

    async def _generate(self, request: GenerationRequest) -> None:
        try:
            async with contextlib.aclosing(self._handle_now().generate(request)) as items:
                async for item in items:
                    self._inbox.put(Generated(request.id, item))
        except ExoctlError as error:
            self._tell_failed(request.id, error)
        except Exception as error:  # noqa: BLE001 - logged; the answer says why it ends
            self._tell_failed(request.id, _mistake(error))
        finally:
            self._generations.pop(request.id, None)
            self._inbox.put(Generated(request.id, None))

    def _tell_failed(self, request: RequestId, error: ExoctlError) -> None:
        failed = Failed(kind=type(error).__name__, failure=error.failure)
        self._inbox.put(Generated(request, failed))


def _mistake(error: Exception) -> InternalError:
    """A mistake of ours as what the person is told."""
    _log.error("a call to the node failed by a mistake", exc_info=error)
    failure = Failure(
        code="mistake",
        message=f"{type(error).__name__}: {error}",
        remedy="the log says where; try again",
    )
    return InternalError(failure)


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
