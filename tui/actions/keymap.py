"""Keys as the person wants them: the registry's own, with those of the settings over them."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tui.actions.action import GLOBAL, KEY_NAMES, Action
from tui.actions.catalogue import ACTIONS, SCOPE_TITLES

KEYS_MAX = 8
"""Keys of one action."""
_WORDS = {shown: key for key, shown in KEY_NAMES.items()}
MAY_SHARE = frozenset(
    frozenset(pair)
    for pair in (
        ("chat.stop", "global.back"),
        ("downloads.pause", "global.mark"),
        ("downloads.add", "global.act"),
        ("models.pull", "global.act"),
        ("events.kinds", "global.ping"),
    )
)
"""The pane's own meaning of a key holds in it: its rows can't be marked, an answer is stopped."""
LIST_FREE = ("list", "topology", "chat")
"""Scopes in which the keys of lists do not act."""
TABLES = ("table", "nodes", "placements", "models", "downloads")
"""Scopes in which the keys of tables act."""


class Keymap(msgspec.Struct, frozen=True, kw_only=True):
    """Keys by action, and what was wrong with those that were asked for."""

    keys: Mapping[str, tuple[str, ...]] = {}
    faults: tuple[str, ...] = ()

    def of(self, action: Action) -> tuple[str, ...]:
        """The keys of an action."""
        return self.keys.get(action.id, action.keys)


def read_keymap(table: Mapping[str, str | Sequence[str]]) -> Keymap:
    """Keys as they stand in the settings; what can't be taken is left out, and said in words."""
    known = {action.id for action in ACTIONS}
    taken: dict[str, tuple[str, ...]] = {}
    faults: list[str] = []
    for name, given in table.items():
        keys = tuple(key_of(word) for word in ([given] if isinstance(given, str) else given))
        if name not in known:
            faults.append(f"keys: there is no action {name!r} (`exoctl config keys` lists them)")
        elif not keys or len(keys) > KEYS_MAX or not all(_is_key(key) for key in keys):
            faults.append(f'keys: {name} = {given!r} is no key: write "x", "ctrl+x" or "f2"')
        else:
            taken[name] = keys
    wanted = Keymap(keys=taken)
    for name, other, key in clashes(wanted):
        loser = name if name in taken else other
        if taken.pop(loser, None):
            faults.append(f"keys: {key!r} of {name} is also that of {other}: {loser} keeps its own")
    return Keymap(keys=taken, faults=tuple(faults))


def key_of(word: str) -> str:
    """A key as Textual names it: `#` is `number_sign`, `^p` is `ctrl+p`, `esc` is `escape`."""
    word = word.strip()
    if word.startswith("^") and len(word) == 2:
        return f"ctrl+{word[1].lower()}"
    return _WORDS.get(word, word)


def _is_key(key: str) -> bool:
    if len(key) == 1:
        return key.isalnum()
    return key.isascii() and key.replace("_", "").replace("+", "").isalnum()


def clashes(keymap: Keymap) -> Iterator[tuple[str, str, str]]:
    """Two actions with one key where both act, and the key."""
    everywhere = [action for action in ACTIONS if action.scope == GLOBAL]
    lists = [action for action in ACTIONS if action.scope == "list"]
    tables = [action for action in ACTIONS if action.scope == "table"]
    for scope in SCOPE_TITLES:
        here = [action for action in ACTIONS if action.scope == scope and scope != GLOBAL]
        extra = [] if scope in LIST_FREE else lists
        if scope in TABLES and scope != "table":
            extra = [*extra, *tables]
        held: dict[str, Action] = {}
        for action in [*everywhere, *extra, *here]:
            for key in keymap.of(action):
                other = held.setdefault(key, action)
                if other is not action and frozenset((other.id, action.id)) not in MAY_SHARE:
                    yield action.id, other.id, key
