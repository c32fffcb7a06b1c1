"""`exoctl serve`: the app in a browser on this machine, attached to the node that runs here."""

import shlex
import sys
from typing import Annotated

import typer

from node.model.errors import UsageError
from tui.commands.console import Console

SERVE_PORT = 52417
TABS_MAX = 8


def serve(
    console: Console,
    *,
    web_port: Annotated[
        int, typer.Option("--web-port", metavar="PORT", help="Port of the page; 0: a free one.")
    ] = SERVE_PORT,
    tabs: Annotated[
        int, typer.Option("--tabs", metavar="N", min=1, help="So many at once.")
    ] = TABS_MAX,
) -> None:
    """Show the app in a browser. It listens on loopback and needs the token in the printed address.

    Each tab is an app attached to the one node; closing it stops nothing.
    """
    import anyio

    from tui.commands.web_page import run_page

    address, _ = console.target()  # the app reads the token where this command did
    if console.settings.token:
        raise UsageError.because(
            "token_in_page",
            "a token on the command line could be read by everybody on this machine",
            "set EXOCTL_TOKEN instead",
        )
    words = [sys.executable, "-m", "tui", "--host", f"http://{address}"]
    if console.settings.state_dir:
        words += ["--state-dir", str(console.settings.state_dir)]
    if console.settings.read_only:
        words.append("--read-only")
    if console.settings.theme:
        words += ["--theme", console.settings.theme]
    anyio.run(run_page, console, shlex.join(words), web_port, tabs)
