"""Every node as a row."""

from collections.abc import Mapping
from typing import ClassVar

from textual.binding import BindingType

from tui.bridge.store import LINKS, NODES, PLACEMENTS, SESSION
from tui.paint.bars import line
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.matching import matcher
from tui.viewmodel.rows import SYMBOLS, NodeRow
from tui.viewmodel.sorting import Sortable
from tui.widgets.painted import Parts
from tui.widgets.pane import bindings
from tui.widgets.table_pane import TablePane

Field = tuple[str, int, bool]
"""Name, cells, whether it is written from the right."""

ALWAYS: tuple[Field, ...] = (
    ("node", 14, False),
    ("status", 9, False),
    ("memory", 20, False),
    ("load", 6, True),
    ("layers", 9, True),
    ("applied", 11, True),
    ("lag", 7, True),
)
WHERE_WIDE: tuple[Field, ...] = (
    ("chip", 11, False),
    ("power", 8, True),
    ("temp", 7, True),
    ("disk", 9, True),
    ("system", 14, False),
    ("version", 9, True),
    ("labels", 20, False),
)


class NodeTable(TablePane):
    """More columns the wider it is."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("nodes")
    scope: ClassVar[str] = "nodes"
    topics: ClassVar[frozenset[str]] = frozenset((NODES, LINKS, PLACEMENTS, SESSION))
    head_lines = 1
    bulk: ClassVar[Mapping[str, str]] = {"nodes.cordon": "cordon", "nodes.remove": "remove"}
    sortable: ClassVar[tuple[str, ...]] = tuple(name for name, _, _ in (*ALWAYS, *WHERE_WIDE))
    optional: ClassVar[tuple[str, ...]] = sortable[1:]
    rows: list[NodeRow] = []

    def prepare(self) -> None:
        """Take the rows that match."""
        matches = matcher(self._words)
        self.rows = self.in_order(
            [
                row
                for row in self.context.view.nodes
                if matches(
                    f"{row.name} {row.word} {row.chip} {row.version} {row.node} {row.labels}"
                )
            ]
        )
        if self.context.chosen_node is not None:
            self._cursor_key = self.context.chosen_node

    def sort_value(self, row: NodeRow, column: str) -> Sortable:
        """A node's figure or word."""
        return sort_value(row, column)

    def count(self) -> int:
        """How many nodes match."""
        return len(self.rows)

    def key_of(self, place: int) -> object:
        """The node."""
        return self.rows[place].node if place < len(self.rows) else None

    def moved(self) -> None:
        """Show the node under the cursor below."""
        if self.cursor < len(self.rows):
            self.context.chosen_node = self.rows[self.cursor].node
            self.context.mark(frozenset((NODES,)))

    def heading(self) -> Parts:
        """Title, number, filter."""
        parts: Parts = [("Nodes ", "text b"), (f"{len(self.rows)} ", "dim")]
        parts += self.order_parts()
        if self._words:
            parts.append((f"{glyphs.DOT} filter {self._words} ", "warn"))
        return parts

    def draw_empty(self, canvas: Canvas) -> None:
        """Nothing matches."""
        if self._words:
            canvas.centre(canvas.height // 2, "No node matches the filter; esc clears it.", "dim")

    @property
    def fields(self) -> list[Field]:
        """Columns that fit."""
        fields = [field for field in ALWAYS if field[0] not in self.hidden]
        spare = self.size.width - 2 - sum(cells for _, cells, _ in fields)
        labelled = any(row.labels for row in self.context.view.nodes)
        for field in WHERE_WIDE:
            if field[0] == "labels" and not labelled:
                continue
            if field[0] not in self.hidden and spare >= field[1] + 1:
                fields.append(field)
                spare -= field[1]
        return fields

    @property
    def seen_columns(self) -> frozenset[str]:
        """Columns that have room at this width."""
        return frozenset(name for name, _, _ in self.fields)

    def draw_head(self, canvas: Canvas) -> None:
        """Column heads."""
        x = 2
        for name, cells, right in self.fields:
            self.put_head(canvas, x + cells - 2 if right else x, name, right=right)
            x += cells

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """One node."""
        row = self.rows[place]
        if row.is_master:
            canvas.put(0, y, glyphs.DIAMOND, "master b")
        else:
            canvas.put(0, y, SYMBOLS[row.level], row.level)
        x = 2
        for name, cells, right in self.fields:
            if name == "memory":
                self._draw_memory(canvas, x, y, row)
            else:
                words, ink = cell(row, name)
                if right:
                    canvas.right(x + cells - 2, y, words, ink)
                else:
                    canvas.put(x, y, text.shorten(words, cells - 1), ink)
            x += cells

    @staticmethod
    def _draw_memory(canvas: Canvas, x: int, y: int, row: NodeRow) -> None:
        if not row.has_figures:
            canvas.put(x, y, text.UNKNOWN, "faint")
            return
        line(canvas, (x, y), 8, row.memory_fraction, row.hue)
        canvas.right(x + 18, y, text.memory_pair(row.memory_used, row.memory_total), "text")

    def chosen_text(self) -> str:
        """The node's id."""
        return self.rows[self.cursor].node if self.cursor < len(self.rows) else ""


def cell(row: NodeRow, name: str) -> tuple[str, str]:
    """A node's figure of one column, with its ink."""
    if name == "node":
        return text.middle(row.name, 13), f"{row.hue} b"
    if name == "status":
        word = "master" if row.is_master and row.level == "ok" else row.word
        return word, "master" if word == "master" else row.level
    if not row.has_figures and name not in ("chip", "system", "version", "labels"):
        return text.UNKNOWN, "faint"
    words = {
        "load": text.percent(row.load).strip(),
        "layers": str(row.layer_count) if row.layer_count else text.UNKNOWN,
        "applied": text.count(row.applied),
        "lag": str(row.lag),
        "chip": row.chip,
        "power": text.UNKNOWN if row.watts is None else f"{row.watts:.0f} W",
        "temp": text.UNKNOWN if row.celsius is None else f"{row.celsius:.0f}{glyphs.DEGREE}C",
        "disk": text.size(row.disk_free),
        "system": row.system,
        "version": row.version,
        "labels": row.labels,
    }[name]
    quiet = name in ("chip", "system", "version", "disk", "labels") or words in (text.UNKNOWN, "0")
    return words, "dim" if quiet else "text"


def sort_value(row: NodeRow, column: str) -> Sortable:
    """What a node is sorted by in a column; None where it is not known."""
    words = {
        "node": row.name,
        "status": row.word,
        "chip": row.chip,
        "system": row.system,
        "version": row.version,
        "labels": row.labels,
    }
    if column in words:
        return words[column] or None
    if not row.has_figures:
        return None
    return {
        "memory": round(row.memory_fraction, 2),  # as it is shown: equal rows keep their places
        "load": round(row.load, 2),
        "layers": float(row.layer_count),
        "applied": float(row.applied),
        "lag": float(row.lag),
        "power": row.watts,
        "temp": row.celsius,
        "disk": float(row.disk_free),
    }[column]
