"""Who is let in, and who is turned away with which status."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import httpx2
import msgspec
import pytest

from node.api.guard import BODY_BYTES_MAX, HEADERS_MAX, Guard, allowed_hosts
from node.api.server import ApiServer, serve
from node.model.errors import RefusedError
from node.wire.surface import FaultBody
from tests.api.conftest import make_config
from tests.fakes.fake_handle import FakeHandle

TOKEN = "s3cret" * 6
JSON = "application/json"
BEARER = f"Bearer {TOKEN}"
LAN = "10.77.0.2"
HOSTS = {"localhost", "127.0.0.1", "[::1]", "mac-a.local", "10.77.0.1"}


async def application(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


async def ask(
    *,
    peer: str = "127.0.0.1",
    method: str = "POST",
    server: str = "127.0.0.1",
    path: str = "/v1/cluster",
    token_on_loopback: bool = False,
    scopes: Mapping[bytes, str] | None = None,
    **headers: str | list[str],
) -> int:
    """The status that a request gets; a list stands for a header that comes several times."""
    guard = Guard(
        application,
        hosts=HOSTS,
        token=TOKEN,
        scope_of=(scopes or {}).get,
        token_on_loopback=token_on_loopback,
    )
    pairs = [
        (name.replace("_", "-").encode(), value.encode())
        for name, values in headers.items()
        for value in (values if isinstance(values, list) else [values])
    ]
    statuses: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": pairs,
        "client": (peer, 1),
        "server": (server, 52415),
    }
    await guard(scope, receive, send)
    return statuses[0]


CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("curl on loopback", 200, {"host": "localhost:52415", "content_type": JSON}),
    ("loopback over IPv6", 200, {"peer": "::1", "host": "[::1]:52415", "content_type": JSON}),
    ("DNS rebinding", 421, {"host": "evil.com:52415", "content_type": JSON}),
    ("no Host", 421, {"content_type": JSON}),
    ("two Hosts", 421, {"host": ["localhost", "evil"], "content_type": JSON}),
    ("a Host that begins well", 421, {"host": "localhost.evil.com", "content_type": JSON}),
    ("a Host with a path", 421, {"host": "localhost/x?", "content_type": JSON}),
    (
        "fetch by a web page",
        403,
        {"host": "localhost:52415", "origin": "https://evil.com", "content_type": JSON},
    ),
    (
        "a sandboxed frame",
        403,
        {"host": "localhost:52415", "origin": "null", "content_type": JSON},
    ),
    ("a form of text", 415, {"host": "localhost:52415", "content_type": "text/plain"}),
    (
        "a form without Origin",
        415,
        {"host": "localhost:52415", "content_type": "application/x-www-form-urlencoded"},
    ),
    (
        "an image of another site",
        403,
        {"method": "GET", "host": "localhost:52415", "sec_fetch_site": "cross-site"},
    ),
    ("network, no token", 401, {"peer": LAN, "host": "10.77.0.1:52415", "content_type": JSON}),
    (
        "network, wrong token",
        401,
        {"peer": LAN, "host": "10.77.0.1", "authorization": "Bearer nope", "content_type": JSON},
    ),
    (
        "network, right token",
        200,
        {"peer": LAN, "host": "mac-a.local:52415", "authorization": BEARER, "content_type": JSON},
    ),
    (
        "network, two tokens",
        401,
        {
            "peer": LAN,
            "host": "mac-a.local",
            "authorization": [BEARER, "Bearer x"],
            "content_type": JSON,
        },
    ),
    (
        "a forwarded address is not believed",
        401,
        {
            "peer": LAN,
            "host": "mac-a.local",
            "x_forwarded_for": "127.0.0.1",
            "content_type": JSON,
        },
    ),
    (
        "a mapped address is not loopback",
        401,
        {"peer": "::ffff:10.77.0.2", "host": "mac-a.local", "content_type": JSON},
    ),
    ("mapped loopback is loopback", 200, {"peer": "::ffff:127.0.0.1", "host": "localhost"}),
    ("same-site is another site", 403, {"host": "localhost", "sec_fetch_site": "same-site"}),
    ("the address bar", 200, {"method": "GET", "host": "localhost", "sec_fetch_site": "none"}),
    ("a type that begins well", 415, {"host": "localhost", "content_type": "application/jsonp"}),
    ("a charset", 200, {"host": "localhost", "content_type": "application/json; charset=utf-8"}),
    ("a body without a type", 415, {"host": "localhost", "content_length": "2"}),
    ("a chunked body without a type", 415, {"host": "localhost", "transfer_encoding": "chunked"}),
    ("no body, no type", 200, {"host": "localhost", "content_length": "0"}),
    ("an empty token", 401, {"peer": LAN, "host": "mac-a.local", "authorization": "Bearer "}),
    ("basic, not bearer", 401,
     {"peer": LAN, "host": "10.77.0.1", "authorization": f"Basic {TOKEN}"}),
    ("the address it listens on", 200, {"host": "10.9.9.9:52415", "server": "10.9.9.9"}),
    ("an address it does not listen on", 421, {"host": "10.9.9.8:52415", "server": "10.9.9.9"}),
    ("the address, dual stack", 200, {"host": "10.9.9.9", "server": "::ffff:10.9.9.9"}),
    ("a token on loopback too, missing", 401, {"host": "localhost", "token_on_loopback": True}),
    (
        "a token on loopback too",
        200,
        {"host": "localhost", "token_on_loopback": True, "authorization": BEARER},
    ),
    ("a bare body over the limit", 413,
     {"host": "localhost", "content_type": JSON, "content_length": str(BODY_BYTES_MAX + 1)}),
    ("many headers", 431, {"host": "localhost", "x_a": ["1"] * HEADERS_MAX}),
    ("long headers", 431, {"host": "localhost", "x_a": "1" * 40_000}),
    ("no address of a peer", 401, {"peer": "", "host": "localhost"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "request_"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
async def test_the_guard_decides(status: int, request_: dict[str, Any]) -> None:
    assert await ask(**request_) == status


async def test_a_websocket_is_turned_away() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    guard = Guard(application, hosts=HOSTS)
    await guard({"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


def test_beyond_loopback_a_token_is_needed_to_start(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as caught:
        allowed_hosts(make_config(tmp_path, api_host="0.0.0.0"))
    assert caught.value.failure.code == "api_token_missing"
    assert caught.value.failure.remedy
    assert "10.1.2.3" in allowed_hosts(make_config(tmp_path, api_host="10.1.2.3", api_token="abc"))


async def test_it_does_not_even_listen_without_a_token(tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        await serve(FakeHandle(), make_config(tmp_path, api_host="0.0.0.0"))


async def test_a_body_over_the_limit_is_refused_while_it_comes_in(server: ApiServer) -> None:
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 10 * BODY_BYTES_MAX:
            sent += 1 << 20
            yield b" " * (1 << 20)

    async with httpx2.AsyncClient(trust_env=False, timeout=20) as client:
        try:
            answer = await client.post(
                f"http://{server.address}/v1/cluster/plan",
                content=chunks(),
                headers={"content-type": JSON},
            )
            assert answer.status_code == 413
            fault = msgspec.json.decode(answer.content, type=FaultBody).error
            assert fault.code == "body_too_large"
        except httpx2.TransportError:
            pass  # it closed before the client looked for the answer
    assert sent < 3 * BODY_BYTES_MAX


async def test_a_body_that_never_ends_times_out(server: ApiServer) -> None:
    async with await anyio.connect_tcp("127.0.0.1", server.address.port) as stream:
        head = (
            "POST /v1/cluster/plan HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{"
        )
        await stream.send(head.encode())
        with anyio.fail_after(5):
            assert b" 408 " in (await stream.receive()).split(b"\r\n")[0]


INFERENCE, ADMIN = b"exoctl-inference", b"exoctl-admin"
SCOPES = {INFERENCE: "inference", ADMIN: "admin"}


@pytest.mark.parametrize(
    ("method", "path", "header", "status"),
    [
        ("POST", "/v1/chat/completions", ("authorization", b"Bearer " + INFERENCE), 200),
        ("POST", "/v1/messages", ("x-api-key", INFERENCE), 200),
        ("POST", "/ollama/api/chat", ("x-api-key", INFERENCE), 200),
        ("POST", "/ollama/api/delete", ("x-api-key", INFERENCE), 403),
        ("GET", "/v1/models/owner/model", ("authorization", b"bearer " + INFERENCE), 200),
        ("DELETE", "/v1/models/owner/model", ("authorization", b"Bearer " + INFERENCE), 403),
        ("GET", "/v1/cluster/state", ("authorization", b"Bearer " + INFERENCE), 403),
        ("POST", "/v1/cluster/shutdown", ("x-api-key", INFERENCE), 403),
        ("POST", "/v1/chat/completions/../../cluster", ("x-api-key", INFERENCE), 403),
        ("POST", "/api/delete", ("x-api-key", INFERENCE), 403),
        ("GET", "/metrics", ("x-api-key", INFERENCE), 403),
        ("GET", "/v1/cluster/state", ("authorization", b"Bearer " + ADMIN), 200),
        ("GET", "/v1/cluster/state", ("authorization", b"Basic " + ADMIN), 401),
        ("GET", "/v1/cluster/state", ("authorization", b"Bearer nope"), 401),
        ("GET", "/v1/cluster/state", ("authorization", b"Bearer "), 401),
    ],
)
async def test_a_named_token_opens_its_scope_and_no_more(
    method: str, path: str, header: tuple[str, bytes], status: int
) -> None:
    named: dict[str, Any] = {header[0].replace("-", "_"): header[1].decode()}
    asked = await ask(method=method, path=path, peer=LAN, host="10.77.0.1", scopes=SCOPES, **named)
    assert asked == status


async def test_refusals_speak_the_dialect_of_their_path(http: httpx2.AsyncClient) -> None:
    page = {"origin": "https://evil.com"}
    openai = (await http.get("/v1/models", headers=page)).json()["error"]
    assert set(openai) == {"message", "type", "param", "code"}
    assert openai["type"] == "permission_error"
    cluster = (await http.get("/v1/cluster", headers=page)).json()["error"]
    assert cluster["kind"] == "RefusedError"
    assert (await http.get("/v1/cluster", headers=page)).headers["x-request-id"].startswith("q-")
