"""What is done by which handler, and what waits until the view that it needs is there."""

import collections
import logging
from collections.abc import Callable, Mapping

import msgspec
from textual.widget import Widget

from tui.actions.action import Action
from tui.shell import Handler
from tui.views.view import View
from tui.widgets.list_pane import ListPane
from tui.widgets.pane import Pane
from tui.widgets.table_pane import TablePane

WAITING_MAX = 16
"""Actions kept until the view that they need is there."""
PANE_SCOPES = ("topology", "events")
"""Scopes whose actions act on a pane."""
ANYWHERE = ("list", "table")
"""Scopes whose actions act on whatever list the view has."""
SCOPE_VIEWS = {"topology": "overview", "list": "", "table": ""}
"""Views of scopes that are not called like their view; an empty one is wherever the focus is."""

_log = logging.getLogger(__name__)


def attempt(title: str, do: Callable[[], None]) -> str:
    """Do it; a mistake of ours is logged and returned as words, and ends nothing else."""
    try:
        do()
    except Exception as error:  # noqa: BLE001 - that is what this is for
        _log.exception("%s failed by a mistake", title)
        return f"{title} failed: {type(error).__name__}: {error}"
    return ""


def pane_here(scope: str, focused: Widget | None, view: View | None) -> Pane | None:
    """The pane of the shown view that an action of this scope acts on: the focused one first."""
    if scope in ANYWHERE:
        kind = ListPane if scope == "list" else TablePane
        if isinstance(focused, kind):
            return focused
        panes = [pane for pane in view.query(Pane) if pane.display] if view else []
        return next((pane for pane in panes if isinstance(pane, kind)), None)
    if isinstance(focused, Pane) and focused.scope == scope:
        return focused
    return view.pane_of(scope) if view else None


class _Wish(msgspec.Struct, frozen=True):
    """An action that waits for a view."""

    view: str
    action_id: str
    argument: str


class Doing:
    """The handlers of all actions, those of a view with that view's name."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self._views: dict[str, str] = {}
        self._waiting: collections.deque[_Wish] = collections.deque(maxlen=WAITING_MAX)

    def take(self, handlers: Mapping[str, Handler], view: str = "") -> None:
        """Take handlers; with a view, they need that view's panes."""
        self.handlers |= handlers
        if view:
            self._views |= dict.fromkeys(handlers, view)

    def needed_view(self, action: Action, view: View | None, name: str) -> str:
        """The view that must be there first; empty where the action can be done now."""
        is_here = view is not None and view.is_composed
        if action.id in self._views or action.id not in self.handlers:
            wanted = self._views.get(action.id, action.scope)
            return "" if is_here and name == wanted else wanted
        if action.scope in ANYWHERE:
            return "" if is_here else name
        if action.scope in PANE_SCOPES and (view is None or view.pane_of(action.scope) is None):
            return SCOPE_VIEWS.get(action.scope, action.scope)
        return ""

    def keep(self, view: str, action_id: str, argument: str) -> None:
        """Keep an action until its view is there; the oldest of too many goes."""
        self._waiting.append(_Wish(view, action_id, argument))

    def due(self, view: str) -> list[tuple[str, str]]:
        """Actions and arguments that waited for this view; what waited for another is dropped."""
        found = [(wish.action_id, wish.argument) for wish in self._waiting if wish.view == view]
        self._waiting.clear()
        return found
