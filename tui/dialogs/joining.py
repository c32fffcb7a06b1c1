"""Inviting a machine, and joining another cluster."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from node.config import parse_address
from node.handle import Invite
from node.model.errors import ExoctlError, UsageError
from node.model.machine import Address
from node.model.register import JoinRequest
from tui.dialogs.approval import AskDialog
from tui.shell import Shell, app_of
from tui.viewmodel import text

INVITE_SECONDS = 600.0


class InviteDialog(ModalScreen[None]):
    """A one-time code, and what to type on the other machine."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "close", "Close"),
        ("enter", "close", "Close"),
        ("y", "copy", "Copy the command"),
    ]

    def __init__(self, shell: Shell) -> None:
        super().__init__()
        self.shell = shell
        self.command = ""

    def compose(self) -> ComposeResult:
        """The code, once it is there."""
        with Vertical(classes="dialog") as box:
            box.border_title = "Invite a machine"
            box.border_subtitle = "y copies the command, esc closes"
            yield Static("asking for a code", id="code", markup=False)
            yield Static("", id="how", classes="line", markup=False)
            yield Static("", id="until", classes="quiet", markup=False)

    def on_mount(self) -> None:
        """Ask the node for a code."""
        self.shell.context.node.call(lambda node: node.invite(INVITE_SECONDS), self._answered)

    def _answered(self, result: object) -> None:
        if not self.is_attached:
            return
        if isinstance(result, ExoctlError):
            self.dismiss()
            self.shell.report(result)
        elif isinstance(result, Invite):
            peer = f" --peer {result.addresses[0]}" if result.addresses else ""
            self.command = f"exoctl cluster join {result.code}{peer}"
            left = text.duration(result.expires_at - self.shell.context.store.now)
            written = self.shell.context.written
            self.query_one("#code", Static).update(written(result.code))
            self.query_one("#how", Static).update(
                f"On the other machine:\n\n  {written(self.command)}\n\n"
                "or in the app there: J and the code."
            )
            self.query_one("#until", Static).update(f"\nGood for one machine, {left} from now.")

    def action_copy(self) -> None:
        """Copy the command."""
        if self.command:
            app_of(self).copy_to_clipboard(self.command)
            self.shell.say("copied")

    def action_close(self) -> None:
        """Close."""
        self.dismiss()


class JoinDialog(ModalScreen[None]):
    """Code and, where it can't be found by itself, the address."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "close", "Close")]

    def __init__(self, shell: Shell, argument: str) -> None:
        super().__init__()
        self.shell = shell
        self.code, _, self.address = argument.partition(" ")

    def compose(self) -> ComposeResult:
        """Two fields and two buttons."""
        with Vertical(classes="dialog") as box:
            box.border_title = "Join another cluster"
            box.border_subtitle = "esc closes"
            yield Static(
                "Code, as the other cluster shows it with i; empty asks for approval",
                classes="line",
            )
            yield Input(self.code, placeholder="XXXXX-XXXXX-XXXXX-XXXXX", id="join-code")
            yield Static("Address of one of its nodes; empty looks on the network", classes="line")
            yield Input(self.address.strip(), placeholder="host:port", id="join-address")
            yield Static("", id="join-error", classes="line", markup=False)
            yield Static(
                "This node's own log is archived. What runs here is proposed anew there.",
                classes="line quiet",
            )
            with Horizontal(classes="buttons"):
                yield Button("Close", id="close", compact=True)
                yield Button("Join", id="join", variant="primary", compact=True)

    def on_mount(self) -> None:
        """Begin with what is missing."""
        self.query_one("#join-address" if self.code else "#join-code").focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter goes on to the next field, then joins."""
        event.stop()
        if event.input.id == "join-code":
            self.query_one("#join-address").focus()
        else:
            self._join()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Join or close."""
        if event.button.id == "join":
            self._join()
        else:
            self.dismiss()

    def _join(self) -> None:
        code = self.query_one("#join-code", Input).value.strip()
        written = self.query_one("#join-address", Input).value.strip()
        peer: Address | None = None
        if written:
            try:
                peer = parse_address(written)
            except UsageError as error:
                self._complain(f"{error.failure.message}: {error.failure.remedy}")
                return
        self._complain("joining" if code else "asking")
        if not code:
            self.shell.context.node.call(lambda node: node.ask_to_join(peer), self._asked)
            return
        self.shell.context.node.call(lambda node: node.join(code, peer), self._answered)

    def _answered(self, result: object) -> None:
        if isinstance(result, ExoctlError):
            failure = result.failure
            if self.is_attached:
                self._complain(f"{failure.message}\n{failure.remedy}".rstrip())
            else:
                self.shell.report(result)
            return
        self.shell.say("joined")
        if self.is_attached:
            self.dismiss()

    def _asked(self, result: object) -> None:
        if not isinstance(result, JoinRequest):
            self._answered(result)
            return
        if self.is_attached:
            self.dismiss()
        self.shell.open_dialog(AskDialog(self.shell, result))

    def _complain(self, words: str) -> None:
        self.query_one("#join-error", Static).update(self.shell.context.written(words))

    def action_close(self) -> None:
        """Close."""
        self.dismiss()
