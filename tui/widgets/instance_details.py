"""The chosen instance in full."""

from typing import ClassVar

from tui.bridge.store import NODES, PLACEMENTS
from tui.paint.bars import runs
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.rows import SYMBOLS, PlacementRow, Run
from tui.widgets.painted import Parts
from tui.widgets.pane import Pane

LABEL_CELLS = 10
CAUSE_LINES = 4
"""What went wrong is read whole; at most so many lines of it."""


class InstanceDetails(Pane):
    """Status with its cause, layers, runners, figures."""

    scope: ClassVar[str] = "instance"
    topics: ClassVar[frozenset[str]] = frozenset((PLACEMENTS, NODES))

    @property
    def row(self) -> PlacementRow | None:
        """The chosen instance, else the first."""
        rows = self.context.view.placements
        chosen = [row for row in rows if row.instance == self.context.instance]
        return next(iter(chosen or rows), None)

    def heading(self) -> Parts:
        """Model and id."""
        row = self.row
        if row is None:
            return [("Instance ", "text b")]
        return [(f"{row.model} ", "text b"), (f"{glyphs.DOT} {row.instance} ", "dim")]

    def draw(self, canvas: Canvas) -> None:
        """From its word to its runners."""
        row = self.row
        if row is None:
            canvas.centre(canvas.height // 2, "Nothing is placed: n places a model.", "dim")
            return
        y = self._draw_status(canvas, row)
        pieces = [(float(run.layer_count), run.hue) for run in row.runs]
        loaded = row.layers_loaded / row.layer_count if row.layer_count else 0.0
        share = 1.0 if row.ready else 0.0 if row.level == "bad" else loaded
        canvas.put(0, y, "layers", "dim")
        runs(canvas, (LABEL_CELLS, y), canvas.width - LABEL_CELLS, pieces, share)
        y += 1
        for run in row.runs:
            if y >= canvas.height:
                return
            self._draw_run(canvas, y, run)
            y += 1
        self._draw_figures(canvas, y, row)

    @staticmethod
    def _draw_status(canvas: Canvas, row: PlacementRow) -> int:
        canvas.put(0, 0, "status", "dim")
        x = canvas.put(LABEL_CELLS, 0, f"{SYMBOLS[row.level]} {row.word}", f"{row.level} b")
        canvas.put(x + 2, 0, text.shorten(row.detail, canvas.width - x - 2), "dim")
        y = 1
        for label, words, ink in (("cause", row.failure, "bad"), ("remedy", row.remedy, "text")):
            if words:
                canvas.put(0, y, label, "dim")
                room = canvas.width - LABEL_CELLS
                for part in text.wrap_in(words, room, CAUSE_LINES):
                    canvas.put(LABEL_CELLS, y, part, ink)
                    y += 1
        return y

    @staticmethod
    def _draw_run(canvas: Canvas, y: int, run: Run) -> None:
        x = canvas.put(LABEL_CELLS, y, f"{text.middle(run.name, 12):<13}", f"{run.hue} b")
        span = text.layers(run.first_layer, run.end_layer)
        x = canvas.put(x, y, f"{span:<10}", run.hue)
        x = canvas.put(x, y, f"{run.word:<12}", "text")
        canvas.put(x, y, run.runner, "faint")

    @staticmethod
    def _draw_figures(canvas: Canvas, y: int, row: PlacementRow) -> None:
        now = text.speed(row.speed) if row.speed else "idle"
        lately = f", {text.speed(row.last_speed)} last" if row.last_speed and not row.speed else ""
        speed = now + lately
        if row.predicted_speed:
            speed += f" {glyphs.DOT} predicted {text.speed(row.predicted_speed)}"
        via = f"{row.strategy} over {row.transport}" if row.transport else row.strategy
        first = text.UNKNOWN
        if row.first_token_seconds:
            first = f"token after {text.seconds(row.first_token_seconds)}"
            if row.last_prompt_tokens:
                first += f" for {row.last_prompt_tokens:,} of prompt"
            if row.predicted_first_seconds:
                first += f" {glyphs.DOT} predicted {text.seconds(row.predicted_first_seconds)}"
        facts = (
            ("speed", speed),
            ("first", first),
            ("requests", f"{row.running} running, {row.queued} queued"),
            ("memory", f"{text.memory(row.memory_bytes)} promised"),
            ("context", f"{row.context_tokens:,} tokens {glyphs.DOT} {via}"),
            ("placed", f"{text.duration(row.up_seconds)} ago  {row.policy}".rstrip()),
        )
        for label, words in facts:
            if y >= canvas.height:
                return
            canvas.put(0, y, label, "dim")
            canvas.put(LABEL_CELLS, y, text.shorten(words, canvas.width - LABEL_CELLS), "text")
            y += 1

    def chosen_text(self) -> str:
        """The instance's id."""
        return self.row.instance if self.row else ""
