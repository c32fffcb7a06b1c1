"""Write the pages that are made of the code: `make docs`; a test compares them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import typer  # noqa: E402

from tui.actions.action import Action, key_text  # noqa: E402
from tui.actions.catalogue import ACTIONS, SCOPE_TITLES  # noqa: E402
from tui.commands.registry import build  # noqa: E402
from tui.commands.settings import ALL_OPTIONS  # noqa: E402


def pages() -> dict[str, str]:
    """By file name."""
    return {"keys.md": keys_page(), "commands.md": commands_page()}


def keys_page() -> str:
    """Every action of the app: its keys, and its command behind `:`."""
    lines = [
        "# Keys of the app",
        "",
        "Made of the app's registry of actions by `make docs`. Each can be given other keys:",
        '`exoctl config set keys.placements.stop "ctrl+d"`; `exoctl config keys` lists what holds.',
    ]
    for scope, title in SCOPE_TITLES.items():
        lines += ["", f"## {title}", "", "| key | does | command |", "|---|---|---|"]
        lines += [_row(action) for action in ACTIONS if action.scope == scope]
    return "\n".join(lines) + "\n"


def _row(action: Action) -> str:
    keys = " ".join(f"`{key_text(key)}`" for key in action.keys)
    argument = f" {action.argument}" if action.argument else ""
    return f"| {keys} | {action.title} | `:{action.command}{argument}` |"


def commands_page() -> str:
    """Every command with its own options; those that all share once."""
    root: Any = typer.main.get_command(build())
    lines = [
        "# Commands",
        "",
        "Made of the command line itself by `make docs`; `exoctl COMMAND --help` says the same.",
        "",
        "Exit codes: 0 done, 1 failed or degraded (`diff`: different), 2 usage or unreachable,",
        "3 not found, 4 conflict or busy, 5 refused, 6 no fit, 124 not in time, 130 interrupted.",
    ]
    shared = [each for each in root.params if each.name in ALL_OPTIONS]
    for panel in dict.fromkeys(each.rich_help_panel for each in shared):
        lines += ["", f"## {panel}", ""]
        lines += [_option(each) for each in shared if each.rich_help_panel == panel]
    for name in sorted(root.commands):
        lines += _command(f"exoctl {name}", root.commands[name])
    return "\n".join(lines) + "\n"


def _command(path: str, command: Any) -> Iterator[str]:
    below: dict[str, Any] = getattr(command, "commands", {})
    words = (command.help or "").strip().splitlines()
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    usage = " ".join((path, *(each.metavar or each.name.upper() for each in arguments)))
    yield from ("", f"{'##' if path.count(' ') == 1 else '###'} `{usage}`", "")
    yield from (line.strip() for line in words)
    options = [
        each
        for each in command.params
        if each.param_type_name == "option" and each.name not in (*ALL_OPTIONS, "help")
    ]
    explained = [each for each in arguments if each.help]
    if explained or options:
        yield ""
    yield from (f"- `{each.metavar or each.name.upper()}`: {each.help}" for each in explained)
    yield from map(_option, options)
    for name in sorted(below):
        yield from _command(f"{path} {name}", below[name])


def _option(option: Any) -> str:
    names = ", ".join((*option.opts, *option.secondary_opts))
    metavar = (option.metavar or "").strip()
    return f"- `{f'{names} {metavar}'.strip()}`: {option.help}"


def main() -> int:
    """Write them beside this file."""
    for name, content in pages().items():
        (HERE / name).write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
