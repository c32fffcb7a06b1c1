"""Nodes that trust their network find each other without a code."""

import httpx2
import pytest

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
