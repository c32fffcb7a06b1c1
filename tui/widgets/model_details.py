"""One model in full: what it is, where it lies, and where it would fit now."""

from typing import ClassVar

from tui.bridge.store import DOWNLOADS, NODES, PLACEMENTS
from tui.paint.bars import stacked
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.rows import SYMBOLS, Level, ModelRow, NodeRow
from tui.widgets.painted import Parts
from tui.widgets.pane import Pane

LABEL_CELLS = 10
NAME_CELLS = 14
BAR_CELLS = 24
CAUSE_LINES_MIN = 2


class ModelDetails(Pane):
    """Facts above, a line for each node below."""

    scope: ClassVar[str] = "models"
    topics: ClassVar[frozenset[str]] = frozenset((DOWNLOADS, PLACEMENTS, NODES))

    @property
    def row(self) -> ModelRow | None:
        """The chosen model, else the first."""
        rows = self.context.view.models
        chosen = self.context.chosen_model
        return next((row for row in rows if row.model == chosen), rows[0] if rows else None)

    def heading(self) -> Parts:
        """Its name and kind."""
        row = self.row
        if row is None:
            return [("Model ", "text b")]
        parts: Parts = [(f"{row.model} ", "text b")]
        return [*parts, (f"{glyphs.DOT} {row.architecture} ", "dim")] if row.architecture else parts

    def footing(self) -> Parts:
        """What can be done with it."""
        keys = (("enter", "places it"), ("v", "verifies it"), ("D", "deletes it"))
        return [
            part for key, does in keys for part in ((f"{key} ", "accent b"), (f"{does}  ", "dim"))
        ]

    def draw(self, canvas: Canvas) -> None:
        """From what it is to where it fits."""
        row = self.row
        if row is None:
            return
        y = self._draw_facts(canvas, row)
        y = self._draw_note(canvas, y, row)
        y = self._draw_instances(canvas, y, row) + (0 if row.note else 1)
        canvas.put(0, y, "on nodes", "dim")
        for node in self.context.view.nodes:
            if y >= canvas.height:
                break
            self._draw_node(canvas, y, row, node)
            y += 1

    def _draw_note(self, canvas: Canvas, y: int, row: ModelRow) -> int:
        """What is wrong with it and what helps, in as many lines as the nodes leave over."""
        if not row.note:
            return y
        ink: Level = "bad" if row.remedy else "warn"
        words = f"{row.note}; {row.remedy}" if row.remedy else row.note
        most = max(CAUSE_LINES_MIN, canvas.height - y - 3 - len(self.context.view.nodes))
        lines = text.wrap_in(words, canvas.width - LABEL_CELLS, most)
        canvas.put(0, y, f"{SYMBOLS[ink]} {'cause' if row.remedy else 'note'}", ink)
        for place, line in enumerate(lines):
            canvas.put(LABEL_CELLS, y + place, line, ink)
        return y + len(lines)

    def _draw_facts(self, canvas: Canvas, row: ModelRow) -> int:
        size = text.size(row.bytes_on_disk)
        facts = [f"{size} on disk" if row.whole else f"{size} in all"]
        if not row.bytes_on_disk:
            facts = ["size not known yet"]
        if row.weight_bytes:
            facts = [f"{size} on disk, {text.size(row.weight_bytes)} of weights"]
        if row.parameters:
            facts.append(f"{text.parameters(row.parameters)} parameters")
            facts.append(f"{row.bits} bits" if row.bits else "full precision")
            facts.append(f"{row.layer_count} layers")
            facts.append(f"{row.context_tokens:,} tokens of context")
        canvas.put(0, 0, "model", "dim")
        words = f" {glyphs.DOT} ".join(facts)
        canvas.put(LABEL_CELLS, 0, text.shorten(words, canvas.width - LABEL_CELLS), "text")
        canvas.put(0, 1, "fits" if row.parameters else "state", "dim")
        fits = {"one node": "on one node", "cannot be cut": "only in parts, but can't be cut"}
        words = fits.get(row.fits, row.fits)
        words = f"over {words}" if words.endswith(" nodes") else words
        x = canvas.put(LABEL_CELLS, 1, f"{SYMBOLS[row.level]} {words}", f"{row.level} b")
        if row.parameters:
            canvas.put(x, 1, ", by the memory that is free now; n shows every way", "faint")
        return 2

    def _draw_instances(self, canvas: Canvas, y: int, row: ModelRow) -> int:
        canvas.put(0, y, "runs", "dim")
        found = [each for each in self.context.view.placements if each.model == row.model]
        if not found:
            canvas.put(LABEL_CELLS, y, "nowhere", "faint")
            return y + 1
        for each in found[: max(1, canvas.height - y - 2)]:
            x = canvas.put(LABEL_CELLS, y, f"{SYMBOLS[each.level]} {each.word}", f"{each.level} b")
            where = ", ".join(run.name for run in each.runs)
            speed = f"  {text.speed(each.speed)}" if each.speed else ""
            x = canvas.put(x + 2, y, text.shorten(f"on {where}", canvas.width - x - 16), "text")
            canvas.put(x, y, speed, "text b")
            y += 1
        return y

    def _draw_node(self, canvas: Canvas, y: int, row: ModelRow, node: NodeRow) -> None:
        x = canvas.put(LABEL_CELLS, y, text.middle(node.name, NAME_CELLS - 1), f"{node.hue} b")
        x = LABEL_CELLS + NAME_CELLS
        place = row.places.get(node.node, glyphs.EM_DASH)
        inks = {glyphs.CHECK: "ok b", glyphs.EM_DASH: "faint", glyphs.CROSS: "bad b"}
        canvas.put(x, y, place, inks.get(place, "busy"))
        x += 7
        if not node.has_figures or not node.memory_total:
            canvas.put(x, y, "no figures", "faint")
            return
        room = canvas.width - x
        if room >= BAR_CELLS + 34:
            self._draw_memory(canvas, (x, y), row, node)
            x += BAR_CELLS + 2
        free = node.memory_total - node.memory_used
        words = f"{text.memory(free):>8} free"
        x = canvas.put(x, y, words, "text") + 2
        if not row.weight_bytes:
            return
        lacks = row.weight_bytes - free
        verdict = f"short {text.memory(lacks)}" if lacks > 0 else "fits alone"
        canvas.put(x, y, text.shorten(verdict, canvas.width - x), "warn" if lacks > 0 else "ok")

    @staticmethod
    def _draw_memory(canvas: Canvas, at: tuple[int, int], row: ModelRow, node: NodeRow) -> None:
        """What is used now, and behind it what the model's weights would take."""
        used = node.memory_fraction * BAR_CELLS
        comes = row.weight_bytes / node.memory_total * BAR_CELLS
        stacked(canvas, at, BAR_CELLS, [(used, node.hue), (comes, "accent")])
