"""Which columns a table shows."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from tui.context import Context
from tui.dialogs.dialog import Dialog, width_of
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs
from tui.widgets.list_pane import ListPane
from tui.widgets.painted import Parts
from tui.widgets.table_pane import TablePane

WIDTH = 50


class ColumnList(ListPane):
    """A row for each column that can be left out."""

    fades: ClassVar[bool] = False
    surface: ClassVar[str] = "raised"

    def __init__(self, context: Context, table: TablePane) -> None:
        super().__init__(context, identity="columns", classes="dialog-pane")
        self.table = table

    def heading(self) -> Parts:
        """What is asked."""
        optional = frozenset(self.table.optional)
        wanted = len(optional - self.table.hidden)
        seen = len(self.table.seen_columns & optional)
        parts: Parts = [("Columns ", "text b"), (f"{wanted} of {len(optional)} ", "dim")]
        return parts if seen == wanted else [*parts, (f"{glyphs.DOT} {seen} seen ", "warn")]

    def footing(self) -> Parts:
        """The keys."""
        keys = (("space", "shows or hides"), ("s", "sorts"), ("esc", "closes"))
        return [
            part for key, words in keys for part in ((f"{key} ", "accent b"), (f"{words}  ", "dim"))
        ]

    def count(self) -> int:
        """How many columns."""
        return len(self.table.optional)

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """A check mark, the name, and whether the rows are sorted by it."""
        name = self.table.optional[place]
        is_shown = name not in self.table.hidden
        canvas.put(
            1, y, glyphs.CHECK if is_shown else glyphs.EM_DASH, "ok b" if is_shown else "faint"
        )
        canvas.put(4, y, name, "text b" if is_shown else "dim")
        if is_shown and name not in self.table.seen_columns:
            canvas.put(16, y, self._why_not(name), "warn")
        if name == self.table.sort_by:
            canvas.right(canvas.width - 1, y, f"sorted {self.table.arrow}", "accent")

    def _why_not(self, name: str) -> str:
        """Why a column that is wanted is not seen."""
        if name == "labels" and not any(row.labels for row in self.context.view.nodes):
            return "no node has a label"
        return "no room at this width"

    def open_chosen(self) -> None:
        """Show the column, or leave it out."""
        self.table.show_or_hide(self.table.optional[self.cursor])
        self.paint()

    def sort_chosen(self) -> None:
        """Sort by the column."""
        name = self.table.optional[self.cursor]
        if name in self.table.sortable and name not in self.table.hidden:
            self.table.sort(name)
            self.paint()


class ColumnsDialog(Dialog):
    """The table changes at once; there is nothing to confirm."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("space", "change", "Show or hide"),
        ("s", "sort", "Sort by it"),
        ("o", "close", "Close"),
    ]

    def __init__(self, context: Context, table: TablePane) -> None:
        super().__init__()
        self.pane = ColumnList(context, table)

    def compose(self) -> ComposeResult:
        """The list."""
        yield self.pane

    def on_mount(self) -> None:
        """As high as is needed."""
        self.pane.styles.width = width_of(WIDTH, self.size.width)
        self.pane.styles.height = min(self.pane.count() + 2, self.size.height - 4)
        self.pane.focus()

    def action_change(self) -> None:
        """Show the column, or leave it out."""
        self.pane.open_chosen()

    def action_sort(self) -> None:
        """Sort by it."""
        self.pane.sort_chosen()
