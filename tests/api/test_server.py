"""Starting, listening and ending."""

import os
import signal
import socket
from pathlib import Path

import anyio
import httpx2
import psutil
import pytest

from node.api.server import ApiServer, serve
from node.io.clock import monotonic
from node.model.errors import ConflictError, UsageError
from node.model.request import Delta
from tests.api.conftest import RunningServer, make_config
from tests.api.test_chat import PATH, order
from tests.fakes.eventually import eventually
from tests.fakes.fake_handle import FakeHandle


async def test_a_free_port_is_found_and_told(server: ApiServer, http: httpx2.AsyncClient) -> None:
    assert server.address.port > 0
    assert (await http.get("/health")).json()["status"] == "ok"


async def test_localhost_answers_over_both_families(server: ApiServer) -> None:
    async with httpx2.AsyncClient(trust_env=False) as client:
        for host in ("127.0.0.1", "[::1]", "localhost"):
            answer = await client.get(f"http://{host}:{server.address.port}/health")
            assert answer.status_code == 200


async def test_a_taken_port_is_an_error_that_names_its_owner(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConflictError) as caught:
            await serve(FakeHandle(), make_config(tmp_path, api_port=port))
    assert f"127.0.0.1:{port}" in caught.value.failure.message
    assert f"process {os.getpid()}" in caught.value.failure.message
    assert "--api-port" in caught.value.failure.remedy


async def test_the_owner_is_found_where_the_system_hides_the_sockets_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(kind: str) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", refuse)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = make_config(tmp_path, api_port=taken.getsockname()[1])
        with pytest.raises(ConflictError, match=f"process {os.getpid()}"):
            await serve(FakeHandle(), config)


async def test_an_address_of_another_machine_is_an_error(tmp_path: Path) -> None:
    config = make_config(tmp_path, api_host="192.0.2.1", api_token="t")
    with pytest.raises(UsageError) as caught:
        await serve(FakeHandle(), config)
    assert "192.0.2.1" in caught.value.failure.message


async def test_beyond_loopback_names_and_token_are_needed(tmp_path: Path) -> None:
    config = make_config(tmp_path, api_host="0.0.0.0", api_token="t", api_token_required=True)
    async with anyio.create_task_group() as tasks:
        running = RunningServer()
        address = (await running.start(tasks, FakeHandle(), config)).address
        url = f"http://127.0.0.1:{address.port}/health"
        async with httpx2.AsyncClient(trust_env=False) as client:
            assert (await client.get(url)).status_code == 401
            right = {"authorization": "Bearer t"}
            assert (await client.get(url, headers=right)).status_code == 200
            named = {**right, "host": socket.gethostname()}
            assert (await client.get(url, headers=named)).status_code == 200
            evil = {**right, "host": "evil.com"}
            assert (await client.get(url, headers=evil)).status_code == 421
        await running.stop()


async def test_signal_handlers_stay_as_they_were(tmp_path: Path) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    async with anyio.create_task_group() as tasks:
        running = RunningServer()
        await running.start(tasks, FakeHandle(), make_config(tmp_path))
        assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
        await running.stop()


async def test_a_stop_ends_open_streams_with_an_error_within_a_second(
    handle: FakeHandle, tmp_path: Path
) -> None:
    handle.script = [Delta(index=0, text="a"), 60.0]
    endings: list[str] = []

    async def read(url: str, body: object) -> None:
        async with httpx2.AsyncClient(trust_env=False, timeout=10) as client:
            method = "GET" if body is None else "POST"
            async with client.stream(method, url, json=body) as answer:
                endings.append("".join([part async for part in answer.aiter_text()]))

    async with anyio.create_task_group() as tasks:
        running = RunningServer()
        address = (await running.start(tasks, handle, make_config(tmp_path))).address
        for _ in range(5):
            tasks.start_soon(read, f"http://{address}{PATH}", order(stream=True))
        tasks.start_soon(read, f"http://{address}/v1/cluster/events", None)
        tasks.start_soon(read, f"http://{address}{PATH}", order())
        await eventually(lambda: len(handle.running) == 6 and handle.subscriber_count == 1)
        began = monotonic()
        await running.stop()
        assert monotonic() - began < 1
        await eventually(lambda: len(endings) == 7)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", address.port))
    assert all("node_stopping" in each for each in endings)
    assert not handle.running
    assert not handle.subscriber_count


async def test_two_hundred_clients_that_go_away_leave_nothing(
    handle: FakeHandle, server: ApiServer
) -> None:
    handle.script = [Delta(index=0, text="a"), 60.0]
    limit = anyio.CapacityLimiter(40)

    async def begin_and_go(client: httpx2.AsyncClient) -> None:
        url = f"http://{server.address}{PATH}"
        async with limit, client.stream("POST", url, json=order(stream=True)) as answer:
            await anext(aiter(answer.aiter_bytes()))

    async with (
        httpx2.AsyncClient(trust_env=False, timeout=20) as client,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(200):
            tasks.start_soon(begin_and_go, client)
    await eventually(lambda: len(handle.closed) == 200)
    assert not handle.running
    await eventually(lambda: not server.open_count)


async def test_a_client_that_goes_before_the_first_token_cancels_too(
    handle: FakeHandle, server: ApiServer
) -> None:
    handle.script = [60.0]
    async with httpx2.AsyncClient(trust_env=False, timeout=0.1) as client:
        for streamed in (True, False):
            with pytest.raises(httpx2.TimeoutException):
                await client.post(
                    f"http://{server.address}{PATH}", json=order(stream=streamed, n=3)
                )
    await eventually(lambda: not handle.running, 1)
    assert len(handle.closed) == 6


async def test_a_client_that_stops_reading_is_cut_off(
    handle: FakeHandle, server: ApiServer
) -> None:
    handle.script = [Delta(index=number, text="x" * 65536) for number in range(2000)]
    async with await anyio.connect_tcp("127.0.0.1", server.address.port) as stream:
        body = (
            b'{"model":"smollm2-135m-instruct","stream":true,'
            b'"messages":[{"role":"user","content":"a"}]}'
        )
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        await stream.send(head.encode() + body)
        await eventually(lambda: handle.running)
        await eventually(lambda: not handle.running, 8)
