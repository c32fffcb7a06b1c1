"""What handlers may ask of the main screen."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from textual.app import App
from textual.screen import ModalScreen, Screen

from node.model.command import Accepted, Command, Refused
from node.model.errors import ExoctlError
from tui.context import Context, Doer
from tui.viewmodel import text
from tui.widgets.pane import Pane

Handler = Callable[[str], None]
"""Does an action with its argument."""


def app_of(screen: Screen[Any]) -> App[Any]:
    """The app of a screen, with a type (Textual leaves its parameter open)."""
    return screen.app  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen, in words and numbers, and the verb that does it."""

    title: str
    lines: tuple[str, ...]
    verb: str

    def drawn(self, written: Callable[[str], str]) -> "Question":
        """The same in words that may be drawn."""
        return Question(
            title=written(self.title).replace("\n", " "),
            lines=tuple(written(line) for line in self.lines),
            verb=self.verb,
        )


class Shell(Doer, Protocol):
    """The main screen, as handlers see it."""

    context: Context

    def pane_for(self, scope: str) -> Pane | None:
        """The pane that an action of this scope acts on; its view is shown where it is not yet."""
        ...

    def show_view(self, name: str) -> None:
        """Show a view."""
        ...

    def prompt(self, line: str, hint: str = "", sign: str = ":") -> None:
        """Open the command line with a beginning."""
        ...

    def ask(self, question: Question, on_yes: Callable[[], None]) -> None:
        """Ask; do it where the answer is yes."""
        ...

    def open_dialog(self, dialog: ModalScreen[None]) -> None:
        """Put a dialog over the view."""
        ...

    def report(self, error: ExoctlError) -> None:
        """Say what failed and what helps."""
        ...


def submit(shell: Shell, command: Command, done: str) -> None:
    """Have a command decided; say `done`, or why not."""

    def answered(result: object) -> None:
        if isinstance(result, Accepted):
            shell.say(f"{done} (index {text.count(result.index)})")
        elif isinstance(result, Refused):
            shell.report(ExoctlError(result.failure))
        elif isinstance(result, ExoctlError):
            shell.report(result)

    shell.context.node.call(lambda node: node.submit(command), answered)
