"""The page of `exoctl serve`: textual-serve behind a token, on loopback alone."""

import hmac
import logging
import signal
from collections.abc import Awaitable, Callable

import anyio
from aiohttp import web
from textual_serve.server import Server

from node.io import clock
from node.model.errors import ConflictError
from tui.commands.console import Console

HOST = "127.0.0.1"
COOKIE = "exoctl_page"
TOKEN_CHARACTERS = 32
STOP_SECONDS = 3.0
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "font-src 'self' data:; img-src 'self' data:; connect-src 'self' ws://127.0.0.1:*; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

TAKE_FOCUS = """
<script>
const waiting = setInterval(() => {
  const field = document.querySelector(".xterm-helper-textarea");
  if (field && document.body.classList.contains("-first-byte")) {
    field.focus();
    clearInterval(waiting);
  }
}, 50);
</script>
"""
"""Keys act without a click first."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Page(Server):
    """The pages and the socket of textual-serve, for whoever holds the token."""

    def __init__(self, command: str, port: int, token: str, tabs: int) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType] - paths we do not pass
            command, host=HOST, port=port, title="exoctl"
        )
        self.token = token
        self.tabs = tabs
        self.open_tabs = 0

    async def make(self) -> web.Application:
        """The application, guarded."""
        application = await self._make_app()
        application.middlewares.append(self.guard)
        return application

    async def on_startup(self, app: web.Application) -> None:
        """Say nothing: the command says it."""

    @property
    def own_host(self) -> str:
        """What the Host header must be: another name would be somebody else's page."""
        return f"{HOST}:{self.port}"

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let through only this machine's own pages, with the token."""
        if request.host != self.own_host:
            return web.Response(status=421, text="exoctl serve answers on loopback alone\n")
        origin = request.headers.get("Origin")
        if origin is not None and origin != f"http://{self.own_host}":
            return web.Response(status=403, text="this page is not for other sites\n")
        given = request.query.get("token")
        if given is not None and request.path == "/":
            return self._admit(given)
        if not self._is_token(request.cookies.get(COOKIE, "")):
            return web.Response(status=401, text="open the address that `exoctl serve` printed\n")
        if request.path == "/ws":
            return await self._tab(request, handler)
        response = await handler(request)
        if not response.prepared:
            response.headers.update(HEADERS)
        if request.path == "/" and isinstance(response, web.Response) and response.text:
            response.text += TAKE_FOCUS
        return response

    def _admit(self, given: str) -> web.Response:
        if not self._is_token(given):
            return web.Response(status=401, text="that token is not of this page\n")
        response = web.Response(status=303, headers={"Location": "/", **HEADERS})
        response.set_cookie(COOKIE, self.token, httponly=True, samesite="Strict", path="/")
        return response

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    async def _tab(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self.open_tabs >= self.tabs:
            return web.Response(status=503, text=f"{self.tabs} tabs are open already\n")
        self.open_tabs += 1
        try:
            return await handler(request)
        finally:
            self.open_tabs -= 1


async def run_page(console: Console, command: str, port: int, tabs: int) -> None:
    """Serve until a signal comes.

    Raises:
        ConflictError: the port is taken.
    """
    logging.getLogger("textual-serve").setLevel(logging.ERROR)
    page = Page(command, port, clock.random_hex(TOKEN_CHARACTERS), tabs)
    runner = web.AppRunner(await page.make(), handle_signals=False, shutdown_timeout=STOP_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        try:
            await site.start()
        except OSError as error:
            raise ConflictError.because(
                "port_taken", f"port {port}: {error.strerror}", "name another with --web-port"
            ) from error
        page.port = runner.addresses[0][1]
        page.public_url = f"http://{HOST}:{page.port}"
        console.write(f"{page.public_url}/?token={page.token}")
        console.say("open it in a browser on this machine; ctrl-c ends the page, never the node")
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                break
    finally:
        await runner.cleanup()
