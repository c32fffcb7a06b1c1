"""One of several."""

from collections.abc import Callable
from typing import ClassVar

import msgspec
from textual.app import ComposeResult

from tui.context import Context
from tui.dialogs.dialog import Dialog
from tui.paint.canvas import Canvas
from tui.viewmodel import text
from tui.widgets.list_pane import ListPane
from tui.widgets.painted import Parts


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What can be chosen."""

    key: str
    label: str
    note: str = ""


class ChoicePane(ListPane):
    """A row for each choice."""

    fades: ClassVar[bool] = False
    surface: ClassVar[str] = "raised"

    def __init__(
        self, context: Context, title: str, choices: list[Choice], chosen: Callable[[str], None]
    ) -> None:
        super().__init__(context, identity="choices", classes="dialog-pane")
        self.title_text = title
        self.choices = choices
        self._chosen = chosen

    def heading(self) -> Parts:
        """What is asked."""
        return [(f"{self.title_text} ", "text b")]

    def footing(self) -> Parts:
        """The keys."""
        return [
            ("enter ", "accent b"),
            ("takes it  ", "dim"),
            ("esc ", "accent b"),
            ("closes", "dim"),
        ]

    def count(self) -> int:
        """How many choices."""
        return len(self.choices)

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """Label and note."""
        choice = self.choices[place]
        x = canvas.put(1, y, text.middle(choice.label, canvas.width - 4), "text b") + 2
        room = canvas.width - x - 1
        canvas.right(canvas.width - 1, y, text.shorten(choice.note, max(0, room)), "dim")

    def open_chosen(self) -> None:
        """Take the row."""
        self._chosen(self.choices[self.cursor].key)


class ChooserDialog(Dialog):
    """Calls back with the key of what was chosen."""

    def __init__(
        self, context: Context, title: str, choices: list[Choice], take: Callable[[str], None]
    ) -> None:
        super().__init__()
        self.pane = ChoicePane(context, title, choices, self._take)
        self._callback = take

    def compose(self) -> ComposeResult:
        """The list."""
        yield self.pane

    def on_mount(self) -> None:
        """As high as is needed."""
        self.pane.styles.height = min(len(self.pane.choices) + 2, self.size.height - 4)
        self.pane.focus()

    def _take(self, key: str) -> None:
        self.dismiss()
        self._callback(key)
