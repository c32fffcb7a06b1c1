"""Faults that are planted in a network, and what the doctor says of each."""

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.fakes.network import Network, ip
from tests.fakes.node_process import ROOT, NodeProcess, NodeProcesses, wait_for

pytestmark = [pytest.mark.netns, pytest.mark.e2e, pytest.mark.thorough]


@pytest.fixture
def machines(
    network: Network, tmp_path_factory: pytest.TempPathFactory
) -> Generator[NodeProcesses]:
    """Nodes without models; the network is up."""
    network.build(ipv4=True)
    root = tmp_path_factory.mktemp("d")
    nodes = NodeProcesses(root, root / "models")
    try:
        yield nodes
    finally:
        nodes.close()


def examined(node: NodeProcess, *options: str) -> dict[str, dict[str, str]]:
    run = node.cli("doctor", "-o", "json", *options)
    found = {item["name"]: item for item in json.loads(run.stdout)["items"]}
    # The exit code tells whether anything was found, and whoever is found has a remedy.
    unwell = [item for item in found.values() if item["state"] != "ok"]
    assert run.returncode == (1 if unwell else 0)
    assert all(item["remedy"] for item in unwell)
    return found


def test_five_planted_faults_are_found_by_name(
    machines: NodeProcesses, network: Network, tmp_path: Path
) -> None:
    one, two = (
        machines.start(name, namespace=space)
        for name, space in zip(("one", "two"), network.names, strict=True)
    )
    one.wait_ready()
    two.wait_ready()

    # 1: they hear each other, and are of two clusters.
    def stranger() -> str:
        strangers = [item for name, item in examined(one).items() if name.startswith("heard at")]
        return strangers[0]["reason"] if strangers else ""

    reason = wait_for(stranger, "one to hear two", seconds=30)
    assert "another cluster" in reason
    assert "cluster join" in reason
    assert examined(one, "--network")["multicast on veth0"]["state"] == "ok"

    # 2: discovery is dropped by a firewall.
    network.block_multicast()
    found = examined(one, "--network")
    assert "5353 (discovery)" in found["firewall"]["reason"]
    assert "--peer" in found["firewall"]["remedy"]
    assert found["multicast on veth0"]["state"] != "ok"

    # 3: a member whose cable is out.
    code = one.json("cluster", "invite")["items"][0]["code"]
    assert two.cli("cluster", "join", code, "--peer", "10.77.0.1:" + port_of(one)).returncode == 0
    wait_for(lambda: examined(one)["link with two"]["state"] == "ok", "the link", seconds=30)
    ip("-n", network.names[1], "link", "set", "veth0", "down")
    wait_for(lambda: examined(one)["link with two"]["state"] == "fail", "its fall", seconds=30)

    # 4: a state directory that others may look into.
    one.state_directory.chmod(0o755)
    assert "755" in examined(one)["state directory"]["reason"]

    # 5: another program has the port.
    holder = "import socket,time; s=socket.create_server(('', 52416)); print(); time.sleep(60)"
    command = ["ip", "netns", "exec", network.names[0], sys.executable, "-c", holder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        taken = examined(one)["cluster port"]
        process.kill()
    assert taken["state"] == "fail"
    assert f"process {process.pid}" in taken["reason"]


def port_of(node: NodeProcess) -> str:
    return node.cluster_address.rpartition(":")[2]
