"""The HTTP API of a node: its sockets, uvicorn in the node's own loop, and a clean end."""

import contextlib
import logging
from collections.abc import Generator
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import uvicorn
from anyio.abc import TaskStatus

from node.api.application import build_application
from node.api.connection import Connection, connections_max
from node.api.context import ApiContext, Timing
from node.api.guard import HEADER_BYTES_MAX, Guard, allowed_hosts
from node.api.ports import BACKLOG, open_sockets
from node.api.request_ids import RequestIds
from node.config import Config
from node.handle import NodeHandle
from node.io import clock
from node.io.token_file import TokenFile
from node.log import logger
from node.model.machine import Address

if TYPE_CHECKING:
    import socket

IDLE_SECONDS_MAX = 30
"""How long an idle connection stays open."""


class ApiServer:
    """What is known of a running API."""

    def __init__(self, address: Address, context: ApiContext) -> None:
        self.address = address
        """Where it listens; the port is the real one where a free one was asked for."""
        self._context = context

    @property
    def open_count(self) -> int:
        """Requests that are being answered now."""
        return self._context.open_count


async def serve(
    handle: NodeHandle,
    config: Config,
    *,
    timing: Timing | None = None,
    task_status: TaskStatus[ApiServer] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the API of a node until cancelled; reports an `ApiServer` once it listens.

    A cancellation ends open streams with an error that their clients understand, then closes, all
    within a second.

    Raises:
        ConflictError: the port is taken. UsageError: it can't listen there.
        RefusedError: it is to listen beyond loopback and there is no token.
    """
    tokens = TokenFile(config.state_directory)
    hosts = allowed_hosts(config, has_tokens=bool(tokens.tokens()))
    address, sockets = await anyio.to_thread.run_sync(
        open_sockets, config.api_host, config.api_port
    )
    context = ApiContext(handle, timing or Timing())
    guard = Guard(
        build_application(context),
        hosts=hosts,
        token=config.api_token,
        scope_of=lambda given: tokens.scope_of(given, clock.wall()),
        token_on_loopback=config.api_token_required,
    )
    server = _Server(_settings(RequestIds(guard), context.timing))
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(_run, server, sockets)
            task_status.started(ApiServer(address, context))
            try:
                await anyio.sleep_forever()
            finally:
                context.stop()
                server.request_exit()
    finally:
        for each in sockets:
            each.close()


async def _run(
    server: "_Server",
    sockets: "list[socket.socket]",
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    server.started_status = task_status
    with anyio.CancelScope(shield=True):  # ends by `should_exit`, in bounded time
        await server.serve(sockets)


def _settings(application: RequestIds, timing: Timing) -> uvicorn.Config:
    _adopt_uvicorn_log()
    return uvicorn.Config(
        application,
        http=Connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=connections_max(),
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_SECONDS_MAX,
        timeout_graceful_shutdown=timing.stop_seconds,  # pyright: ignore[reportArgumentType]
        h11_max_incomplete_event_size=2 * HEADER_BYTES_MAX,
    )


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the node has its own, and may run beside a screen."""

    started_status: TaskStatus[None] | None = None

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._exit_send, self._exit_receive = anyio.create_memory_object_stream[None](1)

    def request_exit(self) -> None:
        """Begin the end."""
        self.should_exit = True
        self._exit_send.close()

    async def main_loop(self) -> None:
        """Wait for the end; wakes once a second, for the clock of the `Date` header."""
        with self._exit_receive, contextlib.suppress(anyio.EndOfStream):
            while not await self.on_tick(0):
                with anyio.move_on_after(1):
                    await self._exit_receive.receive()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: "list[socket.socket] | None" = None) -> None:
        await super().startup(sockets)
        if self.started_status is not None:
            self.started_status.started()


class _Forward(logging.Handler):
    """Puts uvicorn's warnings into the node's log, never on its screen."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log it again as the API's own."""
        logger("api").handle(record)


def _adopt_uvicorn_log() -> None:
    theirs = logging.getLogger("uvicorn")
    theirs.setLevel(logging.WARNING)
    theirs.propagate = False
    if not any(isinstance(handler, _Forward) for handler in theirs.handlers):
        theirs.addHandler(_Forward())
