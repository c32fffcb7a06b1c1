"""What handlers may ask of the main screen."""

from collections.abc import Callable
from typing import Any, Protocol

from textual.app import App
from textual.screen import ModalScreen, Screen

from node.model.errors import ExoctlError
from tui.context import Context, Doer
from tui.dialogs.question import Question
from tui.widgets.pane import Pane

Handler = Callable[[str], None]
"""Does an action with its argument."""


def app_of(screen: Screen[Any]) -> App[Any]:
    """The app of a screen, with a type (Textual leaves its parameter open)."""
    return screen.app  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


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
