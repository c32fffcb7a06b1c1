"""Links between real processes on networks of their own: multicast, none, cut cables, dead peers.

Everything is inside network namespaces that the test makes and removes.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from node.io.identity import load_or_create_identity

PATIENCE_SECONDS = 15.0
PORT = 52416
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.netns


def ip(*arguments: str, check: bool = True) -> str:
    command = ["ip", *arguments]
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=10).stdout


def is_usable(name: str) -> bool:
    """Whether the link-local address of a namespace may be used."""
    shown = ip("-n", name, "address", "show", "dev", "veth0")
    return "fe80" in shown and "tentative" not in shown


class Network:
    """Two namespaces with a cable between them."""

    def __init__(self) -> None:
        self.names = tuple(f"exoctl-{os.getpid()}-{letter}" for letter in "ab")

    def build(self, *, ipv4: bool) -> None:
        one, two = self.names
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", one, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", two)
        for number, name in enumerate(self.names, 1):
            if ipv4:
                ip("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", "veth0")
            ip("-n", name, "link", "set", "veth0", "up")

    async def wait_for_addresses(self) -> None:
        """Return once the kernel lets the link-local addresses be used (about 2 s)."""
        with anyio.fail_after(PATIENCE_SECONDS):
            for name in self.names:
                while not is_usable(name):  # noqa: ASYNC110 - the kernel tells no event
                    await anyio.sleep(0.1)

    def block_multicast(self) -> None:
        rules = """
            table inet t {
                counter dropped { }
                chain out {
                    type filter hook output priority 0;
                    udp dport 5353 counter name dropped drop;
                }
                chain in {
                    type filter hook input priority 0;
                    udp dport 5353 drop;
                }
            }
        """
        for name in self.names:
            command = ["ip", "netns", "exec", name, "nft", "-f", "-"]
            subprocess.run(command, input=rules, check=True, text=True, timeout=10)

    def dropped(self, name: str) -> int:
        command = ["ip", "netns", "exec", name, "nft", "-j", "list", "counters"]
        shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=10)
        counters = [
            one["counter"] for one in json.loads(shown.stdout)["nftables"] if "counter" in one
        ]
        return sum(counter["packets"] for counter in counters)

    def remove(self) -> None:
        for name in self.names:
            ip("netns", "delete", name, check=False)


def reason_to_skip() -> str:
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need root on Linux"
    for program in ("ip", "nft"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    probe = f"exoctl-{os.getpid()}-probe"
    made = subprocess.run(
        ["ip", "netns", "add", probe], capture_output=True, text=True, check=False
    )
    ip("netns", "delete", probe, check=False)
    return f"no namespace can be made: {made.stderr.strip()}" if made.returncode else ""


@pytest.fixture
def network() -> Generator[Network, None, None]:
    reason = reason_to_skip()
    if reason:
        pytest.skip(reason)
    network = Network()
    try:
        yield network
    finally:
        network.remove()


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
