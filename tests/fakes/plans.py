"""Plans that a fake node answers with: one that fits, one that does not, with numbers."""

import itertools

from node.model.command import Wish
from node.model.errors import Failure
from node.model.ids import ModelId, NodeId
from node.model.instance import WeightFormat
from node.model.state import State
from node.model.topology import Candidate, Hop, NodeShare, Plan
from tests.fakes.cluster import GIB

LAYERS = 61


def _share(state: State, node: NodeId, layers: tuple[int, int], bytes_per_layer: int) -> NodeShare:
    record = state.nodes[node]
    total = record.machine.memory_bytes if record.machine else 16 * GIB
    return NodeShare(
        node=node,
        name=record.name,
        first_layer=layers[0],
        end_layer=layers[1],
        bytes_used=total // 9,
        bytes_added=(layers[1] - layers[0]) * bytes_per_layer,
        bytes_limit=int(total * 0.92),
        held=record.name.startswith("studio"),
    )


def _spread(nodes: tuple[NodeId, ...], state: State, layers: tuple[int, ...]) -> list[int]:
    if len(layers) == len(nodes) and sum(layers) == LAYERS:
        return list(layers)
    sizes = [m.memory_bytes if (m := state.nodes[n].machine) else GIB for n in nodes]
    counts = [max(1, LAYERS * size // sum(sizes)) for size in sizes]
    counts[0] += LAYERS - sum(counts)
    return counts


def _candidate(state: State, nodes: tuple[NodeId, ...], wish: Wish) -> Candidate:
    counts = _spread(nodes, state, wish.layers)
    shares: list[NodeShare] = []
    first = 0
    for node, count in zip(nodes, counts, strict=True):
        shares.append(_share(state, node, (first, first + count), 3 * GIB))
        first += count
    media = (("thunderbolt", 0.00006, 58.9e9), ("ethernet", 0.0012, 0.94e9))
    hops = tuple(
        Hop(
            source=a,
            target=b,
            medium=media[i % 2][0],
            rtt_seconds=media[i % 2][1],
            bits_per_second=media[i % 2][2],
        )
        for i, (a, b) in enumerate(itertools.pairwise(nodes))
    )
    short = [share for share in shares if share.bytes_slack < 0]
    refusal = None
    if short:
        lack = -sum(share.bytes_slack for share in short) / GIB
        names = ", ".join(share.name for share in short)
        refusal = Failure(
            code="no_fit",
            message=f"{names} lack {lack:.1f} GiB",
            remedy="add a node, take fewer context tokens or a smaller quantisation",
        )
    tight = tuple(f"{s.name} keeps under 2 GiB" for s in shares if 0 <= s.bytes_slack < 2 * GIB)
    return Candidate(
        strategy="pipeline" if len(nodes) > 1 else "single",
        transport="tcp" if len(nodes) > 1 else "",
        weight_format=WeightFormat.AS_STORED,
        shares=tuple(shares),
        hops=hops,
        context_tokens=wish.context_tokens or 4096,
        predicted_tokens_per_second=0.0 if short else 18.2 / len(nodes) + 12,
        predicted_first_token_seconds=0.0 if short else 0.6 + 0.25 * len(nodes),
        predicted_prompt_tokens=512,
        fits=refusal is None,
        refusal=refusal,
        warnings=tight,
    )


def plan_for(state: State, model: ModelId, wish: Wish) -> Plan:
    """All nodes, then one fewer, and so on down to the first alone; those that fit come first."""
    nodes = wish.nodes or tuple(n for n in state.nodes if n not in wish.exclude)
    options = [nodes] if wish.nodes else [nodes[:count] for count in range(len(nodes), 0, -1)]
    candidates = [_candidate(state, option, wish) for option in options]
    candidates.sort(key=lambda candidate: not candidate.fits)
    best = candidates[0]
    return Plan(model=model, candidates=tuple(candidates), refusal=best.refusal)
