"""What the doctor says of the network, of other engines, and of what the node knows of others."""

import json
from typing import Any

import msgspec
import pytest

from node.io.doctor_cluster import cluster_findings
from node.io.doctor_network import addresses, engines, judge_ruleset, route
from node.io.finding import Finding
from node.io.interfaces import Interface
from node.model.errors import Failure
from node.model.machine import Address
from node.model.register import LinkFigures, LinkRecord, Register
from tests.fakes.fake_handle import ALPHA, BETA, make_state

CLUSTER_PORT = 52416


def interface(name: str, medium: str, *hosts: str) -> Interface:
    return Interface(name=name, index=1, addresses=hosts, networks=(), medium=medium)


@pytest.mark.parametrize(
    ("interfaces", "state", "word"),
    [
        ((interface("lo", "loopback", "127.0.0.1"),), "warn", "no interface"),
        ((interface("en0", "wifi", "169.254.3.4"),), "warn", "no DHCP"),
        ((interface("en5", "thunderbolt", "169.254.3.4"),), "ok", "thunderbolt"),
        ((interface("en0", "wifi", "10.0.0.2"),), "ok", "en0 wifi"),
    ],
)
def test_addresses_that_lead_nowhere_are_named(
    interfaces: tuple[Interface, ...], state: str, word: str
) -> None:
    found = addresses(interfaces)
    assert found.state == state
    assert word in found.reason


def test_a_vpn_that_takes_every_route_is_named() -> None:
    there = (interface("utun3", "vpn", "100.64.0.2"), interface("en0", "wifi", "10.0.0.2"))
    assert route(there, "10.0.0.2").state == "ok"
    taken = route(there, "100.64.0.2")
    assert taken.state == "warn"
    assert "utun3" in taken.reason


def ruleset(*rules: Any, policy: str = "accept") -> str:
    chain = {"chain": {"name": "in", "table": "t", "hook": "input", "policy": policy}}
    return json.dumps({"nftables": [{"metainfo": {}}, chain, *rules]})


def drops(port: Any, verdict: str = "drop") -> dict[str, Any]:
    left = {"payload": {"protocol": "udp", "field": "dport"}}
    parts = [{"match": {"op": "==", "left": left, "right": port}}, {verdict: None}]
    return {"rule": {"table": "t", "chain": "in", "expr": parts}}


@pytest.mark.parametrize(
    ("listed", "state", "word"),
    [
        (ruleset(), "ok", "no rule"),
        (ruleset(drops(5353)), "warn", "5353 (discovery)"),
        (ruleset(drops(CLUSTER_PORT, "reject")), "warn", "52416 (nodes)"),
        (ruleset(drops(22)), "ok", "no rule"),
        (ruleset(drops(5353, "accept")), "ok", "no rule"),
        (ruleset(drops({"set": [1, 2]})), "ok", "no rule"),
        (ruleset(policy="drop"), "warn", "unless a rule lets it in"),
        ("{", "ok", "can't be read"),
        ("[]", "ok", "can't be read"),
    ],
)
def test_a_firewall_that_drops_nodes_or_discovery_is_named(
    listed: str, state: str, word: str
) -> None:
    found = judge_ruleset(listed, CLUSTER_PORT)
    assert found.state == state
    assert word in found.reason


def test_another_engine_counts_once_it_holds_memory() -> None:
    assert engines([("ollama", 7, 10_000_000), ("zsh", 8, 9_000_000_000)]).state == "ok"
    found = engines([("ollama", 7, 4_000_000_000), ("exoctl", 9, 5_000_000_000)])
    assert found.state == "warn"
    assert "ollama (process 7): 4.0 GB" in found.reason


def findings(version: str = "0.1.0", **figures: Any) -> dict[str, Finding]:
    state = make_state()
    beta = msgspec.structs.replace(state.nodes[BETA], version=version)
    state = msgspec.structs.replace(state, nodes={**state.nodes, BETA: beta})
    register = Register(node=ALPHA, incarnation=1, sequence=1, value=LinkFigures(**figures))
    registers = {(ALPHA, "LinkFigures"): register}
    return {one.name: one for one in cluster_findings(state, registers, ALPHA)}


def link(up: bool = True, **facts: Any) -> LinkRecord:
    return LinkRecord(peer=BETA, address=Address("10.0.0.2", 1), up=up, **facts)


def test_a_healthy_cluster_has_nothing_to_tell() -> None:
    found = findings(links=(link(rtt_seconds=0.001, clock_skew_seconds=0.2),), discovery="on")
    assert {one.state for one in found.values()} == {"ok"}
    assert "1.00 ms" in found["link with beta"].reason


def test_links_strangers_clocks_versions_and_discovery_are_told_with_a_remedy() -> None:
    dead = Failure(code="timeout", message="did not answer within 3 s", remedy="see firewall")
    old = Failure(code="protocol_mismatch", message="mini speaks protocol 2", remedy="update")
    near = Failure(code="other_cluster", message="tv belongs to another cluster")
    found = findings(
        links=(link(up=False, failure=dead),),
        heard=(
            LinkRecord(peer=ALPHA, address=Address("10.0.0.3", 1), up=False, failure=old),
            LinkRecord(peer=ALPHA, address=Address("10.0.0.4", 1), up=False, failure=near),
        ),
        discovery="multicast is blocked",
    )
    assert found["link with beta"].state == "fail"
    assert found["heard at 10.0.0.3:1"].remedy == "update"
    assert found["heard at 10.0.0.4:1"].state == "ok"
    assert "cluster join" in found["heard at 10.0.0.4:1"].reason
    assert "--peer" in found["discovery"].remedy
    relayed = findings(version="9", links=(link(clock_skew_seconds=-90.0, via=ALPHA),))
    assert "90 s behind" in relayed["clocks"].reason
    assert relayed["link with beta"].state == "warn"
    assert "beta 9" in relayed["versions"].reason
    assert cluster_findings(make_state(), {}, ALPHA)[0].state == "warn"
