"""Panes of columns: sorted by any of them, and those left out that nobody wants to see."""

from typing import Any, ClassVar

from textual.binding import BindingType

from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs
from tui.viewmodel.sorting import Sortable, falls_first, next_column, ordered
from tui.widgets.list_pane import ListPane
from tui.widgets.painted import Parts
from tui.widgets.pane import bindings


class TablePane(ListPane):
    """Rows in the order they come, or by a column; the cursor stays on its row."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("table")
    sortable: ClassVar[tuple[str, ...]] = ()
    """Columns it can be sorted by, in their order."""
    optional: ClassVar[tuple[str, ...]] = ()
    """Columns that can be left out."""

    @property
    def seen_columns(self) -> frozenset[str]:
        """Columns that have room at this width."""
        return frozenset(self.optional) - self.hidden

    sort_by = ""
    is_backwards = False
    _falls = False
    hidden: frozenset[str] = frozenset()

    def sort_value(self, row: Any, column: str) -> Sortable:
        """A row's value of a column."""
        raise NotImplementedError

    def in_order(self, rows: list[Any]) -> list[Any]:
        """The rows as they are to be shown."""
        if not self.sort_by:
            return rows
        values = [self.sort_value(row, self.sort_by) for row in rows]
        self._falls = falls_first(next((value for value in values if value is not None), ""))
        return ordered(
            rows, lambda row: self.sort_value(row, self.sort_by), backwards=self.is_backwards
        )

    def sort(self, column: str) -> None:
        """Sort by a column; the same once more turns the order round. Empty: as they come."""
        self.is_backwards = column == self.sort_by and bool(column) and not self.is_backwards
        self.sort_by = column
        self._put_order()

    def sort_next(self) -> None:
        """Sort by the next column that is shown."""
        shown = [name for name in self.sortable if name not in self.hidden]
        self.sort(next_column(shown, self.sort_by))

    def turn_round(self) -> None:
        """The other way round."""
        self.is_backwards = not self.is_backwards
        self._put_order()

    def _put_order(self) -> None:
        if self.count() and self._cursor_key is None:
            self._cursor_key = self.key_of(self.cursor)
        self.paint()

    def show_or_hide(self, column: str) -> None:
        """Leave a column out, or show it again."""
        self.hidden = self.hidden ^ {column}
        if self.sort_by in self.hidden:
            self.sort_by = ""
        self.paint()

    def order_parts(self) -> Parts:
        """How the rows are sorted, for the border; nothing where they are as they come."""
        if not self.sort_by:
            return []
        return [(f"{glyphs.DOT} by {self.sort_by} {self.arrow} ", "accent")]

    @property
    def arrow(self) -> str:
        """Which way the order goes."""
        return glyphs.DOWN if self._falls is not self.is_backwards else glyphs.UP

    def put_head(self, canvas: Canvas, x: int, name: str, *, right: bool = False) -> None:
        """A column's head beginning at `x`, or ending before it; the sorted one is marked."""
        is_sorted = name == self.sort_by
        ink = "accent b" if is_sorted else "faint"
        if right:
            canvas.right(x, 0, name, ink)
            end = x
        else:
            end = canvas.put(x, 0, name, ink)
        if is_sorted:
            canvas.put(end, 0, self.arrow, ink)
