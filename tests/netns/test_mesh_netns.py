"""Links between real processes on networks of their own: multicast, none, cut cables, dead peers.

Everything is inside network namespaces that the test makes and removes.
"""

import signal
from pathlib import Path

import anyio
import pytest

from tests.fakes.mesh_members import PORT, Pair
from tests.fakes.network import PATIENCE_SECONDS, Network, ip

pytestmark = pytest.mark.netns


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


async def test_two_that_cannot_reach_each_other_are_linked_by_way_of_a_third_until_they_can(
    network: Network, tmp_path: Path
):
    network.build_star()
    trio = Pair(network, tmp_path, "abc")
    try:
        middle = await trio.start(2)
        one = await trio.start(0, peer=f"10.77.1.2:{PORT}")
        two = await trio.start(1, peer=f"10.77.2.2:{PORT}")
        found: dict[str, str] = {}
        for member in (one, one, two, two):
            up = await member.event("up")
            found[up["peer"]] = up["via"]
        a, b, c = trio.nodes
        assert (found[a], found[b], found[c]) == (c, c, "")
        del middle
        network.join_the_ends()
        while (up := await one.event("up"))["via"]:
            pass
        assert (up["peer"], up["host"]) == (b, "10.77.2.1")
    finally:
        await trio.stop()
