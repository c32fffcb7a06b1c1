"""One hue for each node, for life: chosen by its id, moved on only where two would be alike."""

from collections.abc import Iterable

from node.model.ids import NodeId
from node.model.machine import NodeRecord

HUES = 8
NO_HUE = "dim"


def assign(nodes: Iterable[NodeRecord]) -> dict[NodeId, str]:
    """Ink names `hue0` … `hue7` by node, kept while those admitted before it stay."""
    hues: dict[NodeId, str] = {}
    taken: set[int] = set()
    for record in sorted(nodes, key=lambda item: (item.admitted_index, item.node)):
        place = sum(record.node[:8].encode()) % HUES
        while place in taken:
            place = (place + 1) % HUES
        hues[record.node] = f"hue{place}"
        taken.add(place)
        if len(taken) == HUES:
            taken.clear()
    return hues
