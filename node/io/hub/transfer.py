"""The bytes of one file from a hub: from where the part ends, whatever the server does."""

import errno
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import anyio
import anyio.to_thread
import httpx2

from node.core import hub_trouble
from node.core.download_queue import Trouble
from node.io import clock
from node.io.hub.hub import HubError, retry_after_seconds
from node.io.hub.part_file import PartFile
from node.model.download import RemoteFile

WRITE_BYTES = 1024 * 1024
"""Gathered before one write, hash included, in a thread."""
CONNECT_SECONDS = 10.0
REDIRECTS_MAX = 5

OnBytes = Callable[[int], float]
"""Takes the bytes that came and says how long to wait before more."""


class TransferLimits:
    """How slow a server may be; tests shorten them."""

    silence_seconds = 30.0
    """Not a byte for so long: the connection is given up."""
    slow_seconds = 60.0
    slow_bytes = 64 * 1024
    """Less than so many within `slow_seconds`: a connection that only keeps us waiting."""


class Transfer:
    """Shared by the downloads of a node; opened by `async with`."""

    def __init__(self, limits: TransferLimits | None = None) -> None:
        self._limits = limits or TransferLimits()
        self._client: httpx2.AsyncClient | None = None

    def client(self) -> httpx2.AsyncClient:
        """The one client, made when first needed."""
        if self._client is None:
            self._client = httpx2.AsyncClient(
                follow_redirects=True,
                max_redirects=REDIRECTS_MAX,
                timeout=httpx2.Timeout(self._limits.silence_seconds, connect=CONNECT_SECONDS),
            )
        return self._client

    async def close(self) -> None:
        """Let go of every connection."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def fetch(
        self, url: str, headers: Mapping[str, str], part: PartFile, what: str, on_bytes: OnBytes
    ) -> None:
        """Append to the part until it is full.

        Raises:
            HubError: it ended before; what came is kept.
            OSError: the disk refuses.
        """
        if part.is_full:
            return
        try:
            async with self._request(url, headers, part.length) as response:
                skip = _check(response, part, what, has_token="Authorization" in headers)
                await self._receive(response, part, skip, on_bytes)
        except (httpx2.TooManyRedirects, httpx2.InvalidURL) as error:
            raise HubError(hub_trouble.changed(what, f"{error}")) from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            raise HubError(hub_trouble.unreachable(what, str(error) or "no connection")) from error
        except httpx2.HTTPError as error:
            raise HubError(_broken_off(what, part, error)) from error
        if not part.is_full:
            left = part.file.size - part.length
            raise HubError(
                hub_trouble.interrupted(what, f"the server ended {left} bytes before the end")
            )

    async def read_range(
        self, url: str, headers: Mapping[str, str], first: int, end: int, what: str
    ) -> bytes:
        """The bytes [first, end) of a file, held in memory.

        Raises:
            HubError: they can't be had.
        """
        asked = {**headers, "Range": f"bytes={first}-{end - 1}"}
        try:
            async with self.client().stream("GET", url, headers=asked) as response:
                _check_status(response, what, has_token="Authorization" in headers)
                skip = 0 if response.status_code == 206 else first
                found = bytearray()
                async with aclosing(_chunks(response)) as chunks:
                    async for chunk in chunks:
                        found += chunk
                        if len(found) >= skip + end - first:
                            break
                return bytes(found[skip : skip + end - first])
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise HubError(
                hub_trouble.unreachable(what, str(error) or type(error).__name__)
            ) from error

    # -- inside ------------------------------------------------------------------------------------

    def _request(self, url: str, headers: Mapping[str, str], offset: int):
        asked = {**headers, "Range": f"bytes={offset}-"} if offset else dict(headers)
        return self.client().stream("GET", url, headers=asked)

    async def _receive(
        self, response: httpx2.Response, part: PartFile, skip: int, on_bytes: OnBytes
    ) -> None:
        waiting = bytearray()
        watch = _Watch(self._limits)
        try:
            async with aclosing(_chunks(response)) as chunks:
                async for chunk in chunks:
                    watch.came(len(chunk), clock.monotonic())
                    data = chunk
                    if skip:
                        data, skip = chunk[skip:], max(0, skip - len(chunk))
                    waiting += data
                    room = part.file.size - part.length - len(waiting)
                    if room <= 0:
                        del waiting[part.file.size - part.length :]
                        break
                    if len(waiting) >= WRITE_BYTES:
                        pause = await self._write(part, waiting, on_bytes)
                        if pause > 0:
                            await anyio.sleep(pause)
                            watch.paused()
        finally:
            if waiting:
                await self._write(part, waiting, on_bytes)

    async def _write(self, part: PartFile, waiting: bytearray, on_bytes: OnBytes) -> float:
        """Append what waits, and say how long to wait before more.

        It waits no longer from here on, whatever becomes of it: nothing may be appended twice.
        """
        data = bytes(waiting)
        waiting.clear()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(part.append, data)
        return on_bytes(len(data))


class _Watch:
    """Ends a connection over which hardly anything comes."""

    def __init__(self, limits: TransferLimits) -> None:
        self._limits = limits
        self._since = clock.monotonic()
        self._bytes = 0

    def came(self, count: int, now: float) -> None:
        self._bytes += count
        if now - self._since < self._limits.slow_seconds:
            return
        if self._bytes < self._limits.slow_bytes:
            seconds = now - self._since
            raise httpx2.ReadTimeout(f"only {self._bytes} bytes came within {seconds:.0f} s")
        self.paused()

    def paused(self) -> None:
        self._since, self._bytes = clock.monotonic(), 0


async def _chunks(response: httpx2.Response) -> AsyncGenerator[bytes]:
    async for chunk in response.aiter_raw():
        yield chunk


def _check(response: httpx2.Response, part: PartFile, what: str, *, has_token: bool) -> int:
    """Bytes at the start that are here already; 0 where the server heeded the range.

    Raises:
        HubError: it is no answer that the part can go on with.
    """
    _check_status(response, what, has_token=has_token)
    size, offset = part.file.size, part.length
    if response.status_code == 206:
        wanted = f"bytes {offset}-"
        said = response.headers.get("Content-Range", "")
        total = said.rpartition("/")[2]
        if not said.startswith(wanted) or total not in ("*", str(size)):
            raise HubError(
                hub_trouble.changed(what, f"asked for bytes {offset} of {size}, it sends {said!r}")
            )
        return 0
    length = response.headers.get("Content-Length", "")
    if length.isdigit() and int(length) != size:
        raise HubError(hub_trouble.changed(what, f"it has {length} bytes, {size} are listed"))
    return offset


def _check_status(response: httpx2.Response, what: str, *, has_token: bool) -> None:
    status = response.status_code
    if status in (200, 206):
        return
    if status == 416:
        said = response.headers.get("Content-Range", "another size")
        raise HubError(hub_trouble.changed(what, f"the server has {said}"))
    raise HubError(
        hub_trouble.of_status(
            status,
            what,
            error_code=response.headers.get("X-Error-Code", ""),
            has_token=has_token,
            after=retry_after_seconds(response.headers),
        )
    )


def _broken_off(what: str, part: PartFile, error: httpx2.HTTPError) -> Trouble:
    reason = str(error) or type(error).__name__
    return hub_trouble.interrupted(
        what, f"broken off at byte {part.length} of {part.file.size}: {reason}"
    )


def disk_trouble(what: str, file: RemoteFile, error: OSError) -> Trouble:
    """What the disk said, as a trouble."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return hub_trouble.disk_full(what, file.size, 0)
    return hub_trouble.disk_fails(what, error.strerror or str(error))
