"""Instances: how each stands, its layers over the nodes, its speed."""

from collections.abc import Mapping
from typing import ClassVar

from textual.binding import BindingType

from tui.bridge.store import DOWNLOADS, NODES, PLACEMENTS
from tui.paint.bars import runs
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.matching import matcher
from tui.viewmodel.rows import SYMBOLS, PlacementRow
from tui.widgets.list_pane import ListPane
from tui.widgets.painted import Parts
from tui.widgets.pane import bindings

LINES = 4
SHORT_LINES = 1
CAUSE_LINES = 2


class PlacementsPane(ListPane):
    """One block of lines for each instance; one line each where the pane is low."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("placements")
    scope: ClassVar[str] = "placements"
    topics: ClassVar[frozenset[str]] = frozenset((PLACEMENTS, NODES, DOWNLOADS))

    bulk: ClassVar[Mapping[str, str]] = {
        "placements.stop": "stop",
        "placements.restart": "restart",
    }

    def prepare(self) -> None:
        """Take the rows that match, and as many lines for each as there is room for."""
        matches = matcher(self._words)
        self.rows = [
            row
            for row in self.context.view.placements
            if matches(f"{row.model} {row.instance} {row.word}")
        ]
        if self.context.instance is not None:
            self._cursor_key = self.context.instance
        tall = LINES * max(1, len(self.rows)) <= self.size.height + 1
        self.row_lines = LINES if tall else SHORT_LINES

    rows: list[PlacementRow] = []
    row_lines = LINES

    def count(self) -> int:
        """How many instances match."""
        return len(self.rows)

    def key_of(self, place: int) -> object:
        """The instance."""
        return self.rows[place].instance if place < len(self.rows) else None

    @property
    def chosen(self) -> PlacementRow | None:
        """The instance under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def moved(self) -> None:
        """Show the ring of the instance under the cursor."""
        if self.chosen is not None:
            self.context.instance = self.chosen.instance
            self.context.mark(frozenset((PLACEMENTS,)))

    def heading(self) -> Parts:
        """Title, number, filter."""
        parts: Parts = [("Placements ", "text b"), (f"{len(self.rows)} ", "dim")]
        if self._words:
            parts.append((f"{glyphs.DOT} filter {self._words} ", "warn"))
        return parts

    def footing(self) -> Parts:
        """What all of them do together."""
        rows = self.context.view.placements
        running = sum(row.running for row in rows)
        queued = sum(row.queued for row in rows)
        if not rows:
            return []
        return [(f"{text.plural(running, 'request')} {glyphs.DOT} {queued} queued ", "dim")]

    def draw_empty(self, canvas: Canvas) -> None:
        """Nothing is placed: say what is at hand and which key places it."""
        if not self.context.store.heard_at:
            return
        y = max(0, canvas.height // 2 - 2)
        if self._words:
            canvas.centre(y, "No placement matches the filter.", "dim")
            return
        canvas.centre(y, "Nothing is running.", "text b")
        canvas.centre(y + 1, text.shorten(self._at_hand(), canvas.width), "dim")
        hint: Parts = [("n", "accent b"), (" places a model", "dim")]
        canvas.parts((canvas.width - 16) // 2, y + 3, hint)

    def _at_hand(self) -> str:
        """Which models could be placed, else why there is none."""
        view = self.context.view
        whole = [row for row in view.models if row.whole]
        ready = [row.model for row in whole if row.level == "ok"]
        if ready:
            return f"On disk: {f' {glyphs.DOT} '.join(ready[:2])}"
        if whole:
            return f"On disk: {whole[0].model}, but {whole[0].fits} of memory"
        if any(row.phase == "complete" for row in view.downloads):
            return "A model has just come; it is being looked at."
        coming = [row for row in view.downloads if row.level == "busy"]
        if coming:
            share = text.percent(coming[0].fraction).strip()
            return f"{coming[0].model} is {coming[0].phase}: {share}"
        return "No model lies on a node yet."

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """Name and word; the layer bar; the ranges; the figures or the cause."""
        row = self.rows[place]
        self._draw_first(canvas, y, row)
        if self.row_lines == 1:
            return
        loaded = row.layers_loaded / row.layer_count if row.layer_count else 0.0
        pieces = [(float(run.layer_count), run.hue) for run in row.runs]
        share = 1.0 if row.ready else 0.0 if row.level == "bad" else loaded
        spans = runs(canvas, (2, y + 1), canvas.width - 2, pieces, share)
        for (x, width), run in zip(spans, row.runs, strict=True):
            span = text.layers(run.first_layer, run.end_layer)
            label = next(
                (words for words in (f"{run.name} {span}", span, run.name) if len(words) < width),
                "",
            )
            canvas.put(x, y + 2, label, run.hue)
        if row.level == "bad" or (row.failure and row.level == "warn"):
            words = row.failure or row.detail
            for line, part in enumerate(text.wrap_in(words, canvas.width - 2, CAUSE_LINES)):
                canvas.put(2, y + 2 + line, text.pad(part, canvas.width - 2), row.level)

    def _draw_first(self, canvas: Canvas, y: int, row: PlacementRow) -> None:
        canvas.put(0, y, SYMBOLS[row.level], row.level)
        right = canvas.width
        if row.speed:
            right = canvas.right(right, y, text.speed(row.speed), "text b") - 2
        elif row.detail and row.level != "bad":
            room = max(12, canvas.width - len(row.model) - len(row.word) - 6)
            right = canvas.right(right, y, text.shorten(row.detail, room), "dim") - 2
        right = canvas.right(right, y, row.word, f"{row.level} b") - 2
        name = text.middle(row.model, max(8, right - 2))
        x = canvas.put(2, y, name, "text b")
        extra = f"{row.running} running, {row.queued} queued" if row.running else ""
        if row.level == "bad" and self.row_lines == 1:
            canvas.put(x + 2, y, text.shorten(row.failure, max(0, right - x - 2)), "bad")
        elif x + 2 + len(extra) < right:
            canvas.put(x + 2, y, extra, "dim")

    def chosen_text(self) -> str:
        """The instance's id."""
        return self.chosen.instance if self.chosen else ""

    def open_chosen(self) -> None:
        """Go to the instance's page."""
        self.context.perform("global.placements")
