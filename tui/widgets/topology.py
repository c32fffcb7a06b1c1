"""The topology: cards on a racetrack, links with what was measured; rows where cards don't fit."""

from typing import ClassVar

import msgspec
from textual.binding import BindingType

from node.model.ids import NodeId
from tui.bridge.store import LINKS, NODES, PLACEMENTS, SESSION
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.rows import LinkRow, NodeRow, PlacementRow
from tui.viewmodel.topology_layout import Layout, Path, arrange, cells
from tui.widgets.painted import Parts
from tui.widgets.pane import Pane, bindings
from tui.widgets.topology_card import CardLook, draw_card
from tui.widgets.topology_matrix import draw_matrix
from tui.widgets.topology_rows import draw_rows, others_of

WEIGHTS = {"thunderbolt": "heavy", "wifi": "dashed", "vpn": "dashed"}
"""How a link is drawn, by its medium; thin where it is not named."""
LINES = {
    "heavy": (glyphs.HEAVY, glyphs.HEAVY_DOWN),
    "thin": (glyphs.THIN, glyphs.THIN_DOWN),
    "dashed": (glyphs.DASHED, glyphs.DASHED_DOWN),
}
ARROWS = {(1, 0): glyphs.RIGHT, (-1, 0): glyphs.LEFT, (0, 1): glyphs.DOWN, (0, -1): glyphs.UP}
TURNS = {
    ((0, 1), (-1, 0)): glyphs.ROUND[3],
    ((1, 0), (0, -1)): glyphs.ROUND[3],
    ((-1, 0), (0, -1)): glyphs.ROUND[2],
    ((0, 1), (1, 0)): glyphs.ROUND[2],
}
PULSE_CELLS = 5


