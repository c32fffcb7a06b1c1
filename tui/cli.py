"""The way into `exoctl`: as light as can be, so that ctrl-c ends it without a word at any time.

What it needs is loaded by `main`, while the system's own answer to ctrl-c holds: the process ends
by the signal, and nothing of ours can be half-done yet.
"""

import signal


def main() -> None:
    """Run the command of this process's arguments; never returns."""
    held = signal.getsignal(signal.SIGINT)
    is_ours = held is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tui.command_line import run

    if is_ours:
        signal.signal(signal.SIGINT, held)
    run()
