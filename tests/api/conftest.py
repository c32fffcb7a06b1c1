"""A served API over a node in memory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import TaskGroup

from node.api.context import Timing
from node.api.server import ApiServer, serve
from node.config import Config
from tests.fakes.eventually import eventually
from tests.fakes.fake_handle import FakeHandle

QUICK = Timing(
    hold_seconds=0.2,
    keepalive_seconds=0.1,
    heartbeat_seconds=0.1,
    body_seconds=1.0,
    write_seconds=2.0,
)


def make_config(tmp_path: Path, **changes: Any) -> Config:
    """Settings of a node with an API on a free loopback port."""
    settings: dict[str, Any] = {
        "state_directory": tmp_path,
        "model_directories": (tmp_path,),
        "api_port": 0,
        **changes,
    }
    return Config(**settings)


@asynccontextmanager
async def served(
    handle: FakeHandle, config: Config, timing: Timing = QUICK
) -> AsyncGenerator[ApiServer]:
    """An API that stops at the end."""
    async with anyio.create_task_group() as tasks:
        server: ApiServer = await tasks.start(_serve, handle, config, timing)
        try:
            yield server
        finally:
            tasks.cancel_scope.cancel()


async def _serve(handle: FakeHandle, config: Config, timing: Timing, *, task_status: Any) -> None:
    await serve(handle, config, timing=timing, task_status=task_status)


class RunningServer:
    """An API in a task of its own, to be stopped and started beside its clients."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.ended = False

    async def start(self, tasks: TaskGroup, handle: FakeHandle, config: Config) -> ApiServer:
        """Begin to serve."""
        return await tasks.start(self._run, handle, config)

    async def stop(self) -> None:
        """Stop, and wait for the end."""
        self.scope.cancel()
        await eventually(lambda: self.ended)

    async def _run(self, handle: FakeHandle, config: Config, *, task_status: Any) -> None:
        with self.scope:
            await serve(handle, config, timing=QUICK, task_status=task_status)
        self.ended = True


async def raw_status(server: ApiServer, path: str) -> int:
    """The status of a path that is sent as it is written, as no client library would."""
    async with await anyio.connect_tcp("127.0.0.1", server.address.port) as stream:
        await stream.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        with anyio.fail_after(5):
            return int((await stream.receive()).split(b" ")[1])


@pytest.fixture
def handle() -> FakeHandle:
    """A node in memory."""
    return FakeHandle()


@pytest.fixture
async def server(handle: FakeHandle, tmp_path: Path) -> AsyncGenerator[ApiServer]:
    """Its API."""
    async with served(handle, make_config(tmp_path)) as running:
        yield running


@pytest.fixture
async def http(server: ApiServer) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client of it."""
    async with httpx2.AsyncClient(
        base_url=f"http://{server.address}", timeout=10, trust_env=False
    ) as client:
        yield client
