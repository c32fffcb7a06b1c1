"""Joining by approval: the same six digits on both screens, and a yes on each."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from node.model.errors import ExoctlError
from node.model.register import JoinRequest
from tui.shell import Shell
from tui.viewmodel.joins import waiting_requests
from tui.viewmodel.text import grouped


class DigitsDialog(ModalScreen[None]):
    """Six digits, what is asked about them, and two answers of which the safe one has the focus."""

    title_words: ClassVar[str]
    esc_words: ClassVar[str]
    no_label: ClassVar[str]
    yes_label: ClassVar[str]
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "leave", "Leave it"),
        ("y", "answer(True)", "Yes"),
        ("n", "answer(False)", "No"),
    ]

    def __init__(self, shell: Shell, request: JoinRequest) -> None:
        super().__init__()
        self.shell = shell
        self.request = request

    def question(self) -> str:
        """What is asked."""
        raise NotImplementedError

    def further(self) -> str:
        """What else is to be known."""
        return ""

    def compose(self) -> ComposeResult:
        """Digits, question, answers."""
        written = self.shell.context.written
        with Vertical(classes="dialog -question") as box:
            box.border_title = self.title_words
            box.border_subtitle = self.esc_words
            yield Static(grouped(self.request.code), id="code", markup=False)
            yield Static(written(self.question()), id="ask-words", classes="line", markup=False)
            if self.further():
                yield Static(self.further(), classes="line quiet", markup=False)
            with Horizontal(classes="buttons"):
                yield Button(self.no_label, id="no", compact=True)
                yield Button(self.yes_label, id="yes", variant="primary", compact=True)

    def on_mount(self) -> None:
        """The safe answer has the focus."""
        self.query_one("#no", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Take the answer."""
        self.action_answer(event.button.id == "yes")

    def action_answer(self, is_yes: bool) -> None:  # noqa: FBT001 - Textual calls it by position
        """Do what the answer says."""
        raise NotImplementedError

    def action_leave(self) -> None:
        """Answer nothing."""
        self.dismiss()


class RequestsDialog(DigitsDialog):
    """On a member: the machine that has waited longest; let it in, or send it away."""

    title_words = "A machine wants to join"
    esc_words = "esc decides later"
    no_label, yes_label = "Deny  n", "Let in  y"

    def __init__(self, shell: Shell) -> None:
        found = waiting_requests(shell.context.view.registers)
        super().__init__(shell, found[0][1])
        self.others = len(found) - 1

    def question(self) -> str:
        """Who asks."""
        request = self.request
        return (
            f"{request.name} ({request.node[:12]}) at {request.address} asks to be let in."
            f" Let it in only if its own screen shows these digits."
        )

    def further(self) -> str:
        """How many wait behind it."""
        return f"{self.others} more wait after it." if self.others else ""

    def action_answer(self, is_yes: bool) -> None:  # noqa: FBT001 - as above
        """Decide."""
        request, shell = self.request, self.shell

        def answered(result: object) -> None:
            if isinstance(result, ExoctlError):
                shell.report(result)
            elif is_yes:
                shell.say(f"{request.name} comes in once its own side has confirmed the code")
            else:
                shell.say(f"{request.name} was denied")

        shell.context.node.call(lambda node: node.judge_join(request.id, approve=is_yes), answered)
        self.dismiss()


class AskDialog(DigitsDialog):
    """On the machine that asks: the digits, and whether the member shows the same."""

    title_words = "Join by approval"
    esc_words = "esc withdraws"
    no_label, yes_label = "No  n", "The same  y"
    is_confirmed = False

    def question(self) -> str:
        """Who was asked."""
        request = self.request
        return (
            f"{request.name} at {request.address} was asked: there `A` lets this node in."
            f" Does its screen show the same digits?"
        )

    def action_leave(self) -> None:
        """Withdraw."""
        self.action_answer(False)  # noqa: FBT003 - as above

    def action_answer(self, is_yes: bool) -> None:  # noqa: FBT001 - as above
        """Confirm and wait, or withdraw."""
        if is_yes and self.is_confirmed:
            return
        request, shell = self.request, self.shell
        shell.context.node.call(
            lambda node: node.finish_join(request.id, matches=is_yes),
            self._joined if is_yes else self._withdrawn,
        )
        if not is_yes:
            self.dismiss()
            return
        self.is_confirmed = True
        words = f"Waiting for {request.name} to let this node in."
        self.query_one("#ask-words", Static).update(shell.context.written(words))

    def _joined(self, result: object) -> None:
        if isinstance(result, ExoctlError):
            self.shell.report(result)
        else:
            self.shell.say("joined")
        if self.is_attached:
            self.dismiss()

    def _withdrawn(self, result: object) -> None:
        if isinstance(result, ExoctlError) and not self.is_confirmed:
            self.shell.report(result)
        elif not self.is_confirmed:
            self.shell.say("withdrawn: nothing was joined")
