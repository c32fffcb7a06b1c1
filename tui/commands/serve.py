"""`exoctl serve`: the app in a browser on this machine, attached to the node that runs here."""

import shlex
import sys
from typing import Annotated

import typer

from node.model.errors import UsageError
from tui.commands.console import Console
from tui.commands.settings import Settings

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
    command = shlex.join(_app_words(console.settings, f"http://{address}"))
    anyio.run(run_page, console, command, web_port, tabs)


def _app_words(settings: Settings, url: str) -> list[str]:
    """The app of one tab: attached to that node, and as the options of this command have it."""
    words = [sys.executable, "-m", "tui", "--host", url]
    if settings.state_dir:
        words += ["--state-dir", str(settings.state_dir)]
    for flag, is_said in (
        ("--read-only", settings.read_only),
        ("--ascii", settings.ascii),
        ("--no-mouse", settings.no_mouse),
        ("--no-anim", settings.no_anim),
        ("--no-color", settings.no_color),
    ):
        if is_said:
            words.append(flag)
    if settings.theme:
        words += ["--theme", settings.theme]
    return words
