"""Links between real processes on networks of their own: multicast, none, cut cables, dead peers.

Everything is inside network namespaces that the test makes and removes.
"""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from node.io.identity import load_or_create_identity
from tests.fakes.network import PATIENCE_SECONDS, Network, ip

PORT = 52416
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.netns


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
    """Two members of one cluster, one in each namespace."""

    def __init__(self, network: Network, directory: Path) -> None:
        self.network = network
        self._states = [directory / name for name in "ab"]
        self.nodes = [load_or_create_identity(state).node for state in self._states]
        self.members: list[Member] = []

    async def start(self, number: int, **wish: object) -> Member:
        facts = {
            "name": "ab"[number],
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


async def test_multicast_alone_brings_members_together(network: Network, tmp_path: Path):
    network.build(ipv4=True)
    pair = Pair(network, tmp_path)
    try:
        one = await pair.start(0, discovery=True)
        two = await pair.start(1, discovery=True)
        up_one, up_two = await one.event("up"), await two.event("up")
        assert (up_one["peer"], up_two["peer"]) == (pair.nodes[1], pair.nodes[0])
        assert (up_one["medium"], up_two["medium"]) == ("ethernet", "ethernet")
    finally:
        await pair.stop()


async def test_link_local_ipv6_alone_is_enough(network: Network, tmp_path: Path):
    network.build(ipv4=False)
    await network.wait_for_addresses()
    pair = Pair(network, tmp_path)
    try:
        one = await pair.start(0, discovery=True)
        two = await pair.start(1, discovery=True)
        up_one, up_two = await one.event("up"), await two.event("up")
        assert up_one["host"].startswith("fe80::")
        assert up_one["host"].endswith("%veth0")
        assert up_two["peer"] == pair.nodes[0]
    finally:
        await pair.stop()


async def test_without_multicast_a_named_peer_is_enough(network: Network, tmp_path: Path):
    network.build(ipv4=True)
    network.block_multicast()
    pair = Pair(network, tmp_path)
    try:
        one = await pair.start(0, discovery=True)
        two = await pair.start(1, discovery=True, peer=f"10.77.0.1:{PORT}")
        assert (await two.event("up"))["host"] == "10.77.0.1"
        assert (await one.event("up"))["peer"] == pair.nodes[1]
        with anyio.fail_after(PATIENCE_SECONDS):
            # It did try, and was blocked.
            while not network.dropped(network.names[0]):  # noqa: ASYNC110 - a counter
                await anyio.sleep(0.1)
    finally:
        await pair.stop()


async def test_a_killed_peer_is_down_and_refused_at_once(network: Network, tmp_path: Path):
    network.build(ipv4=True)
    pair = Pair(network, tmp_path)
    try:
        one = await pair.start(0)
        two = await pair.start(1, peer=f"10.77.0.1:{PORT}")
        await one.event("up")
        await two.event("up")
        killed_at = anyio.current_time()
        await two.stop(signal.SIGKILL)
        down, refused = await one.event("down"), await one.event("down")
        assert (down["refused"], refused["refused"]) == (False, True)
        assert anyio.current_time() - killed_at < 1.0
        again = await pair.start(1, peer=f"10.77.0.1:{PORT}")
        assert (await again.event("up"))["peer"] == pair.nodes[0]
        assert (await one.event("up"))["peer"] == pair.nodes[1]
    finally:
        await pair.stop()


async def test_a_pulled_cable_is_silence_and_the_link_comes_back(network: Network, tmp_path: Path):
    network.build(ipv4=True)
    pair = Pair(network, tmp_path)
    try:
        one = await pair.start(0)
        two = await pair.start(1, peer=f"10.77.0.1:{PORT}")
        await one.event("up")
        await two.event("up")
        ip("-n", network.names[1], "link", "set", "veth0", "down")
        down = await one.event("down")
        assert not down["refused"]
        assert "silent for" in down["reason"]
        ip("-n", network.names[1], "link", "set", "veth0", "up")
        assert (await one.event("up"))["peer"] == pair.nodes[1]
    finally:
        await pair.stop()
