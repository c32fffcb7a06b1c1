"""The actions: what each is called, which keys and which command it has, where it acts."""

import msgspec

from tui.actions.action import Action
from tui.actions.catalogue import ACTIONS

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}
BY_COMMAND: dict[str, Action] = {
    word: action for action in ACTIONS for word in (action.command, *action.aliases)
}


class Parsed(msgspec.Struct, frozen=True):
    """A command line that was understood."""

    action: Action
    argument: str


def in_scope(scope: str) -> list[Action]:
    """The actions of one scope, in their order."""
    return [action for action in ACTIONS if action.scope == scope]


def parse(line: str) -> Parsed | str:
    """Read a command line (without the colon); returns what is wrong with it where it is."""
    word, _, argument = line.strip().partition(" ")
    argument = argument.strip()
    if not word:
        return "type a command, such as overview, place or quit"
    action = BY_COMMAND.get(word)
    if action is None:
        found = sorted({a.command for w, a in BY_COMMAND.items() if w.startswith(word)})
        if len(found) != 1:
            near = f": {', '.join(found[:6])}" if found else ""
            return f"no command is called {word!r}{near}"
        action = BY_COMMAND[found[0]]
    if argument and not action.argument:
        return f"{action.command} takes no argument"
    return Parsed(action, argument)


def complete(line: str) -> str | None:
    """The rest of the first command that begins like the line."""
    word = line.strip()
    if not word or " " in line:
        return None
    for command in sorted(BY_COMMAND):
        if command.startswith(word) and command != word:
            return command
    return None
