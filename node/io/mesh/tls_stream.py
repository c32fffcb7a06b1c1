"""TLS over a connection of the loop, which can be handed over to a thread as it is."""

import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, cast

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSAttribute

from node.io.mesh.copy_stream import CopyStream

RECEIVE_BYTES = 65_536


class TlsStream(ByteStream):
    """A connection without a goodbye of TLS's own: frames tell where a stream ends."""

    def __init__(
        self, transport: ByteStream, context: ssl.SSLContext, *, server_side: bool
    ) -> None:
        self._transport = transport
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """The transport's, and what TLS adds."""
        below = cast("Mapping[Any, Callable[[], Any]]", self._transport.extra_attributes)  # pyright: ignore[reportUnknownMemberType]
        return {
            **below,
            TLSAttribute.ssl_object: lambda: self._tls,
            TLSAttribute.alpn_protocol: self._tls.selected_alpn_protocol,
            TLSAttribute.peer_certificate_binary: lambda: self._tls.getpeercert(binary_form=True),
        }

    async def handshake(self) -> None:
        """Agree on keys with the other end.

        Raises:
            ssl.SSLError: it speaks no TLS, or none that is taken here.
            anyio.EndOfStream: it has closed.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except ssl.SSLEOFError:
                raise anyio.EndOfStream from None
            except ssl.SSLError:
                # The alert says to the other end what is wrong, where it still hears.
                with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await self._flush()
                raise
            else:
                await self._flush()
                return

    async def receive(self, max_bytes: int = RECEIVE_BYTES) -> bytes:
        """The next bytes, at least one.

        Raises:
            anyio.EndOfStream: the other end has closed.
        """
        while True:
            try:
                data = self._tls.read(max_bytes)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                raise anyio.EndOfStream from None
            else:
                if not data:
                    raise anyio.EndOfStream
                return data

    async def send(self, item: bytes) -> None:
        """Send all of it; returns once it is on its way."""
        self._tls.write(item)
        await self._flush()

    async def send_eof(self) -> None:
        """TLS can't close one direction."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close the connection."""
        await self._transport.aclose()

    def detach(self) -> CopyStream:
        """The same connection for a thread. Nothing may be under way, and this end is of no more
        use than to be closed, which leaves the other open.
        """
        raw = self.extra(SocketAttribute.raw_socket)  # noqa: S610 - anyio's, not Django's
        connection = socket.socket(fileno=os.dup(raw.fileno()))
        return CopyStream(connection, self._tls, self._incoming, self._outgoing)

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._transport.send(self._outgoing.read())

    async def _fill(self) -> None:
        try:
            self._incoming.write(await self._transport.receive(RECEIVE_BYTES))
        except anyio.EndOfStream:
            self._incoming.write_eof()
