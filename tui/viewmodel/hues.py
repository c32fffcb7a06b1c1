"""One hue for each node, for life: chosen by its id, moved on only where two would be alike."""

from collections.abc import Iterable

from node.model.ids import NodeId
from node.model.machine import NodeRecord

HUES = 8
NO_HUE = "dim"
CLOSE = frozenset(frozenset(pair) for pair in ((0, 3), (0, 5), (1, 6), (2, 4), (2, 5), (3, 7)))
"""Hues that lie side by side on the wheel: not both, as long as others are free."""


def assign(nodes: Iterable[NodeRecord]) -> dict[NodeId, str]:
    """Ink names `hue0` … `hue7` by node, kept while those admitted before it stay."""
    hues: dict[NodeId, str] = {}
    taken: set[int] = set()
    for record in sorted(nodes, key=lambda item: (item.admitted_index, item.node)):
        place = sum(record.node[:8].encode()) % HUES
        free = [(place + step) % HUES for step in range(HUES)]
        free = [hue for hue in free if hue not in taken]
        clear = [hue for hue in free if not any(frozenset((hue, at)) in CLOSE for at in taken)]
        place = (clear or free)[0]
        hues[record.node] = f"hue{place}"
        taken.add(place)
        if len(taken) == HUES:
            taken.clear()
    return hues
