"""Models and the nodes that hold them."""

from typing import ClassVar

from textual.binding import BindingType

from tui.bridge.store import DOWNLOADS, NODES, PLACEMENTS
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.matching import matcher
from tui.viewmodel.rows import SYMBOLS, ModelRow
from tui.widgets.list_pane import ListPane
from tui.widgets.painted import Parts
from tui.widgets.pane import bindings

NAME_CELLS = 30
NODE_CELLS = 10
FACTS = (("size", 10), ("params", 8), ("bits", 6), ("layers", 8), ("context", 9))


class ModelTable(ListPane):
    """A row for each model; a column for each node that fits."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("models")
    scope: ClassVar[str] = "models"
    topics: ClassVar[frozenset[str]] = frozenset((DOWNLOADS, PLACEMENTS, NODES))
    head_lines = 1
    rows: list[ModelRow] = []

    def prepare(self) -> None:
        """Take the rows that match."""
        matches = matcher(self._words)
        self.rows = [
            row
            for row in self.context.view.models
            if matches(f"{row.model} {row.architecture} {row.fits}")
        ]

    def count(self) -> int:
        """How many match."""
        return len(self.rows)

    def key_of(self, place: int) -> object:
        """The model."""
        return self.rows[place].model if place < len(self.rows) else None

    def heading(self) -> Parts:
        """Title, number, filter."""
        parts: Parts = [("Models ", "text b"), (f"{len(self.rows)} ", "dim")]
        if self._words:
            parts.append((f"{glyphs.DOT} filter {self._words} ", "warn"))
        return parts

    def footing(self) -> Parts:
        """What the signs mean."""
        return [
            (f"{glyphs.CHECK} whole  ", "dim"),
            ("42% on its way  ", "dim"),
            (f"{glyphs.EM_DASH} none", "dim"),
        ]

    def draw_empty(self, canvas: Canvas) -> None:
        """No model anywhere."""
        if not self.context.store.heard_at:
            return
        y = max(0, canvas.height // 2 - 1)
        canvas.centre(y, "No model lies on any node.", "text b")
        canvas.centre(y + 1, "`exoctl model pull NAME` fetches one.", "dim")

    @property
    def columns(self) -> tuple[int, int]:
        """How many facts and how many nodes fit."""
        room = self.size.width - NAME_CELLS - 16
        room -= FACTS[0][1]
        nodes = min(len(self.context.view.nodes), max(0, room // NODE_CELLS))
        room -= nodes * NODE_CELLS
        facts = 1
        for _, cells in FACTS[1:]:
            if room < cells:
                break
            room -= cells
            facts += 1
        return facts, nodes

    def draw_head(self, canvas: Canvas) -> None:
        """Column heads, the nodes in their hues."""
        facts, nodes = self.columns
        canvas.put(2, 0, "model", "faint")
        x = NAME_CELLS
        for name, cells in FACTS[:facts]:
            canvas.right(x + cells - 1, 0, name, "faint")
            x += cells
        canvas.put(x + 1, 0, "memory now", "faint")
        x += 16
        for row in self.context.view.nodes[:nodes]:
            canvas.put(x, 0, text.middle(row.name, NODE_CELLS - 1), row.hue)
            x += NODE_CELLS

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """One model."""
        row = self.rows[place]
        facts, nodes = self.columns
        sign = SYMBOLS["ok"] if row.instances else SYMBOLS["idle"]
        canvas.put(0, y, sign, "ok" if row.instances else "faint")
        canvas.put(2, y, text.middle(row.model, NAME_CELLS - 3), "text b")
        x = NAME_CELLS
        values = (
            text.size(row.bytes_on_disk),
            _parameters(row.parameters),
            str(row.bits) if row.bits else "full",
            str(row.layer_count),
            f"{row.context_tokens:,}",
        )
        for (_, cells), words in list(zip(FACTS, values, strict=True))[:facts]:
            canvas.right(x + cells - 1, y, words, "text" if cells == 10 else "dim")
            x += cells
        canvas.put(x + 1, y, text.shorten(row.fits, 14), row.level)
        x += 16
        for node in self.context.view.nodes[:nodes]:
            words = row.places.get(node.node, glyphs.EM_DASH)
            ink = {glyphs.CHECK: "ok b", glyphs.EM_DASH: "faint", glyphs.CROSS: "bad b"}
            canvas.put(x, y, words, ink.get(words, "busy"))
            x += NODE_CELLS

    def chosen_text(self) -> str:
        """The model's name."""
        return self.rows[self.cursor].model if self.cursor < len(self.rows) else ""

    def open_chosen(self) -> None:
        """Place it."""
        if self.cursor < len(self.rows):
            self.context.perform("global.place", self.rows[self.cursor].model)


def _parameters(number: int) -> str:
    if number >= 1e9:
        value = number / 1e9
        return f"{value:.{1 if value < 99.95 else 0}f}B"
    return f"{number / 1e6:.0f}M"
