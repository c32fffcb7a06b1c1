"""Every sensible way to place a model, best first."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from node.core.chip_speeds import speed_of
from node.core.facts import Facts
from node.core.placement.candidate import (
    NO_FIT,
    NO_LINK,
    Problem,
    build,
    candidate_ring,
    formats,
    rooms_for,
    shortage,
)
from node.core.placement.layers import Costs, can_spread
from node.core.placement.ring import (
    WIFI,
    Distance,
    broken_pair,
    distances,
    grow,
    hop_seconds,
)
from node.core.placement.room import Room, rooms
from node.core.placement.tensor import TENSOR
from node.core.placement.wish import check, context_tokens, resolve
from node.core.placement.words import listed
from node.core.refusal import Refusal
from node.model.card import ModelCard
from node.model.command import Wish
from node.model.errors import Failure
from node.model.ids import NodeId
from node.model.instance import WeightFormat
from node.model.state import State
from node.model.topology import Candidate, Plan

PIPELINES_PER_GROWTH = 2
"""Pipelines that fit which are kept of each way of growing; further ones only add hops."""
PIPELINE_WORTH = 0.8
"""A pipeline must promise a quarter more speed than a single node to be taken instead of it: every
node that takes part is one more that can be lost."""
STARTS_MAX = 8
"""First nodes that are tried where not all nodes are linked with each other."""
EXACT_NODES_MAX = 6
"""Up to so many nodes every order is tried before a model is refused."""

Ring = tuple[NodeId, ...]


def plan(state: State, card: ModelCard, wish: Wish, facts: Facts) -> Plan:
    """Plan a placement of the model; the first candidate is taken if it fits.

    The time grows with the square of the nodes, whatever their links are like.
    """
    resolved = resolve(state, wish)
    if isinstance(resolved, Refusal):
        return Plan(model=card.model, candidates=(), refusal=resolved.failure)
    problem_of_wish = check(state, card, resolved)
    if problem_of_wish is not None:
        return Plan(model=card.model, candidates=(), refusal=problem_of_wish.failure)
    problem = _problem(state, card, resolved, facts)
    usable = _usable(problem)
    if wish.nodes:
        missing = [node for node in resolved.nodes if node not in problem.rooms]
        rings = [] if missing else [_named_ring(problem)]
    else:
        rings = list(dict.fromkeys(_rings(problem, usable)))
    candidates = sorted((build(problem, ring) for ring in rings), key=_rank)
    best = candidates[0] if candidates else None
    refusal = None if best is not None and best.fits else _refusal(problem, best)
    return Plan(model=card.model, candidates=tuple(candidates), refusal=refusal)


def _problem(state: State, card: ModelCard, wish: Wish, facts: Facts) -> Problem:
    held = frozenset(node for node in state.nodes if facts.holds(node, card))
    tokens = context_tokens(card, wish)
    return Problem(
        state=state,
        card=card,
        wish=wish,
        facts=facts,
        rooms=rooms(state, facts, held),
        costs={form: Costs(card, form, tokens, wish.requests) for form in WeightFormat},
        distance=distances(facts, card.activation_bytes_per_token),
    )


def _usable(problem: Problem) -> list[Room]:
    """Nodes that placement may choose, those with the most room first."""
    usable: list[Room] = []
    for node, room in problem.rooms.items():
        record = problem.state.nodes[node]
        if not record.lost and not record.cordoned and node not in problem.wish.exclude:
            usable.append(room)
    return sorted(usable, key=lambda room: (-room.bytes_free, room.node))


def _named_ring(problem: Problem) -> Ring:
    """The named nodes in the order given; in another where only that makes a circle of links."""
    ring = problem.wish.nodes
    if problem.wish.layers or broken_pair(ring, problem.distance) is None:
        return ring
    grown = grow(ring, problem.distance)
    return grown[-1] if grown and len(grown[-1]) == len(ring) else ring


def _rings(problem: Problem, usable: Sequence[Room]) -> Iterator[Ring]:
    wish = problem.wish
    if wish.strategy == TENSOR:
        yield from _tensor_rings(problem, [room for room in usable if room.held])
        return
    if wish.strategy != "pipeline" and wish.nodes_min == 1:
        for room in usable:
            yield (room.node,)
    if wish.strategy != "single":
        yield from _pipelines(problem, [room for room in usable if room.held])


def _tensor_rings(problem: Problem, usable: Sequence[Room]) -> Iterator[Ring]:
    """Circles of as many nodes as the layers can be divided among."""
    numbers = {rank.ranks for rank in problem.card.tensor_ranks}
    for grown in _growths(problem, usable):
        for ring in grown:
            if len(ring) in numbers and len(ring) >= problem.wish.nodes_min:
                yield ring


def _pipelines(problem: Problem, usable: Sequence[Room]) -> Iterator[Ring]:
    """Pipelines worth a look; where none fits, the one that comes closest to having the room."""
    stages_max = problem.costs[WeightFormat.AS_STORED].stages_max
    stages_min = max(2, problem.wish.nodes_min)
    found = False
    largest: Ring = ()
    for grown in _growths(problem, usable):
        rings = [ring for ring in grown if stages_min <= len(ring) <= stages_max]
        if rings and len(rings[-1]) > len(largest):
            largest = rings[-1]
        fitting = (ring for ring in rings if _has_room(problem, ring))
        for ring in islice(fitting, PIPELINES_PER_GROWTH):
            found = True
            yield ring
    if found:
        return
    if len(usable) <= EXACT_NODES_MAX:
        exact = _any_ring(problem, [room.node for room in usable], stages_min)
        if exact:
            yield exact
            return
    if largest:
        yield largest


def _growths(problem: Problem, usable: Sequence[Room]) -> Iterator[list[Ring]]:
    """Circles that grow by room, by speed, and over wired links only."""
    bits = problem.card.quantisation_bits

    def slowness(room: Room) -> float:
        return -speed_of(room.machine, WeightFormat.AS_STORED, bits).bytes_per_second

    by_room = [room.node for room in usable]
    yield from _growths_of(by_room, problem.distance)
    by_speed = [room.node for room in sorted(usable, key=slowness)]
    if by_speed != by_room:
        yield grow(by_speed, problem.distance)
    links = problem.facts.links
    wireless = {
        (node, peer)
        for node in by_room
        for peer, link in links.get(node, {}).items()
        if link.medium == WIFI
    }

    def wired(one: NodeId, other: NodeId) -> float | None:
        if (one, other) in wireless or (other, one) in wireless:
            return None
        return problem.distance(one, other)

    if wireless:
        yield from _growths_of(by_room, wired)


def _growths_of(order: Sequence[NodeId], distance: Distance) -> Iterator[list[Ring]]:
    """Circles that grow from the first node, and from others that it does not reach."""
    unreached = list(order)
    for _ in range(min(STARTS_MAX, len(order))):
        start = unreached[0]
        grown = grow([start, *(node for node in order if node != start)], distance)
        yield grown
        reached = grown[-1] if grown else (start,)
        unreached = [node for node in unreached if node not in reached]
        if not unreached:
            break


def _has_room(problem: Problem, ring: Ring) -> bool:
    free = rooms_for(problem, ring)
    total = sum(free)
    for form in formats(problem, ring):
        costs = problem.costs[form]
        if total >= costs.total_bytes(len(ring)) and can_spread(costs, free):
            return True
    return False


def _any_ring(problem: Problem, nodes: Sequence[NodeId], stages_min: int) -> Ring:
    """Any circle that fits, by trying every order of a few nodes; empty where there is none."""
    costs = problem.costs[WeightFormat.AS_STORED]
    end = 1 << costs.stages_max
    unfinished: list[tuple[Ring, int]] = [((), 1)]
    while unfinished:
        ring, reached = unfinished.pop()
        closed = broken_pair(ring, problem.distance) is None
        if reached & end and len(ring) >= stages_min and closed and _has_room(problem, ring):
            return ring
        for node in nodes:
            linked = not ring or problem.distance(ring[-1], node) is not None
            reach = costs.reach(reached, problem.rooms[node].bytes_free)
            if node not in ring and linked and reach:
                unfinished.append(((*ring, node), reach))
    return ()


def _rank(candidate: Candidate) -> tuple[object, ...]:
    """Sorts the best first: what fits, then speed, fewer nodes, faster links, more room.

    Predictions that differ in their third digit only are alike.
    """
    refusal = candidate.refusal
    causes = (NO_FIT, NO_LINK)
    cause = -1 if refusal is None else (*causes, refusal.code).index(refusal.code)
    speed = candidate.predicted_tokens_per_second
    if len(candidate.shares) > 1:
        speed *= PIPELINE_WORTH
    hops = sum(hop_seconds(crossed, 0) for crossed in candidate.hops)
    return (
        cause,
        shortage(candidate),
        -float(f"{speed:.2g}"),
        len(candidate.shares),
        float(f"{hops:.1g}"),
        -min(share.bytes_slack for share in candidate.shares),
        candidate_ring(candidate),
    )


def _refusal(problem: Problem, best: Candidate | None) -> Failure:
    """Why nothing fits: the closest candidate's numbers, and the nodes that were left out."""
    left_out = list(_left_out(problem))
    aside = f"; left out: {listed(left_out)}" if left_out else ""
    if best is not None and best.refusal is not None:
        refusal = best.refusal
        return msgspec.structs.replace(refusal, message=refusal.message + aside)
    needed = max(problem.wish.nodes_min, _nodes_least(problem))
    nobody = f"no {needed} linked nodes" if needed > 1 else "no node"
    return Failure(
        code=NO_FIT,
        message=f"{nobody} could take {problem.card.model}{aside}",
        remedy="bring the missing nodes back, or copy the model to more nodes",
    )


def _nodes_least(problem: Problem) -> int:
    """The fewest nodes that the wanted strategy makes sense with."""
    if problem.wish.strategy == TENSOR:
        return min(rank.ranks for rank in problem.card.tensor_ranks)
    return 2 if problem.wish.strategy == "pipeline" else 1


def _left_out(problem: Problem) -> Iterable[str]:
    for node, record in problem.state.nodes.items():
        if problem.wish.nodes and node not in problem.wish.nodes:
            continue
        reason = ""
        if node in problem.wish.exclude:
            reason = "excluded"
        elif record.lost:
            reason = "lost"
        elif record.cordoned:
            reason = "cordoned"
        elif record.machine is None:
            reason = "has not described its machine yet"
        elif node not in problem.facts.machines:
            reason = "has not reported its memory yet"
        elif not problem.rooms[node].held:
            reason = "does not hold the model"
        if reason:
            yield f"{record.name} ({reason})"
