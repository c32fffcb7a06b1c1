"""Who may ask at all: stands before every route, and answers those it turns away itself.

Against DNS rebinding: the Host header must name this machine. Against web pages that reach for a
local port: no Origin, no cross-site fetch, bodies are JSON only. Against the network: a token.
"""

import hmac
import ipaddress
import re
import socket
from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from node.api.faults import HttpError, dialect_of, headers_of, status_of
from node.config import Config
from node.model.errors import ExoctlError, RefusedError

BODY_BYTES_MAX = 32 * 1024 * 1024
HEADERS_MAX = 100
HEADER_BYTES_MAX = 32 * 1024
INFERENCE_PATHS = frozenset(
    {
        *("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models"),
        *("/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
        *("/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/tags"),
        *("/api/show", "/api/ps", "/api/version", "/health", "/ready", "/"),
    }
)
"""What a token of scope `inference` opens, and the models by their name."""
_MODEL_PATH = "/v1/models/"
_OLLAMA = "/ollama"
"""Ollama's paths are served under it too."""
ScopeOf = Callable[[bytes], str | None]
"""The scope of a named token; None where it is none."""
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_BODY_METHODS = ("POST", "PUT", "PATCH", "DELETE")
_HOST = re.compile(r"(\[[0-9a-f:.%]+\]|[a-z0-9_.-]+)(?::[0-9]{1,5})?")
_JSON_TYPE = re.compile(rb"application/json *(;.*)?", re.IGNORECASE)


def is_loopback(host: str) -> bool:
    """Whether an address or name means this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(_plain_address(host)).is_loopback
    except ValueError:
        return False


def _plain_address(host: str) -> str:
    """An address without scope, and as IPv4 where a dual-stack socket shows it mapped."""
    return host.partition("%")[0].removeprefix("::ffff:")


def allowed_hosts(config: Config, *, has_tokens: bool = False) -> frozenset[str]:
    """Names by which clients may call this node, as they stand in a Host header.

    Raises:
        RefusedError: the API is to listen beyond loopback and there is no token.
    """
    if is_loopback(config.api_host):
        return frozenset({*LOOPBACK_HOSTS, _bracketed(config.api_host)})
    if not config.api_token and not has_tokens:
        raise RefusedError.because(
            "api_token_missing",
            f"the API is to listen on {config.api_host}, where others reach it, without a token",
            "make one (exoctl token create NAME), or keep the API on 127.0.0.1",
        )
    name = socket.gethostname().lower()
    names = {name, name.partition(".")[0]}
    local = {f"{each.partition('.')[0]}.local" for each in names}
    return frozenset({*LOOPBACK_HOSTS, *names, *local, _bracketed(config.api_host.lower())})


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Guard:
    """ASGI application around another one."""

    def __init__(
        self,
        application: ASGIApp,
        *,
        hosts: Iterable[str],
        token: str = "",
        scope_of: ScopeOf = lambda _: None,
        token_on_loopback: bool = False,
    ) -> None:
        self._application = application
        self._hosts = frozenset(hosts)
        self._token = token.encode()
        self._scope_of = scope_of
        self._token_on_loopback = token_on_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer why not."""
        try:
            self._check(scope)
        except HttpError as error:
            await _refuse(scope, send, error)
            return
        await self._application(scope, _BoundedBody(receive), send)

    def _check(self, scope: Scope) -> None:
        if scope["type"] != "http":
            raise HttpError(403, "not_http", f"{scope['type']} is not served here")
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        size = sum(len(key) + len(value) for key, value in headers)
        if len(headers) > HEADERS_MAX or size > HEADER_BYTES_MAX:
            raise HttpError(
                431,
                "headers_too_large",
                f"{len(headers)} headers of {size} bytes; {HEADERS_MAX} headers of"
                f" {HEADER_BYTES_MAX} bytes are the limit",
            )
        self._check_host(_values(headers, b"host"), scope)
        _check_site(headers)
        if scope["method"] in _BODY_METHODS:
            _check_body(headers)
        self._check_token(_credentials(headers), scope)

    def _check_host(self, hosts: list[bytes], scope: Scope) -> None:
        match = _HOST.fullmatch(hosts[0].decode("latin-1").lower()) if len(hosts) == 1 else None
        local = scope.get("server") or ("", 0)
        if match is None or (
            match[1] not in self._hosts and match[1] != _bracketed(_plain_address(str(local[0])))
        ):
            raise HttpError(
                421,
                "host_not_allowed",
                "the Host header does not name this node",
                "call it as 127.0.0.1, localhost, or the host name or address it listens on",
            )

    def _check_token(self, credentials: list[bytes], scope: Scope) -> None:
        peer = scope.get("client") or ("", 0)
        if is_loopback(str(peer[0])) and not self._token_on_loopback:
            return
        given = credentials[0] if len(credentials) == 1 else b""
        granted = self._scope_of(given) if given else None
        if self._token and hmac.compare_digest(given, self._token):
            granted = "admin"
        if granted is None:
            raise HttpError(
                401,
                "token_wrong" if credentials else "token_missing",
                "this node's API needs a token here",
                "send `Authorization: Bearer TOKEN`; on the node: exoctl token create NAME",
            )
        path = str(scope["path"])
        is_inference = path.removeprefix(_OLLAMA) in INFERENCE_PATHS or (
            path.startswith(_MODEL_PATH) and scope["method"] in ("GET", "HEAD")
        )
        if granted != "admin" and not is_inference:
            raise HttpError(
                403,
                "token_scope",
                f"a token of scope {granted} does not open {path[:100]}",
                "on the node: exoctl token create NAME --scope admin",
            )


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


def _credentials(headers: list[tuple[bytes, bytes]]) -> list[bytes]:
    """Tokens in the forms that OpenAI's and Anthropic's clients send."""
    found = [value.strip() for value in _values(headers, b"x-api-key")]
    for value in _values(headers, b"authorization"):
        scheme, _, token = value.partition(b" ")
        found.append(token.strip() if scheme.lower() == b"bearer" else b"")
    return found


def _check_site(headers: list[tuple[bytes, bytes]]) -> None:
    if _values(headers, b"origin"):
        raise HttpError(403, "origin_not_allowed", "web pages may not call this API")
    sites = _values(headers, b"sec-fetch-site")
    if any(site not in (b"none", b"same-origin") for site in sites):
        raise HttpError(403, "cross_site", "web pages may not call this API")


def _check_body(headers: list[tuple[bytes, bytes]]) -> None:
    types = _values(headers, b"content-type")
    lengths = _values(headers, b"content-length")
    has_body = bool(_values(headers, b"transfer-encoding")) or any(
        length.strip(b"0 ") for length in lengths
    )
    if has_body or types:
        if len(types) != 1 or not _JSON_TYPE.fullmatch(types[0]):
            raise HttpError(
                415,
                "not_json",
                "the body must be application/json",
                "send `Content-Type: application/json`",
            )
        if any(length.isdigit() and int(length) > BODY_BYTES_MAX for length in lengths):
            raise _too_large()


def _too_large() -> HttpError:
    return HttpError(
        413, "body_too_large", f"the body is over {BODY_BYTES_MAX} bytes, which is the limit"
    )


async def _refuse(scope: Scope, send: Send, error: ExoctlError) -> None:
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1008})
        return
    body = dialect_of(scope["path"]).fault(error)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
        *headers_of(error),
    ]
    await send({"type": "http.response.start", "status": status_of(error), "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _BoundedBody:
    """Counts what comes in, so that a body without a length can't fill the memory.

    Raises an `HttpError` into whoever reads the body.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._bytes = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        if self._bytes > BODY_BYTES_MAX:
            raise _too_large()
        return message
