"""`exoctl` itself: the Textual app, with a node in it or attached to one that runs."""

import sys

from node.config import config_file, environment_value, read_config_file
from node.io.node_lock import read_lock
from node.model.errors import UnreachableError, UsageError
from tui.actions.keymap import read_keymap
from tui.app_options import AppOptions
from tui.commands.console import Console, parse_url
from tui.commands.contexts_file import chosen_context
from tui.commands.up import check_state_directory


def launch(console: Console) -> int:
    """Open the app and return its exit code.

    Raises:
        UsageError: this is no terminal that an app can be drawn on.
    """
    check_terminal()
    settings = console.settings
    options = options_of(console)
    config = settings.config()
    if settings.host:
        from tui.app import run_app

        return run_app(None, parse_url(settings.host), config.api_token, options)
    chosen = chosen_context(settings.cluster)
    if chosen is not None:
        from tui.app import run_app

        return run_app(None, parse_url(chosen.host), settings.token or chosen.token, options)
    record = read_lock(config.state_directory)
    if record is not None and record.api is None:
        raise UnreachableError.because(
            "no_api",
            f"the node {record.name} (process {record.process_id}) runs here without an API",
            "end it, or start it without --api-port -1",
        )
    from tui.app import run_app

    if record is not None:
        return run_app(None, record.api, config.api_token, options)
    check_state_directory(config)
    return run_app(config, None, "", options)


def options_of(console: Console) -> AppOptions:
    """How the app is to look, by the options and the terminal."""
    settings = console.settings
    file = read_config_file(config_file())
    return AppOptions(
        read_only=settings.read_only or file.app.read_only,
        ascii=settings.ascii or file.app.ascii or not _speaks_utf8(),
        theme=settings.theme or file.app.theme,
        mouse=file.app.mouse and not settings.no_mouse,
        animations=file.app.animations and not settings.no_anim,
        view=file.app.view,
        keymap=read_keymap(file.keys),
    )


def check_terminal() -> None:
    """Refuse where no app can be drawn.

    Raises:
        UsageError: stdin or stdout is no terminal, or TERM says that it can do nothing.
    """
    if environment_value("TEXTUAL_DRIVER"):
        return  # `exoctl serve` draws it on a page
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        problem = "this is no terminal, so there is nothing to draw the app on"
    elif environment_value("TERM") in ("dumb", ""):
        problem = f"TERM is {environment_value('TERM')!r}: the app can't be drawn on it"
    else:
        return
    raise UsageError.because(
        "no_terminal",
        problem,
        "`exoctl --no-ui` runs the node without it, `exoctl status` asks one that runs",
    )


def _speaks_utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") in ("utf8", "utf8sig")
