"""Circles of nodes for pipelines: each stage dials the next, and the last the first.

Circles are grown, never enumerated: a node is put where it makes the circle the least longer. Links
are few kinds of fast, so this finds what matters in a time that grows with the square of the nodes.
"""

from collections.abc import Callable, Sequence

from node.core.facts import Facts
from node.model.ids import NodeId
from node.model.topology import Hop

UNMEASURED_RTT_SECONDS = 0.01
"""Stands in for a link's unknown round trip where circles are compared; never shown."""
WIFI = "wifi"

Distance = Callable[[NodeId, NodeId], float | None]
"""Cost of a hop in seconds; None where the two have no link."""


def distances(facts: Facts, bytes_per_token: int) -> Distance:
    """Seconds that a token's hop between two nodes takes, remembered."""
    known: dict[tuple[NodeId, NodeId], float | None] = {}

    def distance(one: NodeId, other: NodeId) -> float | None:
        pair = (one, other) if one < other else (other, one)
        if pair not in known:
            known[pair] = _hop_cost(facts, pair, bytes_per_token)
        return known[pair]

    return distance


def hop(facts: Facts, source: NodeId, target: NodeId) -> Hop:
    """The link that a token crosses, with what is known of it."""
    link = facts.link(source, target)
    if link is None:
        return Hop(source=source, target=target)
    return Hop(
        source=source,
        target=target,
        medium=link.medium,
        rtt_seconds=link.rtt_seconds,
        bits_per_second=link.bits_per_second,
    )


def hop_seconds(crossed: Hop, byte_count: int) -> float:
    """One way over a hop: half its round trip and the bytes at its bandwidth, as far as known."""
    transfer = byte_count * 8 / crossed.bits_per_second if crossed.bits_per_second else 0.0
    return (crossed.rtt_seconds or 0.0) / 2 + transfer


def hops_of(facts: Facts, ring: Sequence[NodeId]) -> tuple[Hop, ...]:
    """Every hop of a token's way around; none for a single node."""
    if len(ring) < 2:
        return ()
    return tuple(hop(facts, node, ring[(stage + 1) % len(ring)]) for stage, node in enumerate(ring))


def broken_pair(ring: Sequence[NodeId], distance: Distance) -> tuple[NodeId, NodeId] | None:
    """The first two neighbours in a circle that have no link."""
    if len(ring) < 2:
        return None
    for stage, node in enumerate(ring):
        following = ring[(stage + 1) % len(ring)]
        if distance(node, following) is None:
            return node, following
    return None


def grow(order: Sequence[NodeId], distance: Distance) -> list[tuple[NodeId, ...]]:
    """Circles of 2, 3, … nodes, each holding the one before, taken in the given order.

    The first node stays first. A node that fits nowhere is tried again once the circle has grown.
    """
    rings: list[tuple[NodeId, ...]] = []
    ring = list(order[:1])
    waiting = list(order[1:])
    progress = True
    while progress:
        progress = False
        left: list[NodeId] = []
        for node in waiting:
            place = _cheapest_place(ring, node, distance)
            if place is None:
                left.append(node)
            else:
                ring.insert(place, node)
                rings.append(tuple(ring))
                progress = True
        waiting = left
    return rings


def _cheapest_place(ring: Sequence[NodeId], node: NodeId, distance: Distance) -> int | None:
    best: tuple[float, int] | None = None
    for place, before in enumerate(ring):
        after = ring[(place + 1) % len(ring)]
        arriving, leaving = distance(before, node), distance(node, after)
        if arriving is None or leaving is None:
            continue
        added = arriving + leaving - (distance(before, after) or 0.0)
        if best is None or added < best[0]:
            best = (added, place + 1)
    return None if best is None else best[1]


def _hop_cost(facts: Facts, pair: tuple[NodeId, NodeId], bytes_per_token: int) -> float | None:
    if not facts.reachable(*pair):
        return None
    crossed = hop(facts, *pair)
    if crossed.rtt_seconds is None:
        return UNMEASURED_RTT_SECONDS
    return hop_seconds(crossed, bytes_per_token)
