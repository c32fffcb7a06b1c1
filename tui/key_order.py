"""Keys typed ahead: each waits until the one before was taken, and what that opens is there.

Textual sends a key to the focused widget and lets it rise from there. A second key on its way would
meet the dialog that the first one closes, and be lost, or the view that the first one leaves, and
do something else there than the person meant.
"""

import collections
from collections.abc import Callable
from functools import partial
from typing import Any

from textual import events
from textual.app import App
from textual.dom import DOMNode

KEYS_MAX = 256
"""Keys kept; a longer paste outside of a text field loses its end."""
PATIENCE_SECONDS = 3.0
"""After so long the next key goes on, whatever became of the one before."""
LOOK_SECONDS = 0.01
LOOKS_MAX = 300
"""So often it is looked whether what the key opened is there."""


class KeyOrder:
    """One key at a time, in the order typed."""

    def __init__(self, app: App[Any], is_ready: Callable[[], bool]) -> None:
        self._app = app
        self._is_ready = is_ready
        self._waiting: collections.deque[events.Key] = collections.deque()
        self._number = 0
        self._is_busy = False
        self._let_go: events.Key | None = None

    def holds(self, event: events.Key) -> bool:
        """Whether the key is kept for later; where not, it is on its way and `sent` must follow."""
        if event is self._let_go:
            self._let_go = None
            return False
        if not self._is_busy:
            self._is_busy = True
            return False
        if len(self._waiting) < KEYS_MAX:
            self._waiting.append(event)
        if len(self._waiting) == 1:
            self._app.set_timer(PATIENCE_SECONDS, partial(self._give_up, self._number))
        return True

    def sent(self) -> None:
        """The key is on its way: follow it up from the widget that got it."""
        self._number += 1
        target = self._app.focused or self._app.screen
        self._rise(self._number, [node for node in target.ancestors_with_self if node != self._app])

    def _rise(self, number: int, way: list[DOMNode]) -> None:
        while way:
            step = way.pop(0)
            if step.call_later(self._rise, number, way):
                return
        self._app.call_later(self._taken, number)

    def _taken(self, number: int, looks: int = LOOKS_MAX) -> None:
        """The key was taken by somebody, or by nobody."""
        if number != self._number:
            return
        if looks <= 0 or self._is_ready():
            self._app.call_later(self._next, number)  # behind the focus that a screen asked for
        else:
            self._app.set_timer(LOOK_SECONDS, partial(self._taken, number, looks - 1))

    def _next(self, number: int) -> None:
        if number != self._number:
            return
        if not self._waiting:
            self._is_busy = False
            return
        self._let_go = self._waiting.popleft()
        if self._waiting:
            self._app.set_timer(PATIENCE_SECONDS, partial(self._give_up, self._number + 1))
        self._app.post_message(self._let_go)

    def _give_up(self, number: int) -> None:
        if number == self._number and self._is_busy and self._waiting:
            self._next(number)
