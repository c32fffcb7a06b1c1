"""The palette: every action, found by its words."""

from functools import partial

from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider

from tui.actions.action import Action
from tui.actions.catalogue import ACTIONS
from tui.shell import Shell
from tui.viewmodel import text

TITLE_CELLS, COMMAND_CELLS = 37, 16


def palette(shell: Shell) -> CommandPalette:
    """A palette that does actions of the registry."""

    class ActionProvider(Provider):
        """Actions by title and command."""

        async def discover(self) -> Hits:
            for action in ACTIONS:
                yield DiscoveryHit(
                    _label(shell, action), partial(_do, shell, action), text=action.title
                )

        async def search(self, query: str) -> Hits:
            matcher = self.matcher(query)
            for action in ACTIONS:
                label = _label(shell, action)
                score = matcher.match(label)
                if score > 0:
                    yield Hit(
                        score,
                        matcher.highlight(label),
                        partial(_do, shell, action),
                        text=action.title,
                    )

    return CommandPalette(providers=[ActionProvider], placeholder="Search every action")


def _label(shell: Shell, action: Action) -> str:
    """Title, command and keys in columns, on one line."""
    title = text.pad(text.shorten(action.title, TITLE_CELLS), TITLE_CELLS)
    command = text.pad(f":{action.command}", COMMAND_CELLS)
    return f"{title} {command} {' '.join(shell.context.keys_of(action))}"


def _do(shell: Shell, action: Action) -> None:
    shell.perform(action.id)
