"""What an action is."""

from typing import TypedDict, Unpack

import msgspec

GLOBAL = "global"
KEY_NAMES = {
    "number_sign": "#",
    "question_mark": "?",
    "colon": ":",
    "slash": "/",
    "minus": "-",
    "comma": ",",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "escape": "esc",
    "shift+tab": "shift tab",
    "less_than_sign": "<",
    "greater_than_sign": ">",
}


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a person can do."""

    id: str
    """`scope.verb`."""
    title: str
    """What it does, in few words, as help and palette show it."""
    command: str
    """The word after the colon."""
    keys: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    hint: str = ""
    """The word beside the key on the last line; empty keeps it off that line."""
    argument: str = ""
    """What follows the command, such as `MODEL`; empty where nothing may."""
    is_writing: bool = False
    """It changes the cluster: not done where the app is read-only."""
    is_priority: bool = False
    """Its keys act even while text is being typed."""

    @property
    def scope(self) -> str:
        """Where its keys act: everywhere, or in one kind of pane."""
        return self.id.partition(".")[0]


class Traits(TypedDict, total=False):
    """What an action may be told beside its names and keys."""

    aliases: tuple[str, ...]
    hint: str
    argument: str
    is_writing: bool
    is_priority: bool


def action(identity: str, title: str, command: str, *keys: str, **traits: Unpack[Traits]) -> Action:
    """An action, written in the order in which help shows it."""
    return Action(id=identity, title=title, command=command, keys=keys, **traits)


def key_text(key: str) -> str:
    """A key as it is written for people: `ctrl+p` is `^p`."""
    if key.startswith("ctrl+"):
        return "^" + key.removeprefix("ctrl+")
    return KEY_NAMES.get(key, key)
