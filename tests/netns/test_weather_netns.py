"""Networks as they are: lossy, one-sided, with cables that come and go; `make netns` runs these."""

import shutil
import signal
import subprocess
from pathlib import Path

import anyio
import pytest

from tests.fakes.mesh_members import PORT, Pair
from tests.fakes.network import Network, ip

pytestmark = [pytest.mark.netns, pytest.mark.thorough]


def rule(network: Network, number: int, words: str) -> None:
    command = ["ip", "netns", "exec", network.names[number], "nft", "-f", "-"]
    subprocess.run(command, input=f"table inet weather {{\n{words}\n}}\n", check=True, text=True)


@pytest.mark.parametrize("percent", [20, 50, 80])
async def test_members_find_each_other_though_multicast_is_lossy(
    network: Network, tmp_path: Path, percent: int
):
    network.build(ipv4=True)
    drop = f"udp dport 5353 numgen random mod 100 < {percent} drop;"
    for number in (0, 1):
        rule(network, number, f"chain in {{ type filter hook input priority 0; {drop} }}")
    pair = Pair(network, tmp_path)
    try:
        one = await pair.start(0, discovery=True)
        two = await pair.start(1, discovery=True)
        assert (await one.event("up"))["peer"] == pair.nodes[1]
        assert (await two.event("up"))["peer"] == pair.nodes[0]
    finally:
        await pair.stop()


async def test_a_fifth_of_all_packets_lost_leaves_the_link(network: Network, tmp_path: Path):
    network.build(ipv4=True)
    drop = "numgen random mod 100 < 20 drop;"
    rule(network, 0, f"chain in {{ type filter hook input priority 0; {drop} }}")
    pair = Pair(network, tmp_path)
    try:
        one = await pair.start(0)
        await pair.start(1, peer=f"10.77.0.1:{PORT}")
        await one.event("up")
        with anyio.move_on_after(6):
            down = await one.event("down")
            raise AssertionError(down)
    finally:
        await pair.stop()


@pytest.mark.parametrize("deaf", [0, 1])
async def test_it_is_enough_that_one_hears_the_other(network: Network, tmp_path: Path, deaf: int):
    network.build(ipv4=True)
    drop = "udp dport 5353 drop;"
    rule(network, deaf, f"chain in {{ type filter hook input priority 0; {drop} }}")
    pair = Pair(network, tmp_path)
    try:
        one = await pair.start(0, discovery=True)
        two = await pair.start(1, discovery=True)
        assert (await one.event("up"))["peer"] == pair.nodes[1]
        assert (await two.event("up"))["peer"] == pair.nodes[0]
    finally:
        await pair.stop()


async def test_a_cable_that_is_plugged_in_later_is_found(network: Network, tmp_path: Path):
    network.build(ipv4=True)
    ip("-n", network.names[1], "link", "set", "veth0", "down")
    pair = Pair(network, tmp_path)
    try:
        one = await pair.start(0, discovery=True)
        await pair.start(1, discovery=True)
        await anyio.sleep(2)
        ip("-n", network.names[1], "link", "set", "veth0", "up")
        assert (await one.event("up"))["peer"] == pair.nodes[1]
    finally:
        await pair.stop()


async def test_no_route_at_first_is_tried_again(network: Network, tmp_path: Path):
    network.build(ipv4=True)
    ip("-n", network.names[1], "route", "add", "unreachable", "10.77.0.1/32")
    pair = Pair(network, tmp_path)
    try:
        one = await pair.start(0)
        await pair.start(1, peer=f"10.77.0.1:{PORT}")
        await anyio.sleep(1)
        ip("-n", network.names[1], "route", "del", "unreachable", "10.77.0.1/32")
        assert (await one.event("up"))["peer"] == pair.nodes[1]
    finally:
        await pair.stop()


async def test_a_frozen_process_loses_its_link_and_gets_it_back(network: Network, tmp_path: Path):
    network.build(ipv4=True)
    pair = Pair(network, tmp_path)
    try:
        one = await pair.start(0)
        two = await pair.start(1, peer=f"10.77.0.1:{PORT}")
        await one.event("up")
        two.process.send_signal(signal.SIGSTOP)
        assert "silent for" in (await one.event("down"))["reason"]
        two.process.send_signal(signal.SIGCONT)
        assert (await one.event("up"))["peer"] == pair.nodes[1]
    finally:
        await pair.stop()


async def test_a_copied_identity_is_told_to_the_one_that_comes_second(
    network: Network, tmp_path: Path
):
    network.build(ipv4=True)
    pair = Pair(network, tmp_path)
    try:
        one = await pair.start(0)
        two = await pair.start(1, peer=f"10.77.0.1:{PORT}")
        await one.event("up")
        await two.event("up")
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(tmp_path / "b", tmp_path / "copy")
        copy = await pair.start(
            1, peer=f"10.77.0.1:{PORT}", port=PORT + 1, state=str(tmp_path / "copy")
        )
        assert "a state directory was copied" in (await copy.event("refused"))["reason"]
        with anyio.move_on_after(3):
            raise AssertionError(await one.event("down"))  # the first one keeps its link
    finally:
        await pair.stop()
