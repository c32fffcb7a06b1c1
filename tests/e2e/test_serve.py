"""The app in a browser: the same app, attached to the one node, behind a token on loopback."""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest
from aiohttp import (
    ClientSession,
    ClientWebSocketResponse,
    WSMsgType,
    WSServerHandshakeError,
)

from tests.e2e.conftest import real_nodes
from tests.fakes.browser import PROGRAM, browser
from tests.fakes.node_process import ROOT, NodeProcesses
from tests.fakes.tools import missing

DEADLINE_SECONDS = 60.0
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")


@pytest.fixture
def nodes(tmp_path: Path) -> Generator[NodeProcesses]:
    (tmp_path / "models").mkdir()
    yield from real_nodes(tmp_path, tmp_path / "models")


@pytest.fixture
def page(nodes: NodeProcesses) -> Generator[str]:
    """The address of a served page over a node of its own."""
    node = nodes.start("north").wait_ready()
    process = subprocess.Popen(
        [sys.executable, "-m", "tui", "serve", "--web-port", "0", "--tabs", "2", "--read-only"],
        env=node.environment,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_SECONDS) == 0
    process.stdout.close()
    assert node.process.poll() is None


async def drawn(session: ClientSession, base: str) -> bytes:
    """What a tab is sent until the overview is on it."""
    seen = b""
    async with session.ws_connect(f"{base}/ws?width=120&height=36") as socket:
        with anyio.fail_after(DEADLINE_SECONDS):
            while b"Topology" not in ESCAPES.sub(b"", seen):
                message = await socket.receive()
                assert message.type is WSMsgType.BINARY or message.type is WSMsgType.TEXT, message
                seen += message.data if isinstance(message.data, bytes) else message.data.encode()
    return seen


async def opened(session: ClientSession, base: str) -> ClientWebSocketResponse:
    """A tab, once there is a place: an earlier one frees its own when its app has ended."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while True:
            try:
                return await session.ws_connect(f"{base}/ws?width=80&height=24")
            except WSServerHandshakeError as error:
                if error.status != 503:
                    raise
                await anyio.sleep(0.05)


@pytest.mark.e2e
async def test_the_page_is_the_app_for_whoever_has_the_token_and_for_nobody_else(
    page: str, nodes: NodeProcesses
) -> None:
    base, _, token = page.partition("/?token=")
    async with ClientSession() as stranger:
        for headers, path, code in (
            ({}, "/", 401),
            ({}, "/ws", 401),
            ({}, "/?token=wrong", 401),
            ({"Host": "evil.example"}, f"/?token={token}", 421),
            ({"Origin": "http://evil.example"}, f"/?token={token}", 403),
        ):
            async with stranger.get(base + path, headers=headers) as response:
                assert response.status == code, path
    async with ClientSession(cookies={"exoctl_page": token}) as owner:
        async with owner.get(base) as response:
            assert response.status == 200
            assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
        await drawn(owner, base)
        async with (
            await opened(owner, base),
            await opened(owner, base),
            owner.get(f"{base}/ws") as refused,
        ):
            assert refused.status == 503
    assert len(nodes.nodes) == 1


@pytest.mark.e2e
async def test_a_browser_shows_it_and_its_keys_act(page: str) -> None:
    if shutil.which(PROGRAM) is None:
        missing(f"{PROGRAM} is not installed")
    async with browser(page, 1200, 700) as tab:
        with anyio.fail_after(DEADLINE_SECONDS):
            await tab.until("document.body.classList.contains('-first-byte')")
            assert await tab.evaluate("location.search") == ""
            await tab.until("document.activeElement.classList.contains('xterm-helper-textarea')")
            await tab.type("q")
            await tab.until("document.body.classList.contains('-closed')")
