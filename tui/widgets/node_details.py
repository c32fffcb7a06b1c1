"""One node in full."""

from typing import ClassVar

from tui.bridge.rates import History
from tui.bridge.store import NODES, PLACEMENTS
from tui.paint.bars import graph, stacked
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.rows import SYMBOLS, NodeRow
from tui.widgets.painted import Parts
from tui.widgets.pane import Pane

LABEL_CELLS = 10


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
            y = self._draw_memory(canvas, y, row)
            held = sum(run.node == row.node for p in self.context.view.placements for run in p.runs)
            spare = canvas.height - y - max(1, held) - len(row.notes)
            lines = max(1, min(5, spare // 2))
            y = self._draw_history(canvas, y, (row, row.load_label, lines))
            y = self._draw_history(canvas, y, (row, "out", lines))
        y = self._draw_shards(canvas, y, row)
        for note in row.notes:
            if y >= canvas.height:
                break
            words = text.shorten(note, canvas.width - 2)
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

    @staticmethod
    def _draw_memory(canvas: Canvas, y: int, row: NodeRow) -> int:
        figure = f"{text.memory(row.memory_used)} of {text.memory(row.memory_total)}"
        width = min(60, canvas.width - LABEL_CELLS - len(figure) - 2)
        canvas.put(0, y, "memory", "dim")
        stacked(canvas, (LABEL_CELLS, y), width, [(row.memory_fraction * width, row.hue)])
        canvas.put(LABEL_CELLS + width + 2, y, figure, "text b")
        return y + 1

    def _draw_history(self, canvas: Canvas, y: int, what: tuple[NodeRow, str, int]) -> int:
        row, label, lines = what
        store = self.context.store
        if label == "out":
            history: History | None = store.speed_history.get(row.node)
            figure = text.speed(row.speed) if row.speed else "idle"
            peak = max(history.peak if history else 0.0, 1.0)
        else:
            history = store.load_history.get(row.node)
            figure, peak = text.percent(row.load).strip(), 1.0
        values = [value / peak for value in history.shown(store.now)] if history else []
        width = min(60, canvas.width - LABEL_CELLS - 14)
        canvas.put(0, y + lines - 1, label, "dim")
        graph(canvas, (LABEL_CELLS, y), (width, lines), values, row.hue)
        canvas.put(LABEL_CELLS + width + 2, y + lines - 1, figure, "text b")
        return y + lines

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
