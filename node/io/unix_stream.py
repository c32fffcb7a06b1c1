"""A connection over a Unix socket whose reads and writes may be cancelled at any moment.

anyio's own prints an error of the event loop where bytes come in just as a read is cancelled;
waiting for the socket itself has no such moment.
"""

import socket
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel


class UnixStream(anyio.abc.ByteStream):
    """Over a connected socket, which it owns."""

    def __init__(self, raw: socket.socket) -> None:
        raw.settimeout(0.0)
        self._raw = raw

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """What has come in, at least one byte.

        Raises:
            anyio.EndOfStream: the other side has closed. anyio.BrokenResourceError: it broke.
            anyio.ClosedResourceError: this side has closed.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            self._check_open()
            try:
                data = self._raw.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._raw)
            except OSError as error:
                raise anyio.BrokenResourceError from error
            else:
                if not data:
                    raise anyio.EndOfStream
                return data

    async def send(self, item: bytes) -> None:
        """Send all of it.

        Raises:
            anyio.BrokenResourceError: the other side is gone.
            anyio.ClosedResourceError: this side has closed.
        """
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            self._check_open()
            try:
                rest = rest[self._raw.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._raw)
            except OSError as error:
                raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        """Nothing more will be sent."""
        self._check_open()
        self._raw.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close it; whoever waits for it is told."""
        if self._raw.fileno() >= 0:
            anyio.notify_closing(self._raw)
            self._raw.close()
        await anyio.lowlevel.checkpoint()

    def _check_open(self) -> None:
        if self._raw.fileno() < 0:
            raise anyio.ClosedResourceError


async def connect_unix(path: Path) -> UnixStream:
    """Connect to a socket of this machine, which answers at once or not at all.

    Raises:
        OSError: nobody listens there, or too many wait to be let in (BlockingIOError).
    """
    await anyio.lowlevel.checkpoint()
    raw = socket.socket(socket.AF_UNIX)
    try:
        raw.settimeout(0.0)
        raw.connect(str(path))
    except BaseException:
        raw.close()
        raise
    return UnixStream(raw)
