"""Every link as a matrix: rows from, columns to."""

from node.model.ids import NodeId
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.rows import LinkRow, NodeRow

CELL = 16
NAME_CELLS = 12
FAST_BITS = 9e9
FAIR_BITS = 0.9e9


def draw_matrix(
    canvas: Canvas, order: list[NodeRow], links: dict[frozenset[NodeId], LinkRow]
) -> None:
    """Bandwidth and round trip of each pair, graded A (fast) to D (slow)."""
    fitting = max(1, (canvas.width - NAME_CELLS - 1) // CELL)
    shown = order[:fitting]
    for column, row in enumerate(shown):
        x = NAME_CELLS + 1 + column * CELL
        canvas.put(x, 0, text.middle(row.name, CELL - 2), f"{row.hue} b")
    for line, row in enumerate(order[: canvas.height - 1], start=1):
        canvas.put(0, line, text.middle(row.name, NAME_CELLS), f"{row.hue} b")
        for column, other in enumerate(shown):
            x = NAME_CELLS + 1 + column * CELL
            link = links.get(frozenset((row.node, other.node)))
            words, ink = _cell(row, other, link)
            canvas.put(x, line, words, ink, CELL - 1)
    if len(shown) < len(order):
        canvas.put(0, canvas.height - 1, f"{len(order) - len(shown)} columns more: widen", "dim")


def _cell(row: NodeRow, other: NodeRow, link: LinkRow | None) -> tuple[str, str]:
    if row.node == other.node:
        return glyphs.EM_DASH, "faint"
    if link is None:
        return "no link", "faint"
    if not link.up:
        return f"{glyphs.CROSS} down", "bad"
    bits = link.bits_per_second or 0.0
    if not bits:
        medium = text.MEDIA_SHORT.get(link.medium, link.medium)
        return f"{medium} {text.round_trip(link.rtt_seconds)}".strip(), "text"
    if bits >= FAST_BITS:
        grade, ink = "A", "ok"
    elif bits >= FAIR_BITS:
        grade, ink = "B", "text"
    else:
        grade, ink = "D", "warn"
    rtt = f"{(link.rtt_seconds or 0) * 1000:.2f}"
    return f"{grade} {text.bandwidth(link.bits_per_second).replace(' Gb/s', 'G')} {rtt}ms", ink
