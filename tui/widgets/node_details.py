"""One node in full."""

from typing import ClassVar

import msgspec

from tui.bridge.store import NODES, PLACEMENTS
from tui.paint.bars import graph
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.rows import SYMBOLS, NodeRow
from tui.widgets.painted import Parts
from tui.widgets.pane import Pane

LABEL_CELLS = 10
FIGURE_CELLS = 22
GRAPH_LINES_MAX = 4
HOT_CELSIUS = 110.0
"""The top of the graph of heat."""


class Figure(msgspec.Struct, frozen=True):
    """A figure with its last minutes."""

    label: str
    words: str
    values: tuple[float, ...]
    peak: float
    """What fills the graph."""
    hue: str
    unit: str = ""
    is_always: bool = True
    """Shown although nothing was measured yet."""

    def span(self, mean: float, highest: float) -> str:
        """Mean and highest, in the figure's own unit."""
        if self.unit:
            return f"mean {mean:.0f}, top {highest:.0f} {self.unit}"
        if self.peak == 1.0:
            return f"mean {mean:.0%}, top {highest:.0%}"
        return f"mean {mean:.0f}, top {highest:.0f}"


class NodeDetails(Pane):
    """Identity, memory, load and speed over time, shards, notes."""

    scope: ClassVar[str] = "node"
    topics: ClassVar[frozenset[str]] = frozenset((NODES, PLACEMENTS))

    @property
    def row(self) -> NodeRow | None:
        """The chosen node, else this one, else the first."""
        rows = self.context.view.nodes
        wanted = (self.context.chosen_node, self.context.view.here)
        for node in wanted:
            for row in rows:
                if row.node == node:
                    return row
        return rows[0] if rows else None

    def heading(self) -> Parts:
        """Its name."""
        row = self.row
        return [(f"{row.name} ", f"{row.hue} b")] if row else [("Node ", "text b")]

    def draw(self, canvas: Canvas) -> None:
        """From what it is to what it holds."""
        row = self.row
        if row is None:
            return
        y = self._draw_identity(canvas, row)
        if row.has_figures:
            y = self._draw_graphs(canvas, y, row)
        y = self._draw_shards(canvas, y, row)
        for note in row.notes:
            if y >= canvas.height:
                break
            words = text.shorten(f"{note.text}; {note.key}", canvas.width - 2)
            canvas.put(0, y, f"{SYMBOLS[row.level]} {words}", row.level)
            y += 1

    def _draw_identity(self, canvas: Canvas, row: NodeRow) -> int:
        record = self.context.view.state.nodes[row.node]
        machine = record.machine
        facts: list[tuple[str, str]] = [("id", row.node)]
        if machine is not None:
            cores = f"{machine.cores} cores, {text.memory(machine.memory_bytes)}"
            facts.append(("machine", f"{machine.chip}, {cores}, {row.system}"))
        addresses = ", ".join(str(address) for address in record.addresses) or text.UNKNOWN
        facts.append(("exoctl", f"{row.version or text.UNKNOWN}  listens on {addresses}"))
        for y, (label, words) in enumerate(facts):
            canvas.put(0, y, label, "dim")
            canvas.put(LABEL_CELLS, y, text.shorten(words, canvas.width - LABEL_CELLS), "text")
        return len(facts)

    def _draw_graphs(self, canvas: Canvas, y: int, row: NodeRow) -> int:
        """Every figure over the last minutes, in all the lines that are over."""
        shown = [figure for figure in self._figures(row) if figure.values or figure.is_always]
        held = sum(run.node == row.node for p in self.context.view.placements for run in p.runs)
        spare = canvas.height - y - max(1, held) - len(row.notes)
        lines = max(1, min(GRAPH_LINES_MAX, spare // len(shown)))
        gap = 1 if spare >= len(shown) * (lines + 1) and lines > 1 else 0
        for figure in shown[: max(1, spare // lines)]:
            self._draw_graph(canvas, y, figure, lines)
            y += lines + gap
        return y

    def _figures(self, row: NodeRow) -> list[Figure]:
        values = self.context.store.node_values
        memory = f"{text.memory(row.memory_used)} of {text.memory(row.memory_total)}"
        watts, celsius = values(row.node, "watts"), values(row.node, "celsius")
        warmth = f"{row.celsius:.0f}{glyphs.DEGREE}C" if row.celsius is not None else ""
        return [
            Figure("memory", memory, values(row.node, "memory"), 1.0, row.hue),
            Figure(
                row.load_label,
                text.percent(row.load).strip(),
                values(row.node, "load"),
                1.0,
                row.hue,
            ),
            Figure(
                "out",
                text.speed(row.speed) if row.speed else "idle",
                values(row.node, "speed"),
                max((*values(row.node, "speed"), 1.0)),
                row.hue,
                unit="t/s",
            ),
            Figure(
                "power",
                f"{row.watts:.0f} W" if row.watts is not None else "",
                watts,
                max((*watts, 1.0)),
                row.hue,
                unit="W",
                is_always=False,
            ),
            Figure("heat", warmth, celsius, HOT_CELSIUS, row.hue, is_always=False),
        ]

    @staticmethod
    def _draw_graph(canvas: Canvas, y: int, figure: Figure, lines: int) -> None:
        width = canvas.width - LABEL_CELLS - FIGURE_CELLS
        canvas.put(0, y, figure.label, "dim")
        shares = [value / figure.peak for value in figure.values]
        graph(canvas, (LABEL_CELLS, y), (width, lines), shares, figure.hue)
        x, bottom = LABEL_CELLS + width + 2, y + lines - 1
        canvas.put(x, bottom, text.shorten(figure.words, FIGURE_CELLS - 2), "text b")
        if lines > 1 and figure.values:
            recent = figure.values[-width:]
            words = figure.span(sum(recent) / len(recent), max(recent))
            canvas.put(x, bottom - 1, text.shorten(words, FIGURE_CELLS - 2), "faint")

    def _draw_shards(self, canvas: Canvas, y: int, row: NodeRow) -> int:
        canvas.put(0, y, "shards", "dim")
        found = [
            (placement, run)
            for placement in self.context.view.placements
            for run in placement.runs
            if run.node == row.node
        ]
        if not found:
            canvas.put(LABEL_CELLS, y, "none", "faint")
        for placement, run in found:
            if y >= canvas.height:
                break
            span = text.layers(run.first_layer, run.end_layer)
            x = canvas.put(LABEL_CELLS, y, f"{text.middle(placement.model, 24)}  ", "text")
            x = canvas.put(x, y, f"{span}  ", f"{row.hue} b")
            canvas.put(x, y, f"{run.word} {glyphs.DOT} {run.runner}", "dim")
            y += 1
        return y + (0 if found else 1)

    def chosen_text(self) -> str:
        """The node's id."""
        return self.row.node if self.row else ""
