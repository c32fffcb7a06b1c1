"""One call of a node's HTTP API from wherever the node is, with nothing kept between two calls."""

import http.client
import json
import time
from collections.abc import Generator
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

from tests.fakes.lan import connect


class CallFailed(Exception):  # noqa: N818 - a finding, not a mistake
    """No whole answer came: refused, reset, cut off, or too late."""


class Answer:
    """Status and body."""

    def __init__(self, status: int, body: Any) -> None:
        self.status, self.body = status, body

    @property
    def item(self) -> Any:
        """The only item of a page."""
        (item,) = self.body["items"]
        return item

    @property
    def code(self) -> str:
        """Of a failure."""
        return str(self.body.get("error", {}).get("code", ""))


def _open(
    place: tuple[str, str], method: str, path: str, body: object, seconds: float
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    namespace, address = place
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=seconds)
    try:
        connection.sock = connect(namespace, host, int(port), seconds)
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"content-type": "application/json"})
        return connection, connection.getresponse()
    except BaseException:
        connection.close()
        raise


def call(
    place: tuple[str, str],
    method: str,
    path: str,
    body: object = None,
    *,
    seconds: float,
    **query: object,
) -> Answer:
    """Ask the API at (namespace, host:port).

    Raises:
        CallFailed: no whole answer within the time.
    """
    target = path + ("?" + urlencode(query) if query else "")
    try:
        connection, response = _open(place, method, target, body, seconds)
        with closing(connection):
            return Answer(response.status, json.loads(response.read()))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CallFailed(f"{type(error).__name__}: {error}") from error


def stream(
    place: tuple[str, str], path: str, body: object, *, seconds: float
) -> Generator[dict[str, Any]]:
    """Server-sent events of an answer, each decoded, until `[DONE]`; a refusal is its only one.

    Raises:
        CallFailed: it was cut off, or not at its end in time.
    """
    deadline = time.monotonic() + seconds
    try:
        connection, response = _open(place, "POST", path, body, seconds)
        with closing(connection):
            if response.status != 200:
                yield json.loads(response.read())
                return
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise CallFailed(f"not at its end after {seconds:g} s")
                if connection.sock is not None:
                    connection.sock.settimeout(left)
                line = response.readline()
                if not line:
                    raise CallFailed("cut off before its end")
                if line.startswith(b"data: [DONE]"):
                    return
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CallFailed(f"{type(error).__name__}: {error}") from error
