"""A proved connection in the hands of a thread: bytes of models, with nothing between them and TLS.

The loop costs a model's bytes four times what TLS does: here they are written from the buffer that
they were read into, and read into the buffer that they are hashed and written from.
"""

import contextlib
import socket
import ssl
from collections.abc import Callable

from node.wire.frame import HEADER_BYTES, Frame, FrameError, FrameReader

STALL_SECONDS = 20.0
"""Nothing came or went for so long: the connection is given up."""
BUFFER_BYTES = 256 * 1024


class CopyBrokenError(Exception):
    """The connection is of no more use."""


class CopyStream:
    """Blocking; one thread uses it, and any may cut it."""

    def __init__(
        self,
        connection: socket.socket,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
    ) -> None:
        connection.settimeout(STALL_SECONDS)
        self._connection = connection
        self._tls = tls
        self._incoming, self._outgoing = incoming, outgoing
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self.on_close: Callable[[], None] = lambda: None
        """Called once it is closed."""

    def send(self, data: bytes | memoryview) -> None:
        """Send all of it.

        Raises:
            CopyBrokenError: the other end is gone, or takes nothing.
        """
        view = memoryview(data)
        try:
            while view:
                written = self._tls.write(view[:BUFFER_BYTES])
                self._flush()
                view = view[written:]
        except (OSError, ValueError) as error:
            raise CopyBrokenError(str(error)) from error

    def receive_into(self, view: memoryview) -> None:
        """Fill the view.

        Raises:
            CopyBrokenError: the other end is gone, or nothing came.
        """
        try:
            while view:
                try:
                    count = int(
                        self._tls.read(len(view), view)
                    )  # into the view: typeshed says bytes
                except ssl.SSLWantReadError:
                    self._flush()
                    self._fill()
                    continue
                if not count:
                    raise CopyBrokenError("the other end has closed")
                view = view[count:]
        except (OSError, ValueError) as error:
            raise CopyBrokenError(str(error) or type(error).__name__) from error

    def receive_frame(self, bytes_max: int) -> Frame:
        """The next frame.

        Raises:
            CopyBrokenError: it is longer than that, or as `receive_into`.
        """
        reader, header = FrameReader(bytes_max), bytearray(HEADER_BYTES)
        self.receive_into(memoryview(header))
        reader.feed(bytes(header))
        try:
            frame = reader.next_frame()
            if frame is None:
                rest = bytearray(reader.bytes_missing)
                self.receive_into(memoryview(rest))
                reader.feed(bytes(rest))
                frame = reader.next_frame()
        except FrameError as error:
            raise CopyBrokenError(str(error)) from error
        assert frame is not None, "all of it was fed"
        return frame

    def cut(self) -> None:
        """End it from any thread; who waits in it hears of it at once."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of it; no thread may be in it any more."""
        self.cut()
        self._connection.close()
        self.on_close()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._connection.sendall(self._outgoing.read())

    def _fill(self) -> None:
        count = self._connection.recv_into(self._buffer)
        if not count:
            raise CopyBrokenError("the other end has closed")
        self._incoming.write(self._buffer[:count])
