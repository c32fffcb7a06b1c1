"""One connection of the API: a deadline wherever the client is waited for, and a cap on them all.

uvicorn waits without end for the first request, for the rest of a head that has begun, and for a
client that does not read. Each silent connection holds a file, and a process without files can't
work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import H11Protocol

from node.io.file_limit import file_limit
from node.log import logger

if TYPE_CHECKING:
    import asyncio  # noqa: TID251 - the type of uvicorn's own transport

HEAD_SECONDS = 10.0
"""From the connection, or a request's first byte, to its complete head."""
CONNECTIONS_MAX = 1000
"""Connections at once where the file limit leaves room for them; further ones are answered 503."""
CONNECTIONS_MIN = 16
CONNECTIONS_SPARE = 16
"""Connections beyond the cap that may still hear their 503; further ones are closed unheard."""
FILES_PER_CONNECTION = 4
"""Connections get a quarter of the files: disk, links, runners, the accept queue need theirs."""

WRITE_SECONDS = 65.0
"""For a client to take `WRITE_BYTES` of what waits for it: a little more than an answer waits, and
then says so in the log. A closed connection stays open until all is taken, else for ever."""
WRITE_BYTES = 64 * 1024

_log = logger("api")


def connections_max() -> int:
    """Connections that are answered at once, under the file limit that holds now."""
    return max(CONNECTIONS_MIN, min(CONNECTIONS_MAX, file_limit() // FILES_PER_CONNECTION))


class Connection(H11Protocol):
    """uvicorn's connection, which closes where a request's head does not come in time."""

    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Wait for the first head, or close where there are too many connections already."""
        super().connection_made(transport)
        limit = self.limit_concurrency
        if limit is not None and len(self.connections) >= limit + CONNECTIONS_SPARE:
            _log.debug("closed a connection at once: %d are open", len(self.connections))
            transport.abort()
            return
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes; a head that has begun must end before its deadline."""
        super().data_received(data)
        self._watch_head()

    def pause_writing(self) -> None:
        """Much waits for the client: it has until the deadline to take it."""
        super().pause_writing()
        if self._write_timer is None:
            self._watch_write()

    def resume_writing(self) -> None:
        """It has taken most."""
        self._forget_write()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; one whose client has not taken the last answer, at once."""
        if self.transport.get_write_buffer_size() and not self.transport.is_closing():
            self.transport.abort()
            return
        super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines."""
        self._forget_head()
        self._forget_write()
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]
        if answering or self.timeout_keep_alive_task is not None:
            self._forget_head()  # the application, or uvicorn's own timer, ends this wait
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_expired)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _watch_write(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(WRITE_SECONDS, self._write_expired, waiting)

    def _write_expired(self, waiting_before: int) -> None:
        if waiting_before - self.transport.get_write_buffer_size() >= WRITE_BYTES:
            self._watch_write()  # it is slow, but it reads
        else:
            self.transport.abort()

    def _forget_write(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _head_expired(self) -> None:
        self._head_timer = None
        self.transport.abort()
