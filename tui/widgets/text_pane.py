"""Lines of inked text that scroll."""

from typing import ClassVar

from tui.context import Context
from tui.paint.canvas import Canvas
from tui.viewmodel import text
from tui.widgets.list_pane import ListPane
from tui.widgets.painted import Parts


class TextPane(ListPane):
    """Shows what it was given."""

    fades: ClassVar[bool] = False
    surface: ClassVar[str] = "raised"
    has_cursor = False

    def __init__(self, context: Context, lines: list[Parts], *, identity: str) -> None:
        super().__init__(context, identity=identity)
        self.lines = lines
        self.title_parts: Parts = []
        self.foot_parts: Parts = []

    def show(self, lines: list[Parts]) -> None:
        """Show other lines, from the first on."""
        self.lines = lines
        self.top = 0
        self.paint()

    def heading(self) -> Parts:
        """As it was set."""
        return self.title_parts

    def footing(self) -> Parts:
        """As it was set, and which lines are seen where not all are."""
        parts = list(self.foot_parts)
        if len(self.lines) > self.room:
            last = min(len(self.lines), self.top + self.room)
            parts.append((f" {self.top + 1}-{last} of {text.count(len(self.lines))}", "dim"))
        return parts

    def count(self) -> int:
        """How many lines."""
        return len(self.lines)

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """One line."""
        canvas.parts(0, y, self.lines[place], canvas.width)

    def chosen_text(self) -> str:
        """All of it."""
        return "\n".join("".join(words for words, _ in line) for line in self.lines)
