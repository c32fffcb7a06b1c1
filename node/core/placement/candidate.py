"""One way to place a model, with its numbers, its verdict and its warnings."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import msgspec

from node.core.chip_speeds import speed_of
from node.core.facts import LOOPBACK, Facts
from node.core.placement.layers import Costs, spread, spread_over
from node.core.placement.ring import WIFI, Distance, broken_pair, hops_of
from node.core.placement.room import RUNNER_BYTES, Room, instances_on
from node.core.placement.speed import predict, predict_tensor
from node.core.placement.tensor import TENSOR, rank_card
from node.core.placement.words import listed, size
from node.model.card import ModelCard
from node.model.command import Wish
from node.model.errors import Failure
from node.model.ids import NodeId
from node.model.instance import WeightFormat
from node.model.state import State
from node.model.topology import Candidate, NodeShare

NO_FIT = "no_fit"
NOT_HELD = "model_not_held"
NO_LINK = "no_link"

_TRANSPORTS = {"single": "local", "pipeline": "tcp", TENSOR: "ring"}
CONTEXT_TOKENS_STEP = 256
"""Contexts that are proposed are whole multiples of it."""
TIGHT_FRACTION = 0.05
"""A node with less of its limit left than this is worth a warning."""
SHORTAGES_MAX = 4
"""Nodes whose shortage a refusal spells out; the others are counted."""
METAL_FRACTION = 0.75
"""Share of unified memory that macOS lets the GPU use unless it was told otherwise."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that candidates for one model are made from."""

    state: State
    card: ModelCard
    wish: Wish
    """Resolved and checked."""
    facts: Facts
    rooms: dict[NodeId, Room]
    costs: dict[WeightFormat, Costs]
    distance: Distance


def formats(problem: Problem, ring: Sequence[NodeId]) -> tuple[WeightFormat, ...]:
    """Weight formats to try, the wanted one first.

    Unpacked weights are several times faster on a Linux processor; on unified memory the GPU works
    on packed ones, and reading fewer bytes is faster.
    """
    wanted = problem.wish.weight_format
    if wanted != "auto":
        return (WeightFormat(wanted),)
    machines = [problem.rooms[node].machine for node in ring]
    processors = all(
        machine.system == "linux" and not machine.unified_memory for machine in machines
    )
    if processors and any(layer.dense_weights for layer in problem.card.layers):
        return (WeightFormat.DENSE, WeightFormat.AS_STORED)
    return (WeightFormat.AS_STORED,)


