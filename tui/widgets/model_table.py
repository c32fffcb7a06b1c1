"""Models and the nodes that hold them."""

from typing import ClassVar

from textual.binding import BindingType

from tui.bridge.store import DOWNLOADS, NODES, PLACEMENTS
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.matching import matcher
from tui.viewmodel.rows import SYMBOLS, ModelRow
from tui.viewmodel.sorting import Sortable
from tui.widgets.painted import Parts
from tui.widgets.pane import bindings
from tui.widgets.table_pane import TablePane

WIDE_CELLS = 96
FITS_CELLS = 15
MORE_CELLS = 6
FACTS = (("size", 10), ("params", 8), ("bits", 6), ("layers", 8), ("context", 9))


class ModelTable(TablePane):
    """A row for each model; a column for each node that fits."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("models")
    scope: ClassVar[str] = "models"
    topics: ClassVar[frozenset[str]] = frozenset((DOWNLOADS, PLACEMENTS, NODES))
    head_lines = 1
    sortable: ClassVar[tuple[str, ...]] = ("model", *(name for name, _ in FACTS), "memory now")
    optional: ClassVar[tuple[str, ...]] = sortable[1:]
    rows: list[ModelRow] = []

    def prepare(self) -> None:
        """Take the rows that match."""
        matches = matcher(self._words)
        self.rows = self.in_order(
            [
                row
                for row in self.context.view.models
                if matches(f"{row.model} {row.architecture} {row.fits}")
            ]
        )

    def sort_value(self, row: ModelRow, column: str) -> Sortable:
        """A model's figure or word."""
        if column in ("model", "memory now"):
            return row.model if column == "model" else row.fits
        return {
            "size": float(row.bytes_on_disk),
            "params": float(row.parameters),
            "bits": float(row.bits) if row.bits else None,
            "layers": float(row.layer_count),
            "context": float(row.context_tokens),
        }[column]

    def count(self) -> int:
        """How many match."""
        return len(self.rows)

    def key_of(self, place: int) -> object:
        """The model."""
        return self.rows[place].model if place < len(self.rows) else None

    def moved(self) -> None:
        """Show the model under the cursor below."""
        if self.cursor < len(self.rows):
            self.context.chosen_model = self.rows[self.cursor].model
            self.context.mark(frozenset((DOWNLOADS,)))

    def heading(self) -> Parts:
        """Title, number, filter."""
        parts: Parts = [("Models ", "text b"), (f"{len(self.rows)} ", "dim")]
        parts += self.order_parts()
        if self._words:
            parts.append((f"{glyphs.DOT} filter {self._words} ", "warn"))
        return parts

    def footing(self) -> Parts:
        """What the signs mean."""
        return [
            (f"{glyphs.CHECK} whole  ", "dim"),
            ("% so far  ", "dim"),
            (f"{glyphs.CROSS} failed  ", "dim"),
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
    def _cells(self) -> tuple[int, int]:
        """Cells of a model's name and of a node."""
        return (30, 10) if self.size.width >= WIDE_CELLS else (24, 9)

    @property
    def columns(self) -> tuple[list[tuple[str, int]], int]:
        """The facts and how many nodes fit: the size and the nodes first."""
        name_cells, node_cells = self._cells
        wanted = [fact for fact in FACTS if fact[0] not in self.hidden]
        fits = 0 if "memory now" in self.hidden else FITS_CELLS
        room = self.size.width - name_cells - fits
        first = [fact for fact in wanted[:1] if fact[0] == "size"]
        room -= sum(cells for _, cells in first)
        known = len(self.context.view.nodes)
        nodes = min(known, max(0, room // node_cells))
        if nodes < known:
            nodes = max(0, (room - MORE_CELLS) // node_cells)
            return first, nodes
        room -= nodes * node_cells
        facts = list(first)
        for fact in wanted[len(first) :]:
            if room < fact[1]:
                break
            room -= fact[1]
            facts.append(fact)
        return facts, nodes

    @property
    def seen_columns(self) -> frozenset[str]:
        """Columns that have room at this width."""
        return frozenset(name for name, _ in self.columns[0]) | ({"memory now"} - self.hidden)

    def draw_head(self, canvas: Canvas) -> None:
        """Column heads, the nodes in their hues; how many more there are where not all fit."""
        facts, nodes = self.columns
        name_cells, node_cells = self._cells
        self.put_head(canvas, 2, "model")
        x = name_cells
        for name, cells in facts:
            self.put_head(canvas, x + cells - 1, name, right=True)
            x += cells
        if "memory now" not in self.hidden:
            self.put_head(canvas, x + 1, "memory now")
            x += FITS_CELLS
        known = self.context.view.nodes
        for row in known[:nodes]:
            canvas.put(x, 0, text.middle(row.name, node_cells - 1), row.hue)
            x += node_cells
        if nodes < len(known):
            canvas.put(x, 0, f"+{len(known) - nodes}", "dim")

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """One model."""
        row = self.rows[place]
        facts, nodes = self.columns
        name_cells, node_cells = self._cells
        is_lacking = bool(row.places) and set(row.places.values()) == {glyphs.CROSS}
        level = "ok" if row.instances else "bad" if is_lacking else "idle"
        canvas.put(0, y, SYMBOLS[level], "faint" if level == "idle" else level)
        canvas.put(2, y, text.middle(row.model, name_cells - 3), "text b")
        x = name_cells
        for name, cells in facts:
            ink = "text" if name == "size" else "dim"
            canvas.right(x + cells - 1, y, _fact(row, name), ink)
            x += cells
        if "memory now" not in self.hidden:
            canvas.put(x + 1, y, text.shorten(row.fits, FITS_CELLS - 2), row.level)
            x += FITS_CELLS
        inks = {glyphs.CHECK: "ok b", glyphs.EM_DASH: "faint", glyphs.CROSS: "bad b"}
        known = self.context.view.nodes
        for node in known[:nodes]:
            words = row.places.get(node.node, glyphs.EM_DASH)
            canvas.put(x, y, words, inks.get(words, "busy"))
            x += node_cells
        more = [row.places.get(node.node, "") for node in known[nodes:]]
        if more:
            whole = more.count(glyphs.CHECK)
            words = f"{whole}{glyphs.CHECK}" if whole else glyphs.EM_DASH
            canvas.put(x, y, words, "ok b" if whole else "faint")

    def chosen_text(self) -> str:
        """The model's name."""
        return self.rows[self.cursor].model if self.cursor < len(self.rows) else ""

    def open_chosen(self) -> None:
        """Place it."""
        if self.cursor < len(self.rows):
            self.context.perform("global.place", self.rows[self.cursor].model)


def _fact(row: ModelRow, name: str) -> str:
    if not row.bytes_on_disk if name == "size" else not row.parameters:
        return text.UNKNOWN
    return {
        "size": text.size(row.bytes_on_disk),
        "params": text.parameters(row.parameters),
        "bits": str(row.bits) if row.bits else "full",
        "layers": str(row.layer_count),
        "context": f"{row.context_tokens:,}",
    }[name]
