"""Whole nodes as "machines" on a network of their own, as a person would use them."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.e2e.conftest import MODEL, converted_model, real_nodes
from tests.fakes.network import Network, ip
from tests.fakes.node_process import NodeProcess, NodeProcesses, wait_for
from tests.fakes.sniffer import Sniffer

pytestmark = [pytest.mark.netns, pytest.mark.e2e]
TLS_RECORD = b"\x17\x03\x03"
QUESTION = ("What is the capital of France?", "--temperature", "0", "--max-tokens", "16")


@pytest.fixture
def machines(
    network: Network, tmp_path_factory: pytest.TempPathFactory
) -> Generator[NodeProcesses]:
    """A place for nodes; the network is up."""
    network.build(ipv4=True)
    models = converted_model(tmp_path_factory.mktemp("models"))
    yield from real_nodes(tmp_path_factory.mktemp("n"), models)


def names_in(node: NodeProcess) -> set[str]:
    return {item["name"] for item in node.json("node", "ls")["items"]}


def joined(
    machines: NodeProcesses, network: Network, codes: list[str] | None = None
) -> tuple[NodeProcess, NodeProcess]:
    one, two = (
        machines.start(name, namespace=space)
        for name, space in zip(("one", "two"), network.names, strict=True)
    )
    one.wait_ready()
    two.wait_ready()
    code = one.json("cluster", "invite")["items"][0]["code"]
    if codes is not None:
        codes.append(code)

    def join() -> bool:
        return two.cli("cluster", "join", code).returncode == 0

    wait_for(join, "two to hear one and join", seconds=30)
    return one, two


def test_two_machines_find_each_other_join_and_share_a_model_and_the_cable_tells_nothing(
    machines: NodeProcesses, network: Network, tmp_path: Path
) -> None:
    codes: list[str] = []
    sniffer = Sniffer(network.names[0], "veth0", tmp_path / "packets")
    one, two = joined(machines, network, codes)
    wait_for(lambda: names_in(one) == {"one", "two"}, "both to be members")
    loaded = two.cli("load", MODEL, "--nodes", "one,two")
    assert loaded.returncode == 0, loaded.stderr
    for node in (one, two):
        assert "Paris" in node.cli("run", MODEL, *QUESTION).stdout
    hosts = {
        line.split()[4].rpartition(":")[0]
        for line in ip("netns", "exec", network.names[0], "ss", "-tnH").splitlines()
    }
    assert "10.77.0.2" in hosts
    seen = sniffer.stop()
    # It saw what is told in the clear, and much that is not.
    assert b"_exoctl" in seen
    assert seen.count(TLS_RECORD) > 100
    (code,) = codes
    secrets = ("capital", "France", "Paris", MODEL, code, code.replace("-", ""))
    identity = (one.state_directory / "identity" / "identity.pem").read_bytes().splitlines()[1]
    for secret in (*(word.encode() for word in secrets), identity):
        assert secret not in seen


def test_a_pulled_cable_leaves_both_halves_working_and_one_cluster_after(
    machines: NodeProcesses, network: Network
) -> None:
    one, two = joined(machines, network)
    ip("-n", network.names[0], "link", "set", "veth0", "down")

    def accepted(node: NodeProcess) -> bool:
        return node.cli("node", "cordon", node.name, "--timeout", "8").returncode == 0

    for node in (one, two):
        wait_for(lambda node=node: accepted(node), f"{node.name} to decide alone", seconds=30)
    ip("-n", network.names[0], "link", "set", "veth0", "up")

    def healed() -> bool:
        seen = [node.json("node", "ls")["items"] for node in (one, two)]
        return all(
            {item["name"] for item in items if item["cordoned"] and not item["lost"]}
            == {"one", "two"}
            for items in seen
        )

    wait_for(healed, "both decisions to hold on both", seconds=40)
