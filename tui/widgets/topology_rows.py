"""The topology where cards do not fit: a row for each node with the hop to the next."""

from collections.abc import Sequence

from node.model.ids import NodeId
from tui.context import Context
from tui.paint.bars import line
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.rows import SYMBOLS, NodeRow, PlacementRow, Run

NAME_CELLS = 12
MEDIUM_WORDS = {
    "thunderbolt": "TB",
    "ethernet": "Eth",
    "wifi": "Wi-Fi",
    "loopback": "local",
    "vpn": "VPN",
}


def draw_rows(
    canvas: Canvas, order: list[NodeRow], ring: PlacementRow | None, context: Context
) -> None:
    """Head, a row for each node, and the cluster's sum where there is room."""
    wide = canvas.width >= 74
    canvas.put(2, 0, "node", "faint")
    canvas.put(2 + NAME_CELLS + 1, 0, "memory", "faint")
    canvas.put(30, 0, "load", "faint")
    if wide:
        canvas.put(36, 0, "power", "faint")
    canvas.put(43 if wide else 36, 0, "layers", "faint")
    canvas.put(53 if wide else 46, 0, "next hop", "faint")
    room = canvas.height - 1
    shown = order[: room if len(order) <= room else room - 1]
    for place, row in enumerate(shown, start=1):
        _draw_row(canvas, place, row, ring, context)
    if len(shown) < len(order):
        rest = f"and {len(order) - len(shown)} more: 2 shows all"
        canvas.put(2, canvas.height - 1, rest, "dim")
    elif len(order) + 2 <= canvas.height and len(order) > 1:
        _draw_sum(canvas, len(order) + 1, order, ring, context.view.memory)


def _draw_row(
    canvas: Canvas, y: int, row: NodeRow, ring: PlacementRow | None, context: Context
) -> None:
    wide = canvas.width >= 74
    if row.is_master:
        canvas.put(0, y, glyphs.DIAMOND, "master b")
    else:
        canvas.put(0, y, SYMBOLS[row.level], row.level)
    canvas.put(2, y, text.middle(row.name, NAME_CELLS), f"{row.hue} b")
    x = 2 + NAME_CELLS + 1
    if row.level == "bad":
        canvas.put(x, y, text.shorten(row.notes[0].text if row.notes else row.word, 60), "bad")
        return
    if not row.has_figures:
        canvas.put(x, y, "no figures yet", "dim")
        return
    line(canvas, (x, y), 8, row.memory_fraction, row.hue)
    canvas.put(x + 9, y, text.percent(row.memory_fraction), "text")
    canvas.put(30, y, text.percent(row.load), "text")
    if wide and row.watts is not None:
        canvas.right(41, y, f"{row.watts:.0f} W", "dim")
    runs = [run for run in ring.runs if run.node == row.node] if ring else []
    others = others_of(context.view.placements, ring, row.node)
    x, hop = (43, 53) if wide else (36, 46)
    if runs:
        layers = text.layers(runs[0].first_layer, runs[0].end_layer)
        canvas.put(x, y, layers, f"{row.hue} b")
    elif others:
        _draw_others(canvas, (x, y), hop, others, row)
    else:
        canvas.put(x, y, glyphs.EM_DASH, "faint")
    _draw_hop(canvas, (hop, y), row, ring, context)


def others_of(
    rows: Sequence[PlacementRow], ring: PlacementRow | None, node: NodeId
) -> tuple[tuple[str, Run], ...]:
    """What a node holds of instances other than the ring that is drawn, each with its model;
    one that failed holds nothing.
    """
    return tuple(
        (row.model, run)
        for row in rows
        if row.level != "bad" and (ring is None or row.instance != ring.instance)
        for run in row.runs
        if run.node == node
    )


def _draw_others(
    canvas: Canvas,
    at: tuple[int, int],
    hop: int,
    others: tuple[tuple[str, Run], ...],
    row: NodeRow,
) -> None:
    """Layers of another instance, and where the next hop would stand, whose they are."""
    model, run = others[0]
    more = f" +{len(others) - 1}" if len(others) > 1 else ""
    canvas.put(*at, text.layers(run.first_layer, run.end_layer) + more, f"{row.hue}")
    canvas.put(hop, at[1], text.shorten(f"of {model}", canvas.width - hop), "dim")


def _draw_hop(
    canvas: Canvas,
    at: tuple[int, int],
    row: NodeRow,
    ring: PlacementRow | None,
    context: Context,
) -> None:
    members = [run.node for run in ring.runs] if ring else []
    if row.node not in members or len(members) < 2:
        return
    following = members[(members.index(row.node) + 1) % len(members)]
    link = context.view.links.get(frozenset((row.node, following)))
    if link is None or not link.up:
        canvas.put(*at, f"{glyphs.CROSS} {link.note if link and link.note else 'no link'}", "bad")
        return
    medium = MEDIUM_WORDS.get(link.medium, link.medium)
    trip = text.round_trip(link.rtt_seconds)
    x = canvas.put(*at, f"{glyphs.ARROW} ", "accent")
    words = f"{text.link(medium, link.bits_per_second)} {trip}"
    figures = f"{text.link('', link.bits_per_second)} {trip}".strip()
    canvas.put(x, at[1], words if x + len(words) <= canvas.width else figures, "dim")


def _draw_sum(
    canvas: Canvas,
    y: int,
    order: list[NodeRow],
    ring: PlacementRow | None,
    memory: tuple[int, int],
) -> None:
    used, total = memory
    watts = sum(row.watts or 0.0 for row in order)
    canvas.put(2, y, "sum", "dim")
    canvas.put(2 + NAME_CELLS + 1, y, text.memory_of(used, total), "dim")
    if canvas.width >= 74 and watts:
        canvas.right(41, y, f"{watts:.0f} W", "dim")
    if ring is not None:
        x = 43 if canvas.width >= 74 else 36
        canvas.put(x, y, text.plural(ring.layer_count, "layer"), "dim")
        if ring.speed:
            canvas.put(x + 12, y, text.speed(ring.speed), "text b")
