"""Panes of rows with a cursor, and panes that follow what comes in."""

from collections.abc import Mapping
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs
from tui.viewmodel.matching import hits, matcher
from tui.widgets.pane import Pane, bindings

WHEEL_ROWS = 3


class ListPane(Pane):
    """Rows under a head, one of them chosen. The cursor stays on its row when rows move."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")
    head_lines: int = 0
    row_lines: int = 1
    has_cursor: bool = True

    bulk: ClassVar[Mapping[str, str]] = {}
    """What can be done with marked rows: the action's id, and its verb."""

    cursor = 0
    top = 0
    _words = ""
    marks: frozenset[object] = frozenset()
    """Keys of the marked rows."""

    def mark_row(self) -> bool:
        """Mark the row under the cursor, or no longer; False where rows can't be marked."""
        if not self.bulk or not self.count():
            return False
        self.marks = self.marks ^ {self.key_of(self.cursor)}
        self.move("down")
        return True

    def marked(self) -> list[str]:
        """Keys of the marked rows that are still there, in their order."""
        return [
            str(key) for place in range(self.count()) if (key := self.key_of(place)) in self.marks
        ]

    def count(self) -> int:
        """How many rows there are now."""
        raise NotImplementedError

    def key_of(self, place: int) -> object:
        """What a row is known by when rows move."""
        return place

    def draw_head(self, canvas: Canvas) -> None:
        """Draw the column heads."""

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """Draw one row."""
        raise NotImplementedError

    def draw_empty(self, canvas: Canvas) -> None:
        """Draw the page that stands where there is no row."""

    def prepare(self) -> None:
        """Make the rows, before they are counted and drawn."""

    _cursor_key: object = None

    @property
    def room(self) -> int:
        """How many rows are visible."""
        return max(1, (self.size.height - self.head_lines) // self.row_lines)

    def draw(self, canvas: Canvas) -> None:
        """Draw head and visible rows."""
        self.prepare()
        total = self.count()
        if total == 0:
            self.draw_empty(canvas)
            return
        self._keep_cursor(total)
        if self.has_cursor and self.has_focus and self._cursor_key is None:
            self._cursor_key = self.key_of(self.cursor)
            self.moved()  # what the cursor is on is chosen, moved or not
        self.draw_head(canvas)
        for place in range(self.top, min(total, self.top + self.room)):
            y = self.head_lines + (place - self.top) * self.row_lines
            self.draw_row(canvas, y, place)
            if self._words:
                self._mark_hits(canvas, y)
            if self.marks and self.key_of(place) in self.marks:
                canvas.put(0, y, glyphs.LEFT_BAR, "accent b")
                for line in range(self.row_lines):
                    canvas.ground(y + line, "track")
            if place == self.cursor and self.has_cursor and self.has_focus:
                for line in range(self.row_lines):
                    canvas.ground(y + line, "cursor")

    def _mark_hits(self, canvas: Canvas, y: int) -> None:
        """Show what the filter found; a name that was shortened may hide it."""
        for line in range(y, min(canvas.height, y + self.row_lines)):
            for first, end in hits(self._words, canvas.line(line)):
                canvas.underline(line, first, end)

    def _keep_cursor(self, total: int) -> None:
        if self._cursor_key is not None and (
            self.cursor >= total or self.key_of(self.cursor) != self._cursor_key
        ):
            for place in range(total):
                if self.key_of(place) == self._cursor_key:
                    self.cursor = place
                    break
        self.cursor = max(0, min(self.cursor, total - 1))
        if self.has_cursor:
            self.top = min(self.top, self.cursor)
            self.top = max(self.top, self.cursor - self.room + 1)
        self.top = max(0, min(self.top, total - self.room))

    def move(self, verb: str) -> None:
        """Move the cursor: `up`, `down`, `page_up`, `page_down`, `top`, `bottom`."""
        total = self.count()
        if not total:
            return
        steps = {
            "up": -1,
            "down": 1,
            "page_up": -self.room,
            "page_down": self.room,
            "top": -total,
            "bottom": total,
        }
        if self.has_cursor:
            self.cursor = max(0, min(total - 1, self.cursor + steps[verb]))
            self._cursor_key = self.key_of(self.cursor)
            self.moved()
        else:
            self.top = max(0, min(total - self.room, self.top + steps[verb]))
        self.paint()

    def step_round(self, step: int) -> bool:
        """Move the cursor on, from the last row to the first; False where there is no row."""
        total = self.count()
        if not total or not self.has_cursor:
            return False
        place = (self.cursor + step) % total
        if step in (-1, 1) and abs(place - self.cursor) == 1:
            self.move("down" if place > self.cursor else "up")
        else:
            self.move("bottom" if place > self.cursor else "top")
        return True

    def moved(self) -> None:
        """The cursor is on another row."""

    def set_filter(self, words: str) -> bool:
        """Show only rows that match. Without words all are shown again, those around the row under
        the cursor first.

        Raises:
            ValueError: a regular expression can't be read.
        """
        matcher(words)
        key = self.key_of(self.cursor) if self.count() else None
        self.take_filter(words)
        if words or key is None:
            self.cursor = self.top = 0
        else:
            self._show_around(key)
        self.paint()
        return True

    def take_filter(self, words: str) -> None:
        """Rows are made by these words from now on."""
        self._words = words

    def _show_around(self, key: object) -> None:
        """Put the cursor on the row that it was on, in the middle of its neighbours."""
        self._cursor_key = key
        self.prepare()
        self._keep_cursor(self.count())
        self.top = max(0, self.cursor - self.room // 2)

    @property
    def filter_words(self) -> str:
        """The filter that is set."""
        return self._words

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll by the wheel."""
        event.stop()
        for _ in range(WHEEL_ROWS):
            self.move("up")

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll by the wheel."""
        event.stop()
        for _ in range(WHEEL_ROWS):
            self.move("down")

    def on_click(self, event: events.Click) -> None:
        """Choose the row under the pointer; open it on a double click."""
        offset = event.get_content_offset(self)
        if offset is None or not self.has_cursor:
            return
        place = self.top + (offset.y - self.head_lines) // self.row_lines
        if offset.y >= self.head_lines and place < self.count():
            self.cursor = place
            self._cursor_key = self.key_of(place)
            self.moved()
            self.paint()
            if event.chain > 1:
                self.open_chosen()

    def on_focus(self) -> None:
        """Show the cursor."""
        self.paint()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.paint()
