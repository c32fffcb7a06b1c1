"""Why a node is not reached is told in words that help."""

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import MagicMock

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from node.io.identity import load_or_create_identity
from node.io.mesh import reach, tls
from node.io.mesh.channel import close_stream
from node.io.mesh.limits import MeshLimits
from node.io.mesh.listen import listen
from node.io.mesh.reach import Missed, Reacher
from node.model.errors import ConflictError, RefusedError, UsageError
from node.model.machine import Address

LIMITS = MeshLimits(connect_seconds=0.3, handshake_seconds=0.3)


def ignore(missed: Missed) -> None:
    """Take no notice of an address that did not answer."""


async def miss(*addresses: Address) -> dict[Address, str]:
    missed: list[Missed] = []
    reached = await Reacher(LIMITS).reach_first(addresses, None, missed.append)
    assert reached is None
    assert all(one.failure.message for one in missed)
    return {one.address: one.failure.code for one in missed}


@asynccontextmanager
async def server(
    handle: Callable[[SocketStream], Awaitable[None]],
) -> AsyncGenerator[Address, None]:
    (listener,) = await listen("127.0.0.1", 0)

    async def handle_and_close(stream: SocketStream) -> None:
        async with stream:
            await handle(stream)

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, handle_and_close)
        yield Address("127.0.0.1", int(listener.extra(SocketAttribute.local_port)))
        group.cancel_scope.cancel()


async def test_an_address_where_nothing_listens_refuses():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", unused.getsockname()[1])
    assert await miss(address) == {address: "refused"}


async def test_a_name_that_does_not_exist_is_told_as_such():
    address = Address("no-such-host.invalid", 1)
    assert await miss(address) == {address: "unresolvable"}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("port", [-1, 70_000, 2**70])
async def test_what_can_be_no_port_is_told_as_such(host: str, port: int):
    address = Address(host, port)
    (code,) = (await miss(address)).values()
    assert code in ("bad_address", "unresolvable")


@pytest.mark.parametrize("host", ["", "x" * 300, "a\x00b", "a..b", "ü" * 100, "%", "::%", "[::1]"])
async def test_what_can_be_no_host_is_told_as_such(host: str):
    (code,) = (await miss(Address(host, 1))).values()
    assert code in ("bad_address", "unresolvable", "unreachable", "refused")


async def test_an_interface_that_does_not_exist_leads_nowhere():
    address = Address("fe80::1%nowhere0", 1)
    (code,) = (await miss(address)).values()
    assert code in ("unresolvable", "unreachable")


async def test_something_else_that_answers_is_told_as_such():
    async def speak_http(stream: SocketStream) -> None:
        await stream.receive()
        await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with server(speak_http) as address:
        assert await miss(address) == {address: "not_exoctl"}


async def test_a_server_that_closes_at_once_is_told_as_such():
    async def close(_: SocketStream) -> None:
        return

    async with server(close) as address:
        assert await miss(address) == {address: "dropped"}


async def test_a_server_that_says_nothing_is_given_up_at_the_deadline():
    async def stay_silent(_: SocketStream) -> None:
        await anyio.sleep_forever()

    async with server(stay_silent) as address:
        assert await miss(address) == {address: "timeout"}


async def test_a_machine_that_does_not_answer_is_given_up_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
):
    async def never(*_: object) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(reach.anyio, "connect_tcp", never)
    address = Address("192.0.2.1", 1)
    assert await miss(address) == {address: "timeout"}


async def test_a_mac_without_local_network_permission_is_told_where_to_give_it(
    monkeypatch: pytest.MonkeyPatch,
):
    async def no_route(*_: object) -> None:
        raise OSError("All connection attempts failed") from OSError(113, "No route to host")

    monkeypatch.setattr(reach.anyio, "connect_tcp", no_route)
    missed: list[Missed] = []
    await Reacher(LIMITS).reach_first([Address("192.0.2.1", 1)], None, missed.append)
    assert missed[0].failure.code == "unreachable"
    assert "Local Network" in missed[0].failure.remedy


async def test_a_certificate_that_is_no_nodes_is_no_exoctl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    context = tls.server_context(load_or_create_identity(tmp_path))

    async def serve(stream: SocketStream) -> None:
        wrapped = await tls.wrap(stream, context, server_side=True)
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await wrapped.receive()

    monkeypatch.setattr(tls, "certificate_public_key", MagicMock(return_value=None))
    async with server(serve) as address:
        assert await miss(address) == {address: "not_exoctl"}


async def test_the_first_of_several_addresses_that_answers_wins(tmp_path: Path):
    identity = load_or_create_identity(tmp_path)
    context = tls.server_context(identity)

    async def serve(stream: SocketStream) -> None:
        wrapped = await tls.wrap(stream, context, server_side=True)
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await wrapped.receive()

    async def stay_silent(_: SocketStream) -> None:
        await anyio.sleep_forever()

    async with server(serve) as good, server(stay_silent) as slow:
        with anyio.fail_after(0.25):  # far less than the silent one's deadline
            reached = await Reacher(LIMITS).reach_first([slow, slow, good], identity.node, ignore)
        assert reached is not None
        assert reached.address == good
        await close_stream(reached.stream)


async def test_a_taken_port_a_foreign_host_and_a_forbidden_port_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
):
    (listener,) = await listen("127.0.0.1", 0)
    async with listener:
        port = int(listener.extra(SocketAttribute.local_port))
        with pytest.raises(ConflictError, match=str(port)):
            await listen("127.0.0.1", port)
    with pytest.raises(UsageError, match=r"203\.0\.113\.1"):
        await listen("203.0.113.1", 0)

    async def forbid(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(anyio, "create_tcp_listener", forbid)
    with pytest.raises(RefusedError, match="80"):
        await listen("127.0.0.1", 80)
