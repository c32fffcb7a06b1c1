"""The base of dialogs that hold a pane: the pane's keys act, escape closes."""

from typing import ClassVar

from textual.binding import BindingType
from textual.screen import ModalScreen

from tui.widgets.list_pane import ListPane


class Dialog(ModalScreen[None]):
    """List keys act on the pane that has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "close", "Close")]

    def action_act(self, action_id: str) -> None:
        """Do an action of the registry's `list` scope; every other one waits for the dialog."""
        scope, _, verb = action_id.partition(".")
        if scope != "list" or not isinstance(self.focused, ListPane):
            return
        if verb == "open":
            self.focused.open_chosen()
        else:
            self.focused.move(verb)

    def action_close(self) -> None:
        """Close the dialog."""
        self.dismiss()
