"""A socket pair that wakes a thread which waits on descriptors."""

import contextlib
import socket


class Wake:
    """`wake` from any thread or signal; `reader` becomes readable."""

    def __init__(self) -> None:
        self.reader, self.writer = socket.socketpair()
        for end in (self.reader, self.writer):
            end.settimeout(0.0)

    def wake(self) -> None:
        """Make the reader readable; a full pair has woken it already."""
        with contextlib.suppress(BlockingIOError):
            self.writer.send(b"\0")

    def close(self) -> None:
        """Close both ends."""
        self.reader.close()
        self.writer.close()

    def drain(self) -> bytes:
        """Take what was sent, so that the reader is silent again."""
        received = b""
        with contextlib.suppress(BlockingIOError):
            while part := self.reader.recv(4096):
                received += part
        return received
