"""The stream over a Unix socket: bytes through, ends told, cancelled at any moment."""

import socket
import tempfile
from collections.abc import Generator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from node.io.unix_stream import UnixStream, connect_unix


@pytest.fixture
def both() -> Generator[tuple[UnixStream, socket.socket]]:
    own, other = socket.socketpair()
    with own, other:
        yield UnixStream(own), other


async def test_bytes_that_come_in_as_a_read_is_cancelled_are_no_error_and_not_lost(
    both: tuple[UnixStream, socket.socket],
) -> None:
    stream, other = both
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.receive)
        await anyio.wait_all_tasks_blocked()
        other.send(b"x")
        await anyio.lowlevel.checkpoint()  # the loop has seen them, nobody has read them
        tasks.cancel_scope.cancel()
    assert await stream.receive() == b"x"


async def test_room_that_comes_as_a_write_is_cancelled_is_no_error(
    both: tuple[UnixStream, socket.socket],
) -> None:
    stream, other = both
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.send, b"x" * 50_000_000)
        await anyio.wait_all_tasks_blocked()
        other.recv(10_000_000)
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


async def test_more_than_the_socket_holds_gets_through(
    both: tuple[UnixStream, socket.socket],
) -> None:
    stream, other = both
    sent, got = bytes(range(256)) * 20_000, bytearray()
    reader = UnixStream(other)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.send, sent)
        while len(got) < len(sent):
            got += await reader.receive()
    assert got == sent


async def test_each_end_is_told_as_what_it_is(both: tuple[UnixStream, socket.socket]) -> None:
    stream, other = both
    other.close()
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()
    with pytest.raises(anyio.BrokenResourceError):
        await stream.send(b"x")
    await stream.aclose()
    await stream.aclose()
    for attempt in (stream.receive, lambda: stream.send(b"x"), stream.send_eof):
        with pytest.raises(anyio.ClosedResourceError):
            await attempt()


async def test_whoever_waits_is_told_that_it_was_closed(
    both: tuple[UnixStream, socket.socket],
) -> None:
    stream, _ = both
    told: list[bool] = []

    async def wait() -> None:
        with pytest.raises(anyio.ClosedResourceError):
            await stream.receive()
        told.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await stream.aclose()
    assert told == [True]


async def test_the_other_side_reads_an_end_once_all_is_sent(
    both: tuple[UnixStream, socket.socket],
) -> None:
    stream, other = both
    await stream.send(b"last")
    await stream.send_eof()
    reader = UnixStream(other)
    assert await reader.receive() == b"last"
    with pytest.raises(anyio.EndOfStream):
        await reader.receive()


async def test_it_connects_to_who_listens_and_to_nobody_else() -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = Path(folder) / "s"
        with pytest.raises(FileNotFoundError):
            await connect_unix(path)
        listener.bind(str(path))
        with pytest.raises(ConnectionRefusedError):
            await connect_unix(path)
        listener.listen(0)
        stream = await connect_unix(path)
        accepted, _ = listener.accept()
        with accepted:
            await stream.send(b"hello")
            assert accepted.recv(9) == b"hello"
        await stream.aclose()
