"""Models on their way to nodes."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from tui.bridge.store import DOWNLOADS
from tui.paint.bars import line
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.matching import matcher
from tui.viewmodel.rows import SYMBOLS, DownloadRow
from tui.viewmodel.sorting import Sortable
from tui.widgets.painted import Parts
from tui.widgets.pane import bindings
from tui.widgets.table_pane import TablePane

NODE_CELLS = 9
WIDE_CELLS = 90
LINES_OF_CAUSE = 4
"""A row has at most so many lines where one has failed."""


class DownloadsPane(TablePane):
    """A row for each download; the cause below a failed one where there is room."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("downloads")
    scope: ClassVar[str] = "downloads"
    topics: ClassVar[frozenset[str]] = frozenset((DOWNLOADS,))
    sortable: ClassVar[tuple[str, ...]] = ("node", "model", "phase", "done", "size", "rate", "left")
    rows: list[DownloadRow] = []
    row_lines = 1

    def prepare(self) -> None:
        """Take the rows that match, with two lines for each where there is room."""
        matches = matcher(self._words)
        self.rows = self.in_order(
            [
                row
                for row in self.context.view.downloads
                if matches(f"{row.model} {row.name} {row.phase}")
            ]
        )
        lines = self.size.height // max(1, len(self.rows))
        self.row_lines = max(1, min(lines_wanted(self.rows, self.size.width), lines))

    def sort_value(self, row: DownloadRow, column: str) -> Sortable:
        """A download's figure or word."""
        words = {"node": row.name, "model": row.model, "phase": row.phase}
        if column in words:
            return words[column]
        return {
            "done": row.fraction,
            "size": float(row.bytes_total),
            "rate": row.bytes_per_second,
            "left": row.seconds_left,
        }[column]

    def count(self) -> int:
        """How many downloads match."""
        return len(self.rows)

    def key_of(self, place: int) -> object:
        """Node and model."""
        return (self.rows[place].node, self.rows[place].model) if place < len(self.rows) else None

    def heading(self) -> Parts:
        """Title and what is under way."""
        rows = self.context.view.downloads
        parts: Parts = [("Downloads ", "text b")]
        for word, phases in (
            ("active", ("downloading", "converting", "verifying", "resolving")),
            ("queued", ("queued", "paused")),
            ("failed", ("failed",)),
        ):
            number = sum(row.phase in phases for row in rows)
            if number:
                parts.append((f"{number} {word} ", "bad" if word == "failed" else "dim"))
        parts += self.order_parts()
        if self._words:
            parts.append((f"{glyphs.DOT} filter {self._words} ", "warn"))
        return parts

    def footing(self) -> Parts:
        """Speed of all of them together."""
        total = sum(row.bytes_per_second for row in self.context.view.downloads)
        return [(f"{text.rate(total)}", "dim")] if total else []

    def draw_empty(self, canvas: Canvas) -> None:
        """No downloads: say which models are there."""
        if not self.context.store.heard_at:
            return
        y = max(0, canvas.height // 2 - 2)
        if self._words:
            canvas.centre(y, "No download matches the filter.", "dim")
            return
        canvas.centre(y, "No downloads.", "text b")
        held = [row for row in self.context.view.models if row.whole]
        words = f"{text.plural(len(held), 'model')} on disk" if held else "No model on disk yet"
        canvas.centre(y + 1, words, "dim")
        keys = "a fetches one, 4 shows them" if held else "a fetches one"
        canvas.centre(y + 3, keys, "dim")

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """Node, model, bar, per cent, and speed with the time left or the phase."""
        row = self.rows[place]
        canvas.put(0, y, SYMBOLS[row.level], row.level)
        x = canvas.put(2, y, text.pad(text.middle(row.name, NODE_CELLS), NODE_CELLS), row.hue) + 1
        status = _status(row, canvas.width, with_cause=self.row_lines == 1)
        right = canvas.right(canvas.width, y, status, _ink(row)) - 1
        if row.phase == "failed":
            canvas.put(x, y, text.middle(row.model, right - x), "text")
            if self.row_lines > 1:
                self._draw_cause(canvas, y + 1, row)
            return
        moves = row.phase not in ("queued", "complete", "failed")
        bar_cells = max(0, min(24, right - x - 22)) if moves else 0
        if self.row_lines > 1:
            bar_cells = 0
            if moves:
                line(canvas, (2, y + 1), canvas.width - 2, row.fraction, row.hue)
        if row.phase not in ("queued", "complete"):
            right = canvas.right(right, y, text.percent(row.fraction), "text b") - 1
        if bar_cells >= 6:
            right -= bar_cells + 1
            line(canvas, (right + 1, y), bar_cells, row.fraction, row.hue)
        canvas.put(x, y, text.middle(row.model, right - x), "text")

    def _draw_cause(self, canvas: Canvas, y: int, row: DownloadRow) -> None:
        """Why it failed and what helps, over the lines that the row has."""
        for place, part in enumerate(
            text.wrap_in(_cause(row), canvas.width - 2, self.row_lines - 1)
        ):
            canvas.put(2, y + place, part, "bad")

    def chosen_text(self) -> str:
        """The model's name."""
        return self.rows[self.cursor].model if self.cursor < len(self.rows) else ""

    def open_chosen(self) -> None:
        """Go to the downloads."""
        self.context.perform("global.downloads")


def _cause(row: DownloadRow) -> str:
    return f"{row.failure}; {row.remedy}" if row.remedy else row.failure


def lines_wanted(rows: Sequence[DownloadRow], width: int) -> int:
    """How many lines each row needs for the longest cause to be read whole."""
    causes = [_cause(row) for row in rows if row.phase == "failed"]
    longest = max((len(text.wrap(words, max(8, width - 2))) for words in causes), default=1)
    return min(LINES_OF_CAUSE, 1 + longest)


def _status(row: DownloadRow, width: int, *, with_cause: bool) -> str:
    if row.phase == "complete":
        return f"{glyphs.CHECK} {text.size(row.bytes_total)}"
    if row.phase == "failed":
        again = f"retry {text.duration(row.retry_seconds)}" if row.retry_seconds else ""
        words = row.failure if with_cause and row.failure else again or "failed"
        return text.shorten(words, max(8, width - 34))
    if row.bytes_per_second <= 0:
        return f"{row.phase} {row.source}".rstrip() if row.phase == "downloading" else row.phase
    left = row.seconds_left
    time = text.duration(left) if left is not None else "?"
    words = f"{text.rate(row.bytes_per_second)} {time:>6}"
    return f"{words} {row.source}" if row.source and width >= WIDE_CELLS else words


def _ink(row: DownloadRow) -> str:
    return {"failed": "bad", "complete": "ok", "paused": "warn"}.get(row.phase, "dim")
