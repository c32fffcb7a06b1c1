"""Joining without a code: by trust in the network, by a secret, or by the approval of a person."""

from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from node.io.secret_file import write_secret
from tests.fakes.node_process import NodeProcesses, wait_for

pytestmark = pytest.mark.e2e


def test_nodes_that_trust_the_network_join_by_themselves(nodes: NodeProcesses) -> None:
    one = nodes.start("one", "--trust", "lan").wait_ready()
    two = nodes.start("two", "--trust", "lan", "--peer", one.cluster_address).wait_ready()
    wait_for(lambda: len(one.state()["nodes"]) == 2, "two to be in")
    wait_for(lambda: two.state()["cluster"] == one.state()["cluster"], "one cluster")


def test_three_fresh_nodes_that_trust_the_network_end_in_one_cluster(
    nodes: NodeProcesses,
) -> None:
    one = nodes.start("one", "--trust", "lan").wait_ready()
    peers = ("--peer", one.cluster_address)
    two = nodes.start("two", "--trust", "lan", *peers)
    three = nodes.start("three", "--trust", "lan", *peers)
    two.wait_ready()
    three.wait_ready()
    everyone = (one, two, three)
    wait_for(lambda: all(len(each.state()["nodes"]) == 3 for each in everyone), "all to be in")
    assert len({each.state()["cluster"] for each in everyone}) == 1


def test_a_node_that_asks_for_codes_is_not_joined_by_trust(nodes: NodeProcesses) -> None:
    one = nodes.start("one").wait_ready()
    two = nodes.start("two", "--trust", "lan", "--peer", one.cluster_address).wait_ready()

    def named() -> bool:
        registers = httpx2.get(f"{two.url}/v1/cluster/registers", timeout=10).text
        return "other_cluster" in registers

    wait_for(named, "the other cluster to be named")
    assert len(one.state()["nodes"]) == 1


def test_a_fleet_with_one_secret_joins_by_itself_and_rotates_it_together(
    nodes: NodeProcesses,
) -> None:
    files = [nodes.root / f"secret-{name}" for name in ("one", "two", "three")]
    for path, secret in zip(files, ("s" * 32, "s" * 32, "o" * 32), strict=True):
        write_secret(path, secret)
    one = nodes.start("one", "--cluster-secret-file", str(files[0])).wait_ready()
    peers = ("--peer", one.cluster_address)
    two = nodes.start("two", "--cluster-secret-file", str(files[1]), *peers).wait_ready()
    wait_for(lambda: len(one.state()["nodes"]) == 2, "two to be in")
    wait_for(lambda: two.state()["cluster"] == one.state()["cluster"], "one cluster")
    wait_for(
        lambda: one.json("cluster", "rotate", "-y")["items"][0]["members_told"] == 1,
        "the other member to be told",
    )
    wait_for(lambda: files[0].read_bytes() == files[1].read_bytes(), "both to have it")
    assert "s" * 32 not in files[0].read_text()
    three = nodes.start("three", "--cluster-secret-file", str(files[2]), *peers).wait_ready()
    wait_for(lambda: "the secret is another" in three.log_text(), "three to be refused")
    assert len(one.state()["nodes"]) == 2


def test_a_machine_is_let_in_once_both_sides_have_compared_the_code(nodes: NodeProcesses) -> None:
    one, two = nodes.cluster("one", "two")
    three = nodes.start("three").wait_ready()
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(three.cli, "cluster", "join", "--peer", one.cluster_address, "-y")
        # It asks the one; whoever sits at the other sees it too, and may decide.
        wait_for(lambda: two.json("cluster", "pending")["items"], "the request to show")
        (request,) = two.json("cluster", "pending")["items"]
        assert (request["name"], request["asked"]) == ("three", one.node)
        approved = two.cli("cluster", "approve", "three", "-y")
        assert approved.returncode == 0, approved.stderr
        joined = joining.result(60)
    assert joined.returncode == 0, joined.stderr
    assert f"{request['code'][:3]} {request['code'][3:]}" in joined.stderr
    assert len(three.state()["nodes"]) == 3
