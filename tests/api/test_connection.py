"""Connections that hold a file and ask for nothing."""

import contextlib
import resource
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import msgspec
import psutil
import pytest
from anyio.abc import ByteStream

from node.api import connection as module
from node.api.connection import connections_max
from node.api.server import ApiServer
from node.io.file_limit import file_limit, raise_file_limit
from tests.api.conftest import make_config, served
from tests.fakes.eventually import eventually
from tests.fakes.fake_handle import FakeHandle

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY_TO_COME = (
    b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 9\r\n\r\n"
)


@asynccontextmanager
async def connected(server: ApiServer) -> AsyncGenerator[ByteStream]:
    async with await anyio.connect_tcp("127.0.0.1", server.address.port) as stream:
        yield stream


async def read_to_end(stream: ByteStream) -> bytes:
    """What comes until the other side closes."""
    read = b""
    with anyio.fail_after(5):
        while True:
            try:
                read += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return read


def connections_to(server: ApiServer) -> int:
    """How many the server holds open, in whatever state."""
    held = psutil.Process().net_connections("tcp4")
    return sum(
        each.status != psutil.CONN_LISTEN
        for each in held
        if each.laddr and each.laddr.port == server.address.port
    )


@pytest.mark.parametrize("path", [b"/v1/cluster/state", b"/v1/cluster/events?follow=1"])
async def test_whoever_asks_and_never_reads_is_cut_off(
    path: bytes, server: ApiServer, handle: FakeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.3)
    handle.state = msgspec.structs.replace(handle.state, cluster_name="x" * 20_000_000)
    async with connected(server) as stream:
        await stream.send(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await stream.receive(1)
        assert connections_to(server) == 1
        await eventually(lambda: connections_to(server) == 0)
        await eventually(lambda: server.open_count == 0)


async def test_whoever_reads_slowly_but_reads_gets_everything(
    server: ApiServer, handle: FakeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.5)
    handle.state = msgspec.structs.replace(handle.state, cluster_name="x" * 20_000_000)
    read = 0
    async with connected(server) as stream:
        await stream.send(b"GET /v1/cluster/state HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while read < 20_000_000:
            read += len(await stream.receive(1_000_000))
            await anyio.sleep(0.05)


@pytest.mark.parametrize("begun", [b"", HEAD[:20]])
@pytest.mark.parametrize("answers_before", [0, 1])
async def test_a_request_that_never_comes_whole_ends_its_connection(
    begun: bytes, answers_before: int, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAD_SECONDS", 0.2)
    async with connected(server) as stream:
        for _ in range(answers_before):
            await stream.send(HEAD)
            answer = b""
            while not answer.endswith(b"}"):
                answer += await stream.receive()
            assert b"200 OK" in answer
        if begun:
            await stream.send(begun)
        elif answers_before:
            return  # it may be used again: uvicorn's own timer ends it
        assert not await read_to_end(stream)


async def test_a_head_that_comes_in_drops_has_one_deadline_for_all_of_it(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAD_SECONDS", 0.3)
    sent = 0
    async with connected(server) as stream:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.EndOfStream):
            for at in range(len(HEAD)):
                await stream.send(HEAD[at : at + 1])
                sent += 1
                with anyio.move_on_after(0.05):
                    await stream.receive()
    assert 3 < sent < len(HEAD) - 1


async def test_a_body_that_goes_on_after_its_answer_has_a_deadline_too(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAD_SECONDS", 0.2)
    async with connected(server) as stream:
        await stream.send(BODY_TO_COME)
        with anyio.fail_after(5):
            assert b"404" in await stream.receive()
        await stream.send(b"{")
        await read_to_end(stream)


async def test_a_whole_request_is_answered_however_long_that_takes(
    handle: FakeHandle, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAD_SECONDS", 0.1)
    async with connected(server) as stream:
        await stream.send(b"GET /v1/cluster/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with anyio.fail_after(5):
            assert b"200 OK" in await stream.receive()
        for _ in range(4):  # heartbeats, 0.1 s apart
            with anyio.fail_after(5):
                assert await stream.receive()


async def test_silent_connections_leave_the_node_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 20)
    monkeypatch.setattr(module, "HEAD_SECONDS", 1.5)
    async with served(FakeHandle(), make_config(tmp_path)) as server, AsyncExitStack() as stack:
        url = f"http://{server.address}/health"
        client = await stack.enter_async_context(httpx2.AsyncClient(trust_env=False))
        streams = [await stack.enter_async_context(connected(server)) for _ in range(60)]
        # the first wait for their deadline, those beyond the cap and the spare are closed at once
        with anyio.fail_after(1.4):
            for stream in streams[20 + module.CONNECTIONS_SPARE :]:
                await read_to_end(stream)
        for stream in streams:
            await read_to_end(stream)
        assert (await client.get(url)).status_code == 200


async def test_one_connection_too_many_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 20)
    async with served(FakeHandle(), make_config(tmp_path)) as server, AsyncExitStack() as stack:
        for _ in range(20):
            await stack.enter_async_context(connected(server))
        async with httpx2.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"http://{server.address}/health")).status_code == 503


def test_the_cap_is_well_below_the_file_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, expected in ((256, 64), (1024, 256), (8192, 1000), (10, 16)):
        monkeypatch.setattr(module, "file_limit", lambda limit=limit: limit)
        assert connections_max() == expected


@pytest.mark.parametrize(("soft", "hard", "after"), [(64, 100, 100), (64, 64, 64)])
def test_the_file_limit_rises_towards_the_hard_one(soft: int, hard: int, after: int) -> None:
    program = (
        "import resource; from node.io.file_limit import file_limit, raise_file_limit\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "print(file_limit(), raise_file_limit(), file_limit())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=20
    )
    assert done.stdout.split() == [str(soft), str(after), str(after)]


def test_a_system_that_refuses_to_raise_the_limit_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    def held(_: int) -> tuple[int, int]:
        return 100, 5000

    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr(resource, "getrlimit", held)
    assert raise_file_limit() == 100 == file_limit()
