"""Generations: those under way, and the last that ended."""

from collections.abc import Mapping
from typing import ClassVar

from textual.binding import BindingType

from tui.bridge.store import PLACEMENTS
from tui.paint.bars import line
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.matching import matcher
from tui.viewmodel.rows import SYMBOLS, RequestRow
from tui.viewmodel.sorting import Sortable
from tui.widgets.painted import Parts
from tui.widgets.pane import bindings
from tui.widgets.table_pane import TablePane

FIGURES = [("age", 7), ("tok/s", 8), ("first", 8), ("out", 8), ("prompt", 9)]


class RequestsPane(TablePane):
    """A row for each request."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("placements")
    scope: ClassVar[str] = "requests"
    topics: ClassVar[frozenset[str]] = frozenset((PLACEMENTS,))
    head_lines = 1
    bulk: ClassVar[Mapping[str, str]] = {"placements.cancel": "cancel"}
    sortable: ClassVar[tuple[str, ...]] = (
        *("request", "model", "phase"),
        *(name for name, _ in reversed(FIGURES)),
    )
    optional: ClassVar[tuple[str, ...]] = tuple(name for name, _ in reversed(FIGURES))
    rows: list[RequestRow] = []

    def prepare(self) -> None:
        """Take the rows that match."""
        matches = matcher(self._words)
        self.rows = self.in_order(
            [
                row
                for row in self.context.view.requests
                if matches(f"{row.model} {row.request} {row.word} {row.taken_by}")
            ]
        )

    def sort_value(self, row: RequestRow, column: str) -> Sortable:
        """A request's figure or word."""
        words = {"request": row.request, "model": row.model, "phase": row.word}
        if column in words:
            return words[column]
        return {
            "prompt": float(row.prompt_tokens),
            "out": float(row.output_tokens),
            "first": row.first_token_seconds or None,
            "tok/s": row.speed or None,
            "age": row.age_seconds,
        }[column]

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
        parts += self.order_parts()
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
        canvas.centre(y + 1, f"7 opens a chat; programs use {where}", "dim")

    @property
    def _columns(self) -> tuple[int, int, list[tuple[str, int]]]:
        """Cells of request id and model, and the figures that fit beside them."""
        width = self.size.width
        shown = [figure for figure in FIGURES if figure[0] not in self.hidden]
        if width >= 100:
            return 19, 24, shown
        if width >= 72:
            return 12, 18, [figure for figure in shown if figure[0] in ("out", "tok/s", "age")]
        return 12, 16, shown[:1]

    @property
    def seen_columns(self) -> frozenset[str]:
        """Columns that have room at this width."""
        return frozenset(name for name, _ in self._columns[2])

    def draw_head(self, canvas: Canvas) -> None:
        """Column heads."""
        request, model, figures = self._columns
        self.put_head(canvas, 2, "request")
        self.put_head(canvas, 2 + request, "model")
        self.put_head(canvas, 2 + request + model, "phase")
        right = canvas.width - 1
        for name, cells in figures:
            self.put_head(canvas, right, name, right=True)
            right -= cells

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """One request."""
        row = self.rows[place]
        request, model, figures = self._columns
        canvas.put(0, y, SYMBOLS[row.level], row.level)
        canvas.put(2, y, text.shorten(row.request, request - 1), "text")
        canvas.put(2 + request, y, text.middle(row.model, model - 1), "text")
        phase = 2 + request + model
        canvas.put(phase, y, row.word, f"{row.level} b")
        right = canvas.width - 1
        for name, cells in figures:
            words, ink = _figure(row, name)
            canvas.right(right, y, words, ink)
            right -= cells
        self._draw_progress(canvas, (phase + 10, y), right - phase - 10, row)

    @staticmethod
    def _draw_progress(canvas: Canvas, at: tuple[int, int], room: int, row: RequestRow) -> None:
        x, y = at
        if row.failure:
            canvas.put(x, y, text.shorten(row.failure, max(0, room)), "bad")
        elif row.word == "prefill" and row.prompt_tokens and room > 12:
            fraction = row.prefilled_tokens / row.prompt_tokens
            width = min(room - 6, 20)
            line(canvas, at, width, fraction, "accent")
            canvas.put(x + width + 1, y, text.percent(fraction).strip(), "dim")
        elif room > 14:
            canvas.put(x, y, text.shorten(f"on {row.taken_by}", room), row.hue)

    def chosen_text(self) -> str:
        """The request's id."""
        return self.rows[self.cursor].request if self.cursor < len(self.rows) else ""


def _figure(row: RequestRow, name: str) -> tuple[str, str]:
    first = row.first_token_seconds
    return {
        "age": (text.duration(row.age_seconds), "dim"),
        "tok/s": (f"{row.speed:.1f}" if row.speed else text.UNKNOWN, "text b"),
        "first": (text.duration(first) if first else text.UNKNOWN, "text"),
        "out": (text.count(row.output_tokens), "text"),
        "prompt": (text.count(row.prompt_tokens), "dim"),
    }[name]
