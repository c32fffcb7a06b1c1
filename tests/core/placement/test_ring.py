"""Circles of nodes and the hops on them."""

import pytest
from msgspec.structs import replace

from node.core.facts import Facts
from node.core.placement.ring import broken_pair, distances, grow, hop_seconds, hops_of
from node.model.ids import NodeId
from node.model.topology import Hop
from tests.fakes.fleet import link, linked, meshed

A, B, C, D = (NodeId(name) for name in "abcd")


def test_a_hop_takes_half_its_round_trip_and_its_bytes() -> None:
    crossed = Hop(source=A, target=B, rtt_seconds=0.002, bits_per_second=8e6)
    assert hop_seconds(crossed, 1000) == pytest.approx(0.001 + 0.001)
    assert hop_seconds(replace(crossed, bits_per_second=None), 1000) == pytest.approx(0.001)
    assert hop_seconds(replace(crossed, rtt_seconds=None), 1000) == pytest.approx(0.001)


def test_a_pipeline_goes_around_and_a_single_node_has_no_hop() -> None:
    facts = Facts(links=meshed("abc"))
    hops = hops_of(facts, (A, C, B))
    assert [(found.source, found.target) for found in hops] == [(A, C), (C, B), (B, A)]
    assert (hops[0].medium, hops[0].rtt_seconds, hops[0].bits_per_second) == ("ethernet", 4e-4, 1e9)
    assert hops_of(facts, (A,)) == ()
    assert hops_of(Facts(), (A, B))[0] == Hop(source=A, target=B)


def test_a_circle_grows_along_the_shortest_links() -> None:
    far = {"rtt_seconds": 0.1}
    links = meshed("abcd", **far)
    for one, other in (("a", "c"), ("c", "b"), ("b", "d"), ("d", "a")):
        links[NodeId(one)][NodeId(other)] = link(other)
        links[NodeId(other)][NodeId(one)] = link(one)
    distance = distances(Facts(links=links), 100)
    assert grow((A, B, C, D), distance)[-1] in ((A, C, B, D), (A, D, B, C))


def test_a_node_without_a_second_link_stays_out_of_the_circle() -> None:
    facts = Facts(links=linked([("a", "b"), ("b", "c")]))
    distance = distances(facts, 100)
    assert grow((A, B, C), distance) == [(A, B)]
    assert broken_pair((A, B, C), distance) == (C, A)
    assert broken_pair((B, C), distance) is None
    assert broken_pair((B,), distance) is None


def test_a_node_that_fits_nowhere_yet_is_tried_again() -> None:
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("a", "c")]
    distance = distances(Facts(links=linked(pairs)), 100)
    assert broken_pair((B, D), distance) == (B, D)
    assert grow((B, D, A, C), distance) == [(B, A), (B, C, A), (B, C, D, A)]


def test_an_unmeasured_link_counts_as_a_slow_one() -> None:
    distance = distances(Facts(links=linked([("a", "b")], rtt_seconds=None)), 100)
    fast = distances(Facts(links=linked([("a", "b")])), 100)
    assert (distance(A, B) or 0) > (fast(A, B) or 0) > 0
    assert distance(B, A) == distance(A, B)


def test_no_node_makes_no_circle() -> None:
    assert grow((), distances(Facts(), 1)) == []
