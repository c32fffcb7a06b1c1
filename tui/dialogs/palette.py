"""The palette: every action, found by its words."""

from functools import partial

from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider

from tui.actions.action import Action
from tui.actions.catalogue import ACTIONS
from tui.shell import Shell


def palette(shell: Shell) -> CommandPalette:
    """A palette that does actions of the registry."""

    class ActionProvider(Provider):
        """Actions by title and command."""

        async def discover(self) -> Hits:
            for action in ACTIONS:
                yield DiscoveryHit(
                    _label(action), partial(_do, shell, action), help=_keys(shell, action)
                )

        async def search(self, query: str) -> Hits:
            matcher = self.matcher(query)
            for action in ACTIONS:
                label = _label(action)
                score = matcher.match(label)
                if score > 0:
                    yield Hit(
                        score,
                        matcher.highlight(label),
                        partial(_do, shell, action),
                        text=label,
                        help=_keys(shell, action),
                    )

    return CommandPalette(providers=[ActionProvider], placeholder="Search every action")


def _label(action: Action) -> str:
    return f"{action.title} (:{action.command})"


def _keys(shell: Shell, action: Action) -> str:
    return " ".join(shell.context.keys_of(action))


def _do(shell: Shell, action: Action) -> None:
    shell.perform(action.id)
