"""What a person may choose of the app's look and manners, told at its start."""

import msgspec

from tui.actions.keymap import Keymap


class AppOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Choices of the command line for the Textual app."""

    read_only: bool = False
    """Nothing in the app changes the cluster."""
    ascii: bool = False
    """Draw with ASCII alone."""
    animations: bool = True
    mouse: bool = True
    theme: str = ""
    """Empty takes the app's own default."""
    keymap: Keymap = Keymap()
    """The person's own keys."""
    faults: tuple[str, ...] = ()
    """What was wrong in the settings: said once, at the start."""
    source: str = ""
    """What the figures come from, where that is no living node: said instead of `live`."""
    view: str = "overview"
    """The view that is shown first."""