class TopologyPane(Pane):
    """Who is in the cluster, and how they are linked."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("topology")
    scope: ClassVar[str] = "topology"
    topics: ClassVar[frozenset[str]] = frozenset((NODES, LINKS, PLACEMENTS, SESSION))
    shows_matrix = False
    pulse = 0

    def heading(self) -> Parts:
        """What is drawn, and whose ring."""
        parts: Parts = [("Topology ", "text b")]
        ring = self._ring()
        if ring is not None and len(ring.runs) > 1:
            parts += [(f"{glyphs.DOT} {ring.strategy} {ring.model} ", "dim")]
        return parts

    def footing(self) -> Parts:
        """The sum of the cluster, and its slowest link."""
        view = self.context.view
        up = [link for link in view.links.values() if link.up]
        said: list[str] = []
        used, total = view.memory
        if len(view.nodes) > 1 and total and self.size.width > 90:
            said.append(f"memory {text.memory_of(used, total)}")
            watts = sum(row.watts or 0.0 for row in view.nodes)
            said += [f"{watts:.0f} W"] if watts else []
        if up:
            said.append(text.plural(len(up), "link"))
        measured = [link for link in up if link.bits_per_second]
        if measured:
            slowest = min(measured, key=lambda link: link.bits_per_second or 0.0)
            names = view.names
            pair = f"{names.name(slowest.source)}{glyphs.ARROW}{names.name(slowest.target)}"
            said.append(f"slowest {pair} {text.bandwidth(slowest.bits_per_second)}")
        return [(f" {glyphs.DOT} ".join(said), "dim")] if said else []

    def _ring(self) -> PlacementRow | None:
        rows = self.context.view.placements
        for row in rows:
            if row.instance == self.context.instance:
                return row
        ready = [row for row in rows if row.ready]
        spread = [row for row in ready or rows if len(row.runs) > 1]
        return next(iter(spread or ready or rows), None)

    def order(self) -> list[NodeRow]:
        """Nodes in pipeline order, the others after them by admission."""
        nodes = self.context.view.nodes
        ring = self._ring()
        ranks = {run.node: rank for rank, run in enumerate(ring.runs)} if ring else {}
        return sorted(nodes, key=lambda row: (ranks.get(row.node, len(ranks)), not row.is_master))

    def draw(self, canvas: Canvas) -> None:
        """Draw cards, rows or the matrix, whichever fits and is asked for."""
        order = self.order()
        if not order:
            if self.context.store.heard_at:
                canvas.centre(canvas.height // 2, "No node has described itself yet.", "dim")
            return
        if self.shows_matrix:
            draw_matrix(canvas, order, self.context.view.links)
            return
        spare = 5 if len(order) == 1 and canvas.height >= 12 else 0
        layout = arrange([row.node for row in order], canvas.width, canvas.height - spare)
        if layout.is_empty:
            draw_rows(canvas, order, self._ring(), self.context)
            return
        if len(order) == 1 and spare:
            self._draw_alone(canvas, layout)
        for path in layout.paths:
            self._draw_path(canvas, path)
        rows = {row.node: row for row in order}
        ring = self._ring()
        for card in layout.cards:
            row = rows[card.node]
            look = CardLook(
                runs=tuple(run for run in ring.runs if run.node == row.node) if ring else (),
                others=others_of(self.context.view.placements, ring, row.node),
                speeds=self.context.store.node_values(row.node, "speed"),
                loads=self.context.store.node_values(row.node, "load"),
                is_chosen=row.node == self.context.chosen_node and self.has_focus,
            )
            draw_card(canvas, layout, card, row, look)

    def _draw_alone(self, canvas: Canvas, layout: Layout) -> None:
        y = layout.cards[0].y + layout.card_height + 1
        look = self.context.view.discovery
        looking = {"on": "Looking for others on the local network.", "off": "Discovery is off."}
        canvas.centre(y, "Only this machine so far.", "text b")
        words = looking.get(look, f"Discovery does not work: {look}." if look else "")
        canvas.centre(y + 1, words, "dim")
        row: Parts = [
            ("i", "accent b"),
            (" shows a code for another machine", "dim"),
            (f"   {glyphs.DOT}   ", "faint"),
            ("J", "accent b"),
            (" joins another cluster", "dim"),
        ]
        width = sum(len(words) for words, _ in row)
        canvas.parts(max(0, (canvas.width - width) // 2), y + 3, row)

    def _draw_path(self, canvas: Canvas, path: Path) -> None:
        link = self.context.view.links.get(frozenset((path.source, path.target)))
        ring = self._ring()
        members = [run.node for run in ring.runs] if ring and len(ring.runs) > 1 else []
        in_ring = path.source in members and path.target in members
        kind = link.medium if link else ""
        medium, weight = text.MEDIA_SHORT.get(kind, ""), WEIGHTS.get(kind, "thin")
        across, down = LINES["dashed" if path.is_closing else weight]
        is_up = link is not None and link.up
        if link is None and not in_ring:
            return
        ink = ("accent%62" if weight == "heavy" else "dim") if is_up else "bad"
        way = cells(path.points)
        bright = self._pulse(len(way)) if is_up and in_ring else range(0)
        for place, (x, y) in enumerate(way):
            here = "accent b" if place in bright else ink
            glyph = self._glyph(way, place, across, down)
            canvas.put(x, y, glyph if is_up else glyphs.CROSS if place % 2 == 0 else " ", here)
        if in_ring and is_up:
            (x0, y0), (x1, y1) = way[-2] if len(way) > 1 else way[-1], way[-1]
            canvas.put(x1, y1, ARROWS.get((x1 - x0, y1 - y0), glyphs.RIGHT), "accent b")
        label = _Label(link, medium, in_ring)
        self._draw_labels(canvas, path, label)

    @staticmethod
    def _glyph(way: list[tuple[int, int]], place: int, across: str, down: str) -> str:
        x, y = way[place]
        before = way[place - 1] if place else None
        after = way[place + 1] if place + 1 < len(way) else None
        came = (x - before[0], y - before[1]) if before else None
        goes = (after[0] - x, after[1] - y) if after else came
        if came is not None and goes is not None and came != goes:
            return TURNS.get((came, goes), across)
        step = goes or came or (1, 0)
        return across if step[0] else down

    def _pulse(self, length: int) -> range:
        ring = self._ring()
        if not self.context.options.animations or ring is None or ring.speed <= 0 or length < 2:
            return range(0)
        start = self.pulse % (length + PULSE_CELLS) - PULSE_CELLS
        return range(start, start + PULSE_CELLS)

    @staticmethod
    def _draw_labels(canvas: Canvas, path: Path, label: "_Label") -> None:
        link = label.link
        is_up = link is not None and link.up
        words = label.words(path)
        for spot, full in zip(path.spots, words, strict=True):
            shown = full
            if len(shown) > spot.width and label.medium:
                shown = shown.removeprefix(f"{label.medium} ")
            if not shown or len(shown) > spot.width:
                continue
            pad = (spot.width - len(shown)) // 2 if spot.is_centred else 0
            canvas.put(spot.x + pad, spot.y, shown, "dim" if is_up else "bad")

    def walk(self, step: int) -> None:
        """Choose the next node along the ring."""
        order: list[NodeId] = [row.node for row in self.order()]
        if not order:
            return
        here = self.context.chosen_node
        place = order.index(here) + step if here is not None and here in order else 0
        self.context.chosen_node = order[place % len(order)]
        self.paint()

    def chosen_text(self) -> str:
        """The chosen node's id."""
        return self.context.chosen_node or ""

    def open_chosen(self) -> None:
        """Go to the node's page."""
        self.context.perform("global.nodes")


class _Label(msgspec.Struct, frozen=True):
    """What is written beside a hop."""

    link: LinkRow | None
    medium: str
    is_ring: bool

    def words(self, path: Path) -> tuple[str, str]:
        """Medium and speed, then the round trip; in one where there is but one spot."""
        link = self.link
        if link is None or not link.up:
            return (link.note if link and link.note else "no link"), ""
        first = text.link(self.medium, link.bits_per_second)
        second = text.round_trip(link.rtt_seconds)
        if link.one_way:
            second += " one way"
        if path.spots[1].width > 0:
            return first, second
        returns = f" {glyphs.DOT} token ids" if self.is_ring and path.is_closing else ""
        return f"{first} {glyphs.DOT} {second}{returns}", ""
