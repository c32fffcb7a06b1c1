"""Members with mesh and discovery alone, each a process in a namespace of its own."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from node.io.identity import load_or_create_identity
from tests.fakes.network import PATIENCE_SECONDS, Network

PORT = 52416
ROOT = Path(__file__).parents[2]


class Member:
    """A member process in a namespace."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self.process = process
        self._text = TextReceiveStream(process.stdout)
        self._lines: list[str] = []
        self._rest = ""

    async def event(self, wanted: str) -> dict[str, Any]:
        """The next event of this name; others before it are dropped."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while True:
                while self._lines:
                    event = json.loads(self._lines.pop(0))
                    if event["event"] == wanted:
                        return event
                *self._lines, self._rest = (self._rest + await self._text.receive()).split("\n")

    async def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self.process.returncode is None:
            self.process.send_signal(number)
        await self.process.wait()
        await self.process.aclose()


class Pair:
    """Members of one cluster, one in each namespace."""

    def __init__(self, network: Network, directory: Path, names: str = "ab") -> None:
        self.network = network
        self._states = [directory / name for name in names]
        self.nodes = [load_or_create_identity(state).node for state in self._states]
        self.members: list[Member] = []

    async def start(self, number: int, **wish: object) -> Member:
        facts = {
            "name": "abc"[number],
            "state": str(self._states[number]),
            "members": self.nodes,
            "port": PORT,
            **wish,
        }
        # `ip netns exec` replaces itself by the member: signals reach it.
        command = ["ip", "netns", "exec", self.network.names[number]]
        command += [sys.executable, "-m", "tests.netns.member", json.dumps(facts)]
        process = await anyio.open_process(command, cwd=ROOT, stderr=None, stdin=None)
        member = Member(process)
        self.members.append(member)
        await member.event("listening")
        return member

    async def stop(self) -> None:
        with anyio.CancelScope(shield=True):
            for member in self.members:
                await member.stop()
