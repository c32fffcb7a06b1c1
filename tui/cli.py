"""The way into `exoctl`: as light as can be, so that ctrl-c ends it without a word at any time.

What it needs is loaded by `main`, while the system's own answer to ctrl-c holds: the process ends
by the signal, and nothing of ours can be half-done yet. `_signal` is what is behind `signal`,
without the enumerations whose making takes as long as all that comes before.
"""

import os
import sys

TYPE_CHECKING = False  # what `typing` says too, which takes long to load
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal


def main() -> None:
    """Run the command of this process's arguments; never returns."""
    held = _signal.getsignal(_signal.SIGINT)
    is_ours = held is _signal.default_int_handler
    if is_ours:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    fill_missing_streams()
    from tui.command_line import run

    if is_ours:
        _signal.signal(_signal.SIGINT, held)
    run()


def fill_missing_streams() -> None:
    """Open the null device where stdin, stdout or stderr was closed; before all other files.

    Else the next file or socket would get its number, and be written to by whoever prints.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - for good
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
