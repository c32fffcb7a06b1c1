"""Generations: those under way, and the last that ended."""

from typing import ClassVar

from textual.binding import BindingType

from tui.bridge.store import PLACEMENTS
from tui.paint.bars import line
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.matching import matcher
from tui.viewmodel.rows import SYMBOLS, RequestRow
from tui.widgets.list_pane import ListPane
from tui.widgets.painted import Parts
from tui.widgets.pane import bindings


class RequestsPane(ListPane):
    """A row for each request."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("placements")
    scope: ClassVar[str] = "requests"
    topics: ClassVar[frozenset[str]] = frozenset((PLACEMENTS,))
    head_lines = 1
    rows: list[RequestRow] = []

    def prepare(self) -> None:
        """Take the rows that match."""
        matches = matcher(self._words)
        self.rows = [
            row
            for row in self.context.view.requests
            if matches(f"{row.model} {row.request} {row.word} {row.taken_by}")
        ]

    def count(self) -> int:
        """How many match."""
        return len(self.rows)

    def key_of(self, place: int) -> object:
        """The request."""
        return self.rows[place].request if place < len(self.rows) else None

    def moved(self) -> None:
        """It can be cancelled."""
        if self.cursor < len(self.rows):
            self.context.chosen_request = self.rows[self.cursor].request

    def heading(self) -> Parts:
        """Title, number, filter."""
        running = sum(row.level in ("busy", "idle") for row in self.context.view.requests)
        parts: Parts = [("Requests ", "text b"), (f"{running} under way ", "dim")]
        if self._words:
            parts.append((f"{glyphs.DOT} filter {self._words} ", "warn"))
        return parts

    def footing(self) -> Parts:
        """How one is ended."""
        return [("D ", "accent b"), ("cancels", "dim")] if self.rows and self.has_focus else []

    def draw_empty(self, canvas: Canvas) -> None:
        """Nobody asks anything."""
        if not self.context.store.heard_at:
            return
        y = max(0, canvas.height // 2 - 1)
        canvas.centre(y, "No requests.", "text b")
        local = self.context.view.local
        where = f"the API on {local.api}" if local and local.api else "the API"
        canvas.centre(y + 1, f"7 chats here; programs use {where}", "dim")

    def draw_head(self, canvas: Canvas) -> None:
        """Column heads."""
        canvas.put(2, 0, "request", "faint")
        canvas.put(21, 0, "model", "faint")
        canvas.put(44, 0, "phase", "faint")
        right = canvas.width
        for name, cells in (("age", 7), ("tok/s", 8), ("first", 8), ("out", 8), ("prompt", 9)):
            canvas.right(right, 0, name, "faint")
            right -= cells

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """One request."""
        row = self.rows[place]
        canvas.put(0, y, SYMBOLS[row.level], row.level)
        canvas.put(2, y, text.shorten(row.request, 18), "text")
        canvas.put(21, y, text.middle(row.model, 22), "text")
        canvas.put(44, y, row.word, f"{row.level} b")
        right = canvas.width
        speed = f"{row.speed:.1f}" if row.speed else text.UNKNOWN
        first = text.duration(row.first_token_seconds) if row.first_token_seconds else text.UNKNOWN
        for words, cells, ink in (
            (text.duration(row.age_seconds), 7, "dim"),
            (speed, 8, "text b"),
            (first, 8, "text"),
            (text.count(row.output_tokens), 8, "text"),
            (text.count(row.prompt_tokens), 9, "dim"),
        ):
            canvas.right(right, y, words, ink)
            right -= cells
        room = right - 54
        if row.failure:
            canvas.put(54, y, text.shorten(row.failure, max(0, room)), "bad")
        elif row.word == "prefill" and row.prompt_tokens and room > 8:
            fraction = row.prefilled_tokens / row.prompt_tokens
            line(canvas, (54, y), min(room - 6, 20), fraction, "accent")
            canvas.put(55 + min(room - 6, 20), y, text.percent(fraction).strip(), "dim")
        elif room > 14:
            canvas.put(54, y, text.shorten(f"on {row.taken_by}", room), row.hue)

    def chosen_text(self) -> str:
        """The request's id."""
        return self.rows[self.cursor].request if self.cursor < len(self.rows) else ""
