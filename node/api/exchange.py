"""One HTTP request and its answer, and what ends it early: client, deadline, stop of the node."""

import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar
from urllib.parse import parse_qsl

import anyio
import msgspec
from starlette.types import Message, Receive, Scope, Send

from node.api.bounds import check_integers
from node.api.context import ApiContext, stopping_error
from node.api.faults import (
    Dialect,
    HttpError,
    ParameterError,
    headers_of,
    internal_error,
    status_of,
)
from node.log import logger
from node.model.errors import ExoctlError
from node.model.ids import RequestId

JSON = b"application/json"
EVENT_STREAM = b"text/event-stream"
QUERY_PARTS_MAX = 32

_MISSING = re.compile(r"missing required field `(\w+)`")

Body = TypeVar("Body")
log = logger("api")


class ClientGoneError(Exception):
    """Nobody reads the answer any more."""


class Exchange:
    """A handler's view of its request. Either `answer` once, or `begin`, `write` and `end`."""

    def __init__(
        self, context: ApiContext, scope: Scope, receive: Receive, send: Send, dialect: Dialect
    ) -> None:
        self._state: dict[str, str] = scope["state"]
        self.request_id = RequestId(self._state["request_id"])
        self.path: Mapping[str, str] = scope.get("path_params", {})
        self.query = _read_query(scope["query_string"])
        self.body = b""
        self.started = False
        self.ended = False
        self._stream_type = b""
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._context = context
        self._receive = receive
        self._send = send
        self._dialect = dialect
        self._work = anyio.CancelScope()
        self._stopped = False

    async def run(self, handler: Callable[["Exchange"], Awaitable[None]], *, body: bool) -> None:
        """Answer the request with `handler`; whatever happens, the client gets an end."""
        try:
            self._context.enter(self)
            if body:
                await self._read_body()
        except ExoctlError as error:
            await self.fail(error)
            self._context.leave(self)
            return
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_client, tasks.cancel_scope)
                await self._run_guarded(handler)
                tasks.cancel_scope.cancel()
        finally:
            self._context.leave(self)

    async def _run_guarded(self, handler: Callable[["Exchange"], Awaitable[None]]) -> None:
        try:
            with self._work:
                await handler(self)
            if self._stopped and not self.ended:
                await self.fail(stopping_error())
        except ExoctlError as error:
            await self.fail(error)
        except ClientGoneError:
            log.warning("%s: cut off, its client stopped reading", self.request_id)
        except Exception:  # the boundary: a mistake in one answer must not touch another
            log.exception("%s: internal error", self.request_id)
            await self.fail(internal_error())

    def stop(self) -> None:
        """End the handler; its client is told that the node stops."""
        self._stopped = True
        self._work.cancel()

    async def _watch_client(self, scope: anyio.CancelScope) -> None:
        with contextlib.suppress(HttpError):  # a body without end, where none was asked for
            while (await self._receive())["type"] != "http.disconnect":
                pass
        scope.cancel()

    async def _read_body(self) -> None:
        parts: list[bytes] = []
        with anyio.move_on_after(self._context.timing.body_seconds) as deadline:
            more = True
            while more:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    break
                parts.append(message.get("body", b""))
                more = message.get("more_body", False)
        if deadline.cancelled_caught:
            seconds = self._context.timing.body_seconds
            raise HttpError(408, "body_timeout", f"the body did not come within {seconds:g} s")
        self.body = b"".join(parts)

    def rename(self, request_id: RequestId) -> None:
        """Answer under an id that the client chose."""
        self.request_id = request_id
        self._state["request_id"] = request_id

    def header(self, name: bytes) -> str:
        """A header's value, empty where it is missing; the last where it is double."""
        for key, value in reversed(self._headers):
            if key == name:
                return value.decode("latin-1")
        return ""

    def decode(self, body_type: type[Body]) -> Body:
        """The body as a value.

        Raises:
            ParameterError: it is no JSON, does not fit, or holds an integer beyond 64 bits; names
                the place.
        """
        return self.decode_with(msgspec.json.Decoder(body_type))

    def decode_with(self, decoder: msgspec.json.Decoder[Body]) -> Body:
        """The body as a value of the decoder's type; raises as `decode` does."""
        try:
            decoded = decoder.decode(self.body)
        except msgspec.ValidationError as error:
            raise _misfit(str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ParameterError("$", f"the body is no valid JSON: {error}") from error
        except RecursionError as error:
            raise ParameterError("$", "the body is nested too deeply") from error
        check_integers(self.body, decoded)
        return decoded

    async def answer(
        self,
        body: bytes,
        *,
        status: int = 200,
        content_type: bytes = JSON,
        headers: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        """Send the whole answer."""
        self.started = True
        self.ended = True
        self._context.answered.labels(status=str(status)).inc()
        length = (b"content-length", b"%d" % len(body))
        head = [(b"content-type", content_type), length, *(headers or [])]
        await self._put({"type": "http.response.start", "status": status, "headers": head})
        await self._put({"type": "http.response.body", "body": body})

    async def begin(self, content_type: bytes) -> None:
        """Start a streamed answer."""
        self.started = True
        self._stream_type = content_type
        self._context.answered.labels(status="200").inc()
        head = [
            (b"content-type", content_type),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await self._put({"type": "http.response.start", "status": 200, "headers": head})

    async def write(self, chunk: bytes) -> None:
        """Send a part of a streamed answer; waits while the client is slow.

        Raises:
            ClientGoneError: the client has not read for too long.
        """
        await self._put({"type": "http.response.body", "body": chunk, "more_body": True})

    async def write_or_begin(self, content_type: bytes, chunk: bytes) -> None:
        """Send a part of a streamed answer, starting it where that has not been done."""
        if not self.started:
            await self.begin(content_type)
        await self.write(chunk)

    async def end(self) -> None:
        """End a streamed answer."""
        self.ended = True
        await self._put({"type": "http.response.body", "body": b""})

    async def fail(self, error: ExoctlError) -> None:
        """Tell the client of an error, by status where nothing was sent yet, else in the stream."""
        if self.ended:
            return
        with contextlib.suppress(ClientGoneError):
            if self.started:
                await self.write(self._frame(self._dialect.fault(error)))
                await self.end()
                return
            await self.answer(
                self._dialect.fault(error), status=status_of(error), headers=headers_of(error)
            )

    def _frame(self, fault: bytes) -> bytes:
        if self._stream_type.startswith(EVENT_STREAM):
            return b"event: error\ndata: " + fault + b"\n\n"
        return fault + b"\n"

    async def _put(self, message: Message) -> None:
        with anyio.move_on_after(self._context.timing.write_seconds) as deadline:
            await self._send(message)
        if deadline.cancelled_caught:
            raise ClientGoneError


def _read_query(raw: bytes) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, max_num_fields=QUERY_PARTS_MAX
        )
    except ValueError:
        return {}
    return dict(pairs)


def _misfit(text: str) -> ParameterError:
    """Msgspec says ``Expected `int`, got `str` - at `$.a[0].b```: take the place out of it."""
    message, _, place = text.rpartition(" - at `")
    path = place.rstrip("`") if message else "$"
    missing = _MISSING.search(text)
    if missing:
        path = f"{path}.{missing[1]}"
    name = path.removeprefix("$").removeprefix(".") or "$"
    return ParameterError(name, f"{message or text} at {path}")
