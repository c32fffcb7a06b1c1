"""The `:` line and the `/` line: one field above the keys."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input, Static

from tui.actions.registry import complete
from tui.viewmodel.text import clean

HISTORY_LINES = 50


class CommandSuggester(Suggester):
    """Completes the names of commands."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        """The first command that begins so."""
        return complete(value)


class CommandField(Input):
    """Up and down walk through earlier lines; tab takes the suggestion."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("up", "recall(-1)", "Earlier line"),
        ("down", "recall(1)", "Later line"),
        ("tab", "cursor_right", "Take the suggestion"),
        ("escape", "give_up", "Close"),
    ]

    class Left(Message):
        """The line was given up."""

    def __init__(self) -> None:
        super().__init__(
            id="command-field",
            suggester=CommandSuggester(),
            compact=True,
            select_on_focus=False,  # what is typed goes behind the beginning, not in its place
        )
        self.history: list[str] = []
        self._place = 0

    def remember(self, line: str) -> None:
        """Keep a line for the up key."""
        if line and (not self.history or self.history[-1] != line):
            self.history = [*self.history, line][-HISTORY_LINES:]
        self._place = len(self.history)

    def action_recall(self, step: int) -> None:
        """Show an earlier or later line."""
        self._place = max(0, min(len(self.history), self._place + step))
        line = self.history[self._place] if self._place < len(self.history) else ""
        self.value = line
        self.cursor_position = len(line)

    def action_give_up(self) -> None:
        """Close without doing anything."""
        self.post_message(self.Left())


class CommandLine(Horizontal):
    """Hidden until it is opened with `:` or `/`."""

    def __init__(self) -> None:
        super().__init__(id="command-line")
        self.sign = ":"

    def compose(self) -> ComposeResult:
        """Sign, field, hint."""
        yield Static(":", id="command-sign", markup=False)
        yield CommandField()
        yield Static("", id="command-hint", markup=False)

    @property
    def field(self) -> CommandField:
        """Where the line is typed."""
        return self.query_one(CommandField)

    def open(self, sign: str, line: str, hint: str = "") -> None:
        """Show the field and put the cursor behind the beginning."""
        self.sign = sign
        self.query_one("#command-sign", Static).update(sign)
        self.query_one("#command-hint", Static).update(clean(hint))
        field = self.field
        field.value = line
        field.cursor_position = len(line)
        self.display = True
        field.focus()

    def close(self) -> None:
        """Hide the field."""
        self.display = False
