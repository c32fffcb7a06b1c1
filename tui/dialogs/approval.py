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


class RequestsDialog(ModalScreen[None]):
    """On a member: the machine that has waited longest; let it in, or send it away."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "close", "Later"),
        ("y", "judge(True)", "Let in"),
        ("n", "judge(False)", "Deny"),
    ]

    def __init__(self, shell: Shell) -> None:
        super().__init__()
        self.shell = shell
        found = waiting_requests(shell.context.view.registers)
        self.request: JoinRequest = found[0][1]
        self.others = len(found) - 1

    def compose(self) -> ComposeResult:
        """Who asks, the digits, and two answers; the safe one has the focus."""
        written = self.shell.context.written
        request = self.request
        with Vertical(classes="dialog -question") as box:
            box.border_title = "A machine wants to join"
            box.border_subtitle = "esc decides later"
            yield Static(grouped(request.code), id="code", markup=False)
            yield Static(
                written(
                    f"{request.name} ({request.node[:12]}) at {request.address} asks to be let in."
                    f" Let it in only if its own screen shows these digits."
                ),
                classes="line",
                markup=False,
            )
            if self.others:
                yield Static(f"{self.others} more wait after it.", classes="line quiet")
            with Horizontal(classes="buttons"):
                yield Button("Deny  n", id="no", compact=True)
                yield Button("Let in  y", id="yes", variant="primary", compact=True)

    def on_mount(self) -> None:
        """The safe answer has the focus."""
        self.query_one("#no", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Take the answer."""
        self.action_judge(event.button.id == "yes")

    def action_judge(self, approve: bool) -> None:  # noqa: FBT001 - Textual calls it by position
        """Decide."""
        request, shell = self.request, self.shell

        def answered(result: object) -> None:
            if isinstance(result, ExoctlError):
                shell.report(result)
            elif approve:
                shell.say(f"{request.name} comes in once its own side has confirmed the code")
            else:
                shell.say(f"{request.name} was denied")

        shell.context.node.call(lambda node: node.judge_join(request.id, approve=approve), answered)
        self.dismiss()

    def action_close(self) -> None:
        """Decide later."""
        self.dismiss()


class AskDialog(ModalScreen[None]):
    """On the machine that asks: the digits, and whether the member shows the same."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "answer(False)", "Withdraw"),
        ("y", "answer(True)", "The same"),
        ("n", "answer(False)", "Not the same"),
    ]

    def __init__(self, shell: Shell, request: JoinRequest) -> None:
        super().__init__()
        self.shell = shell
        self.request = request
        self.is_confirmed = False

    def compose(self) -> ComposeResult:
        """The digits, and two answers; the safe one has the focus."""
        written = self.shell.context.written
        request = self.request
        with Vertical(classes="dialog -question") as box:
            box.border_title = "Join by approval"
            box.border_subtitle = "esc withdraws"
            yield Static(grouped(request.code), id="code", markup=False)
            yield Static(
                written(
                    f"{request.name} at {request.address} was asked: there `A` lets this node in."
                    f" Does its screen show the same digits?"
                ),
                id="ask-words",
                classes="line",
                markup=False,
            )
            with Horizontal(classes="buttons"):
                yield Button("No  n", id="no", compact=True)
                yield Button("The same  y", id="yes", variant="primary", compact=True)

    def on_mount(self) -> None:
        """The safe answer has the focus."""
        self.query_one("#no", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Take the answer."""
        self.action_answer(event.button.id == "yes")

    def action_answer(self, matches: bool) -> None:  # noqa: FBT001 - Textual calls it by position
        """Confirm and wait, or withdraw."""
        if matches and self.is_confirmed:
            return
        request, shell = self.request, self.shell
        shell.context.node.call(
            lambda node: node.finish_join(request.id, matches=matches),
            self._joined if matches else self._withdrawn,
        )
        if not matches:
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
