"""Memory of each node: what is used or promised, and what may be used.

A node's limit is its memory less what is kept free for the system: 8 %, at least 1 GiB, but never
more than an eighth (so that small machines are of use at all). Used is what the machine says is not
available, and besides what was promised to shards whose runners don't hold it yet: of two
placements in quick succession, the second can't count on the first's bytes. Nodes on one machine
share its memory.
"""

import msgspec

from node.core.facts import LOOPBACK, Facts
from node.core.placement.words import BYTES_MAX, GIB, MIB
from node.model.ids import NodeId
from node.model.instance import Instance, Shard
from node.model.machine import Machine
from node.model.state import State

RUNNER_BYTES = 150 * MIB
"""Working buffers of a runner beside weights and cache: Python, mlx, one prompt chunk."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one node that is known."""

    node: NodeId
    name: str
    machine: Machine
    bytes_total: int
    bytes_used: int
    """In use now or promised."""
    bytes_promised: int
    """The part of `bytes_used` that is promised and not in use yet."""
    bytes_limit: int
    held: bool
    """The model's files are here, complete."""
    beside: frozenset[NodeId]
    """Nodes on this very machine, itself among them; they share the memory."""

    @property
    def bytes_free(self) -> int:
        """Room for more; negative where the limit is passed already."""
        return self.bytes_limit - self.bytes_used


def bytes_kept_free(bytes_total: int) -> int:
    """What is left to the system on a machine of that size."""
    return min(max(bytes_total * 8 // 100, GIB), bytes_total // 8)


def bytes_promised(shard: Shard) -> int:
    """Everything that a shard may come to use."""
    return shard.weight_bytes + shard.cache_bytes + RUNNER_BYTES


def bytes_outstanding(shard: Shard, facts: Facts) -> int:
    """What a shard was promised and its runner does not hold yet."""
    progress = facts.runners.get(shard.runner)
    return max(0, bytes_promised(shard) - (progress.memory_bytes if progress else 0))


def outstanding_by_node(state: State, facts: Facts) -> dict[NodeId, int]:
    """Promised bytes of each node that are not in use yet."""
    outstanding: dict[NodeId, int] = {}
    for instance in state.instances.values():
        if instance.removing:
            continue
        for shard in instance.shards:
            added = bytes_outstanding(shard, facts)
            outstanding[shard.node] = outstanding.get(shard.node, 0) + added
    return outstanding


def machine_groups(state: State, facts: Facts) -> dict[NodeId, frozenset[NodeId]]:
    """Nodes that share a machine, each with its group; those alone on theirs are left out.

    They show in a link over loopback, or in a host name and an address that both have: one of the
    two alone may be the same on several machines.
    """
    pairs = [
        (node, peer)
        for node, links in facts.links.items()
        for peer, link in links.items()
        if link.medium == LOOPBACK
    ]
    first: dict[tuple[str, str], NodeId] = {}
    for node, record in state.nodes.items():
        hostname = record.machine.hostname if record.machine else node
        keys = [(hostname, address.host) for address in record.addresses]
        pairs.extend((node, first.setdefault(key, node)) for key in keys)
    groups: dict[NodeId, frozenset[NodeId]] = {}
    for node, peer in pairs:
        one = groups.get(node, frozenset((node,)))
        other = groups.get(peer, frozenset((peer,)))
        if node != peer and one is not other:
            merged = one | other
            groups.update(dict.fromkeys(merged, merged))
    return groups


def rooms(state: State, facts: Facts, held: frozenset[NodeId]) -> dict[NodeId, Room]:
    """Room of every node whose machine and figures are known; `held` are those with the model."""
    outstanding = outstanding_by_node(state, facts)
    groups = machine_groups(state, facts)
    found: dict[NodeId, Room] = {}
    for node, record in state.nodes.items():
        figures = facts.machines.get(node)
        if record.machine is None or figures is None:
            continue
        beside = groups.get(node, frozenset((node,)))
        promised = min(sum(outstanding.get(other, 0) for other in beside), BYTES_MAX)
        total = min(max(figures.memory_bytes_total, 0), BYTES_MAX)
        available = min(max(figures.memory_bytes_available, 0), total)
        found[node] = Room(
            node=node,
            name=record.name,
            machine=record.machine,
            bytes_total=total,
            bytes_used=total - available + promised,
            bytes_promised=promised,
            bytes_limit=total - bytes_kept_free(total),
            held=node in held,
            beside=beside,
        )
    return found


def instances_on(state: State, node: NodeId) -> tuple[Instance, ...]:
    """Instances with a shard on the node that are not being removed."""
    return tuple(
        instance
        for instance in state.instances.values()
        if not instance.removing and node in instance.nodes
    )
