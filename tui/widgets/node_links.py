"""The links of the chosen node."""

from typing import ClassVar

from node.model.ids import NodeId
from tui.bridge.store import LINKS, NODES
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.matching import matcher
from tui.viewmodel.rows import LinkRow, NodeRow
from tui.widgets.list_pane import ListPane
from tui.widgets.painted import Parts

Row = tuple[NodeRow, LinkRow]
FIGURES_CELLS = 22
"""Cells of speed and round trip, with a gap before them."""


class NodeLinks(ListPane):
    """A row for each peer."""

    scope: ClassVar[str] = "links"
    topics: ClassVar[frozenset[str]] = frozenset((LINKS, NODES))
    head_lines = 1
    rows: list[Row] = []

    @property
    def node(self) -> NodeId:
        """Whose links."""
        view = self.context.view
        return self.context.chosen_node or view.here

    def prepare(self) -> None:
        """Take the links of that node."""
        view, node = self.context.view, self.node
        matches = matcher(self._words)
        self.rows = [
            (peer, link)
            for peer in view.nodes
            if peer.node != node
            and matches(f"{peer.name} {peer.word}")
            and (link := view.links.get(frozenset((peer.node, node)))) is not None
        ]

    def count(self) -> int:
        """How many links."""
        return len(self.rows)

    def key_of(self, place: int) -> object:
        """The peer."""
        return self.rows[place][0].node if place < len(self.rows) else None

    def heading(self) -> Parts:
        """Whose."""
        names = self.context.view.names
        parts: Parts = [("Links ", "text b")]
        if self.node:
            parts.append((f"{glyphs.DOT} {names.name(self.node)} ", names.hue(self.node)))
        return parts

    def draw_empty(self, canvas: Canvas) -> None:
        """No links."""
        if self.context.store.heard_at:
            canvas.centre(canvas.height // 2 - 1, "No links.", "text b")
            alone = len(self.context.view.nodes) < 2
            words = "i shows a code for another machine" if alone else "no peer is reached"
            canvas.centre(canvas.height // 2, words, "dim")

    @property
    def _via(self) -> int:
        """Where the medium begins."""
        return 13 if self.size.width >= 48 else 11

    def draw_head(self, canvas: Canvas) -> None:
        """Column heads."""
        canvas.put(0, 0, "peer", "faint")
        canvas.put(self._via, 0, "via", "faint")
        canvas.right(canvas.width - 12, 0, "speed", "faint")
        canvas.right(canvas.width, 0, "round trip", "faint")

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """One link."""
        peer, link = self.rows[place]
        canvas.put(0, y, text.middle(peer.name, self._via - 1), f"{peer.hue} b")
        if not link.up:
            words = f"{glyphs.CROSS} {link.note}"
            canvas.put(self._via, y, text.shorten(words, canvas.width - self._via), "bad")
            return
        room = canvas.width - self._via - FIGURES_CELLS
        medium = link.medium or text.UNKNOWN
        if room < len(medium):
            medium = text.MEDIA_SHORT.get(medium, medium)
        canvas.put(self._via, y, text.shorten(medium, room), "text")
        canvas.right(canvas.width - 12, y, text.bandwidth(link.bits_per_second), "text b")
        canvas.right(canvas.width, y, text.round_trip(link.rtt_seconds), "dim")
