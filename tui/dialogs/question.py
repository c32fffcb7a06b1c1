"""A question before something is lost."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from tui.shell import Question


class ConfirmDialog(ModalScreen[bool]):
    """Enter on the safe answer changes nothing; `y` or the named button does it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("y", "answer(True)", "Yes"),
        ("n", "answer(False)", "No"),
        ("escape", "answer(False)", "No"),
        ("left", "app.focus_previous", "Other answer"),
        ("right", "app.focus_next", "Other answer"),
    ]

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        """Title in the border, the lines, two buttons; the safe one has the focus."""
        with Vertical(classes="dialog -question") as box:
            box.border_title = Content(self.question.title)  # names in it are no markup
            for line in self.question.lines:
                yield Static(line, classes="line", markup=False)
            with Horizontal(classes="buttons"):
                yield Button("Keep  n", id="no", compact=True)
                yield Button(f"{self.question.verb}  y", id="yes", variant="error", compact=True)

    def on_mount(self) -> None:
        """The safe answer has the focus."""
        self.query_one("#no", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Take the answer."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:  # noqa: FBT001 - Textual calls it by position
        """Take the answer."""
        self.dismiss(answer)