def rooms_for(problem: Problem, ring: Sequence[NodeId]) -> list[int]:
    """Free bytes for each stage; what nodes of one machine share is divided among them."""
    free: list[int] = []
    for node in ring:
        room = problem.rooms[node]
        sharing = len(room.beside.intersection(ring)) if len(room.beside) > 1 else 1
        free.append(room.bytes_free // sharing)
    return free


def build(problem: Problem, ring: Sequence[NodeId]) -> Candidate:
    """The candidate for stages on these nodes, in this order, in the best format that fits."""
    candidate: Candidate | None = None
    for weight_format in formats(problem, ring):
        candidate = _in_format(problem, ring, _costs(problem, ring, weight_format))
        if candidate.fits and shortage(candidate) == 0:
            break
    assert candidate is not None
    return candidate


def candidate_ring(candidate: Candidate) -> tuple[NodeId, ...]:
    """Its nodes in rank order."""
    return tuple(share.node for share in candidate.shares)


def shortage(candidate: Candidate) -> int:
    """Bytes that are lacking, over all nodes."""
    return sum(max(0, -share.bytes_slack) for share in candidate.shares)


def costs_of(card: ModelCard, candidate: Candidate) -> Costs:
    """What the candidate's shards cost, by the layers of each."""
    if candidate.strategy == TENSOR:
        card = rank_card(card, len(candidate.shares))
    return Costs(card, candidate.weight_format, candidate.context_tokens, candidate.requests)


def _costs(problem: Problem, ring: Sequence[NodeId], weight_format: WeightFormat) -> Costs:
    costs = problem.costs[weight_format]
    if problem.wish.strategy != TENSOR:
        return costs
    card = rank_card(problem.card, len(ring))
    return Costs(card, weight_format, costs.context_tokens, costs.requests)


def _in_format(problem: Problem, ring: Sequence[NodeId], costs: Costs) -> Candidate:
    strategy = "single" if len(ring) == 1 else "pipeline"
    if problem.wish.strategy == TENSOR:
        strategy = TENSOR
        ranges = [(0, costs.layer_count)] * len(ring)
    else:
        ranges = list(pairwise(_boundaries(problem, ring, costs)))
    shares = _shares(problem, ring, costs, ranges)
    hops = hops_of(problem.facts, ring)
    stages = [problem.rooms[node] for node in ring]
    known = problem.facts.measured
    predicted = predict_tensor if strategy == TENSOR else predict
    prediction = predicted(problem.card, costs, stages, ranges, hops, known)
    by_table = predicted(problem.card, costs, stages, ranges, hops)
    candidate = Candidate(
        strategy=strategy,
        transport=_TRANSPORTS[strategy],
        weight_format=costs.weight_format,
        shares=shares,
        hops=hops,
        context_tokens=costs.context_tokens,
        requests=costs.requests,
        predicted_tokens_per_second=prediction.tokens_per_second,
        predicted_first_token_seconds=prediction.first_token_seconds,
        predicted_prompt_tokens_per_second=prediction.prompt_tokens_per_second,
        predicted_prompt_tokens=prediction.prompt_tokens,
        table_tokens_per_second=by_table.tokens_per_second,
        table_prompt_tokens_per_second=by_table.prompt_tokens_per_second,
        measured=any((node, costs.weight_format) in known for node in ring),
        fits=True,
    )
    refusal = _refusal(problem, candidate, costs)
    return msgspec.structs.replace(
        candidate,
        fits=refusal is None,
        refusal=refusal,
        warnings=tuple(_warnings(problem, candidate)),
    )


def _boundaries(problem: Problem, ring: Sequence[NodeId], costs: Costs) -> tuple[int, ...]:
    if problem.wish.layers:
        return (0, *accumulate(problem.wish.layers))
    boundaries = spread(costs, rooms_for(problem, ring))
    if boundaries is None:
        boundaries = spread_over(costs, rooms_for(problem, ring))
    assert boundaries is not None, "more stages than cuts"
    return boundaries


def _shares(
    problem: Problem, ring: Sequence[NodeId], costs: Costs, ranges: Sequence[tuple[int, int]]
) -> tuple[NodeShare, ...]:
    added = {node: costs.stage_bytes(*ranges[rank]) for rank, node in enumerate(ring)}
    shares: list[NodeShare] = []
    for rank, node in enumerate(ring):
        room = problem.rooms[node]
        beside = sum(added[other] for other in ring if other != node and other in room.beside)
        shares.append(
            NodeShare(
                node=node,
                name=room.name,
                first_layer=ranges[rank][0],
                end_layer=ranges[rank][1],
                bytes_used=room.bytes_used + beside,
                bytes_added=added[node],
                bytes_limit=room.bytes_limit,
                held=room.held,
            )
        )
    return tuple(shares)


def _refusal(problem: Problem, candidate: Candidate, costs: Costs) -> Failure | None:
    model = problem.card.model
    missing = [share.name for share in candidate.shares if not share.held]
    if missing:
        return Failure(
            code=NOT_HELD,
            message=f"{model} does not lie on {listed(missing)}",
            remedy=f"copy its files to the model directory of {listed(missing)}, or use the nodes"
            " that hold it",
            node=missing[0],
        )
    pair = broken_pair(candidate_ring(candidate), problem.distance)
    if pair is not None:
        one, other = (problem.rooms[node].name for node in pair)
        return Failure(
            code=NO_LINK,
            message=f"{one} and {other} have no link with each other, stages need one",
            remedy="check the network between the two, or choose other nodes",
            node=one,
        )
    if problem.wish.force or shortage(candidate) == 0:
        return None
    return Failure(
        code=NO_FIT,
        message=f"{model} ({costs.weight_format.value}, {costs.context_tokens} tokens of context"
        f"{_times(costs.requests)}) does not fit: {_shortages(problem, candidate)}",
        remedy="; ".join(_remedies(problem, candidate, costs)),
        node=next(share.name for share in candidate.shares if share.bytes_slack < 0),
    )


def _times(requests: int) -> str:
    return f" for each of {requests} requests" if requests > 1 else ""


def _shortages(problem: Problem, candidate: Candidate) -> str:
    """What is needed and what there is: over all, and for the nodes that lack the most."""
    parts: list[str] = []
    if len(candidate.shares) > 1:
        needed = sum(share.bytes_added for share in candidate.shares)
        offered = sum(max(0, free) for free in rooms_for(problem, candidate_ring(candidate)))
        parts.append(
            f"it needs {size(needed)}, {len(candidate.shares)} nodes have {size(offered)} left"
        )
    short = [share for share in candidate.shares if share.bytes_slack < 0]
    short.sort(key=lambda share: share.bytes_slack)
    for share in short[:SHORTAGES_MAX]:
        room = problem.rooms[share.node]
        kept = room.bytes_total - room.bytes_limit
        promised = f", {size(room.bytes_promised)} promised" if room.bytes_promised else ""
        free = max(0, share.bytes_limit - share.bytes_used)
        parts.append(
            f"{share.name} needs {size(share.bytes_added)} and has {size(free)} of"
            f" {size(room.bytes_total)} left ({size(kept)} kept free{promised}),"
            f" short by {size(-share.bytes_slack)}"
        )
    if len(short) > SHORTAGES_MAX:
        parts.append(f"{len(short) - SHORTAGES_MAX} more nodes are short")
    return "; ".join(parts)


def _remedies(problem: Problem, candidate: Candidate, costs: Costs) -> Iterator[str]:
    context_tokens = _context_that_fits(candidate, costs)
    if context_tokens:
        yield f"a context of {context_tokens} tokens{_times(costs.requests)} fits there"
    if costs.requests > 1:
        yield "ask for room for fewer requests at once"
    stored = problem.costs[WeightFormat.AS_STORED]
    saved = costs.total_bytes(1) - stored.total_bytes(1)
    if saved > 0 and candidate.strategy != TENSOR:
        yield f"weights as stored take {size(saved)} less"
    for share in candidate.shares:
        if share.bytes_slack < 0:
            holding = [placed.instance for placed in instances_on(problem.state, share.node)]
            if holding:
                yield f"stop {listed(holding)} on {share.name}"
    if candidate.strategy != TENSOR and len(candidate.shares) < costs.stages_max:
        yield "spread it over more nodes that hold the model"
    yield "`--force` places it all the same, at the risk of swapping"


def _context_that_fits(candidate: Candidate, costs: Costs) -> int:
    """The longest context with which the same split would fit; 0 where none would."""
    tokens = costs.context_tokens
    for share in candidate.shares:
        layers = (share.first_layer, share.end_layer)
        left = share.bytes_limit - share.bytes_used - costs.weight_bytes(*layers) - RUNNER_BYTES
        per_token = costs.cache_bytes(*layers) // costs.context_tokens
        if share.bytes_slack < 0:
            tokens = min(tokens, left // per_token if left > 0 and per_token else 0)
    return tokens // CONTEXT_TOKENS_STEP * CONTEXT_TOKENS_STEP


def _warnings(problem: Problem, candidate: Candidate) -> Iterator[str]:
    if candidate.strategy == TENSOR and any(hop.medium != LOOPBACK for hop in candidate.hops):
        yield "the sums of tensor parallel cross the network unencrypted: mlx's ring knows no TLS"
    yield from _memory_warnings(problem, candidate)
    yield from _hop_warnings(problem, candidate)
    records = [problem.state.nodes[share.node] for share in candidate.shares]
    versions = sorted({record.version for record in records})
    if len(versions) > 1:
        yield f"nodes run different versions: {listed(versions)}"
    for record in records:
        machine = problem.rooms[record.node].machine
        speed = speed_of(machine, candidate.weight_format, problem.card.quantisation_bits)
        if not speed.known:
            yield f"{record.name}: the chip {machine.chip!r} is unknown, its speed a low guess"


def _memory_warnings(problem: Problem, candidate: Candidate) -> Iterator[str]:
    for share in candidate.shares:
        room = problem.rooms[share.node]
        if share.bytes_slack < 0:
            yield (
                f"{share.name} is short of {size(-share.bytes_slack)}: it may swap, or the system"
                " may end the runner"
            )
        elif share.bytes_slack < share.bytes_limit * TIGHT_FRACTION:
            yield f"{share.name} has only {size(share.bytes_slack)} left after this"
        metal_bytes = room.bytes_total * METAL_FRACTION
        if room.machine.unified_memory and share.bytes_added > metal_bytes:
            yield (
                f"{share.name}: macOS lets the GPU use {size(int(metal_bytes))} unless"
                " iogpu.wired_limit_mb is raised"
            )
    nodes = candidate_ring(candidate)
    shared = [
        share.name
        for share in candidate.shares
        if sum(node in problem.rooms[share.node].beside for node in nodes) > 1
    ]
    if shared:
        yield f"{listed(shared)} share one machine's memory and processor"


def _hop_warnings(problem: Problem, candidate: Candidate) -> Iterator[str]:
    for crossed in candidate.hops:
        names = " to ".join(problem.rooms[node].name for node in (crossed.source, crossed.target))
        if crossed.rtt_seconds is None:
            yield f"{names}: the link is not measured, its time is not in the prediction"
        elif crossed.medium == WIFI:
            yield f"{names} goes over Wi-Fi: {crossed.rtt_seconds * 1e3:.1f} ms there and back"
