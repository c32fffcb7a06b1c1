"""HTTP calls to one node, their deadlines, and failures turned back into the errors they were."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import anyio
import msgspec

from node.model.errors import (
    ExoctlError,
    InternalError,
    TimeoutExpiredError,
    UnreachableError,
    UsageError,
)
from node.model.machine import Address
from node.wire.surface import EXACT, FaultBody, Page

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS = 5.0
CALL_SECONDS = 30.0
SILENCE_SECONDS_MAX = 45.0
"""A stream that says nothing for so long is dead: a living one has heartbeats."""
LINE_BYTES_MAX = 256 * 1024 * 1024
FAULT_START = b'{"error":'
"""Begins the line that ends a stream which failed."""
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- a listener's address, dialled here

Item = TypeVar("Item")


class Transport:
    """Made for one address; opened by `async with`."""

    def __init__(self, address: Address, token: str, call_seconds: float = CALL_SECONDS) -> None:
        """`call_seconds` is for calls that name no time of their own."""
        self.address = address
        self._call_seconds = call_seconds
        self._token = token
        self._client: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        import httpx2  # noqa: PLC0415 -- loaded only by those who dial

        host = _ANYWHERE.get(self.address.host, self.address.host)
        try:
            url = httpx2.URL(f"http://{Address(host, self.address.port)}")
        except httpx2.InvalidURL as error:
            raise UsageError.because(
                "bad_address", f"{host!r} is no host: {error}", "write http://host:port"
            ) from error
        self._client = httpx2.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {self._token}"} if self._token else {},
            timeout=httpx2.Timeout(SILENCE_SECONDS_MAX, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None),
            trust_env=False,  # a proxy must not stand between a person and their own node
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    @property
    def _open(self) -> "httpx2.AsyncClient":
        assert self._client is not None, "the transport is used outside of its `async with`"
        return self._client

    async def call(
        self,
        method: str,
        path: str,
        item: type[Item],
        *,
        body: msgspec.Struct | None = None,
        query: Mapping[str, str | int | float] | None = None,
        seconds: float | None = None,
    ) -> list[Item]:
        """Ask for a page and return its items.

        Raises:
            UnreachableError: nothing answers there, or something that is no node.
            TimeoutExpiredError: no answer in time. ExoctlError: what the node said.
        """
        return await self.call_for(
            method, path, Page[item], body=body, query=query, seconds=seconds
        )

    async def call_for(
        self,
        method: str,
        path: str,
        page: type[Page[Item]],
        *,
        body: msgspec.Struct | None = None,
        query: Mapping[str, str | int | float] | None = None,
        seconds: float | None = None,
    ) -> list[Item]:
        """Ask for a page of a given type; raises as `call` does."""
        content = None if body is None else msgspec.json.encode(body)
        parameters = {key: str(value) for key, value in (query or {}).items()} | {EXACT: "1"}
        answer = b""
        seconds = self._call_seconds if seconds is None else seconds
        with anyio.move_on_after(seconds) as limit:
            async with self._request(method, path, content, parameters) as response:
                answer = await self._read(response)
        if limit.cancelled_caught:
            raise self._late(path, seconds)
        try:
            return msgspec.json.decode(answer, type=page).items
        except msgspec.MsgspecError as error:
            raise self._misread(path, str(error)) from error

    async def stream(
        self,
        method: str,
        path: str,
        *,
        body: msgspec.Struct | None = None,
        query: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Ask for NDJSON and yield its lines that are not empty.

        Raises:
            UnreachableError: nothing answers, or the connection breaks.
            ExoctlError: what the node said in place of a stream.
        """
        content = None if body is None else msgspec.json.encode(body)
        parameters = {**(query or {}), EXACT: "1"}
        async with self._request(method, path, content, parameters) as response:
            rest = b""
            async for chunk in self._chunks(response):
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > LINE_BYTES_MAX:
                    raise self._misread(path, f"a line of more than {LINE_BYTES_MAX} bytes")
                for line in lines:
                    if line.startswith(FAULT_START):
                        raise self._fault(response.status_code, line)
                    if line:
                        yield line

    async def _chunks(self, response: "httpx2.Response") -> AsyncGenerator[bytes, None]:
        import httpx2  # noqa: PLC0415 -- loaded already by whoever holds a response

        try:
            async for chunk in response.aiter_raw():
                yield chunk
        except httpx2.TransportError as error:
            raise self._cut(error) from error

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, content: bytes | None, parameters: Mapping[str, str]
    ) -> AsyncGenerator["httpx2.Response"]:
        import httpx2  # noqa: PLC0415 -- loaded already by `__aenter__`

        headers = {} if content is None else {"Content-Type": "application/json"}
        request = self._open.build_request(
            method, path, content=content, params=dict(parameters), headers=headers
        )
        try:
            response = await self._open.send(request, stream=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise self._unreachable() from error
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise self._cut(error) from error
        try:
            if response.status_code >= 400:
                raise self._fault(response.status_code, await self._read(response))
            yield response
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    async def _read(self, response: "httpx2.Response") -> bytes:
        import httpx2  # noqa: PLC0415 -- loaded already by whoever holds a response

        try:
            return await response.aread()
        except httpx2.TransportError as error:
            raise self._cut(error) from error

    def _fault(self, status: int, body: bytes) -> ExoctlError:
        try:
            return msgspec.json.decode(body, type=FaultBody).error.to_error()
        except msgspec.MsgspecError:
            return UnreachableError.because(
                "not_a_node",
                f"what answers at {self.address} is no exoctl node (HTTP {status})",
                "check the address and the port",
            )

    def _unreachable(self) -> ExoctlError:
        return UnreachableError.because(
            "node_unreachable",
            f"no node answers at {self.address}",
            "start one with `exoctl up`, or name another with --host",
        )

    def _cut(self, error: Exception) -> ExoctlError:
        reason = str(error) or type(error).__name__
        return UnreachableError.because(
            "connection_cut",
            f"the connection to the node at {self.address} broke: {reason}",
            "see `exoctl status` whether it still runs",
        )

    def _late(self, path: str, seconds: float) -> ExoctlError:
        return TimeoutExpiredError.because(
            "timed_out",
            f"the node at {self.address} did not answer {path} within {seconds:g} s",
            "it may still be carried out: look before you ask again",
        )

    def _misread(self, path: str, reason: str) -> ExoctlError:
        return InternalError.because(
            "answer_unreadable",
            f"the answer of {self.address} to {path} can't be read: {reason}",
            "the node may be of another version: compare `exoctl version` with `exoctl status`",
        )
