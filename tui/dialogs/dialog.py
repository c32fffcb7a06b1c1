"""The base of dialogs that hold a pane: the pane's keys act, escape closes."""

from typing import ClassVar

from textual.binding import BindingType
from textual.screen import ModalScreen

from tui.widgets.list_pane import ListPane

SLIVER_CELLS = 5
"""What shows of the view at either side of a dialog is either more than this, or nothing."""


def width_of(wanted: int, screen: int) -> int:
    """So wide; or as the screen, where only torn frames would show beside the dialog."""
    return wanted if screen - wanted > 2 * SLIVER_CELLS else screen


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
