"""A headless Chromium, driven over its own protocol: a page as people see it."""

import base64
import re
import subprocess
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
from aiohttp import ClientSession

START_SECONDS = 30.0
PROGRAM = "chromium"


class Browser:
    """One page."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._number = 0

    async def call(self, method: str, **arguments: object) -> dict[str, Any]:
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": arguments})
        with anyio.fail_after(START_SECONDS):
            while True:
                answer = await self._socket.receive_json()
                if answer.get("id") == number:
                    assert "error" not in answer, answer
                    return answer["result"]

    async def evaluate(self, script: str) -> Any:
        result = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return result["result"].get("value")

    async def until(self, script: str) -> None:
        """Poll the page until the script gives something true."""
        while not await self.evaluate(script):  # noqa: ASYNC110 - another process is awaited
            await anyio.sleep(0.1)

    async def type(self, words: str) -> None:
        for character in words:
            await self.call("Input.dispatchKeyEvent", type="keyDown", text=character, key=character)
            await self.call("Input.dispatchKeyEvent", type="keyUp", key=character)

    async def picture(self) -> bytes:
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])


@asynccontextmanager
async def browser(url: str, width: int, height: int) -> AsyncGenerator[Browser]:
    """A page that shows the address; the browser ends with it."""
    with tempfile.TemporaryDirectory(prefix="exoctl-browser-") as folder:
        process = subprocess.Popen(  # noqa: ASYNC220 - started once, waited for in a thread
            [
                *(PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *("--remote-debugging-port=0", f"--user-data-dir={folder}"),
                *(f"--window-size={width},{height}", "about:blank"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            port = await anyio.to_thread.run_sync(_port_of, process)
            async with ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as response:
                    pages = [page for page in await response.json() if page["type"] == "page"]
                async with session.ws_connect(
                    pages[0]["webSocketDebuggerUrl"], max_msg_size=64 * 1024 * 1024
                ) as socket:
                    page = Browser(socket)
                    await page.call("Page.enable")
                    await page.call("Page.navigate", url=url)
                    yield page
        finally:
            process.terminate()
            await anyio.to_thread.run_sync(process.wait, 20)
            if process.stderr is not None:
                process.stderr.close()


def _port_of(process: "subprocess.Popen[str]") -> int:
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(r"ws://127\.0\.0\.1:(\d+)/", line)
        if found:
            return int(found[1])
    raise AssertionError("the browser ended before it listened")
