"""Panes: a border with a title, focus, and the keys of their scope."""

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget

from tui.actions.action import key_text
from tui.actions.registry import in_scope
from tui.viewmodel import text
from tui.widgets.painted import Painted, Parts


def bindings(*scopes: str) -> list[BindingType]:
    """The key bindings of the registry's scopes."""
    return [
        Binding(
            key,
            f"screen.act('{action.id}')",
            action.title,
            key_display=key_text(key),
            id=action.id,
            priority=action.is_priority,
        )
        for scope in scopes
        for action in in_scope(scope)
        for key in action.keys
    ]


def fitted(parts: Parts, room: int) -> Parts:
    """As much of a title as fits; where it is cut, an ellipsis says so."""
    if sum(text.cells(words) for words, _ in parts) <= room:
        return parts
    shown: Parts = []
    for words, ink in parts:
        shown.append((text.shorten(words, room), ink))
        room -= text.cells(words)
        if room < 1:
            break
    return shown


class Pane(Painted, can_focus=True):
    """A framed part of a view. `scope` names the registry's actions that act in it."""

    scope: ClassVar[str] = ""

    def heading(self) -> Parts:
        """What stands in the border above."""
        return []

    def footing(self) -> Parts:
        """Figures in the border below."""
        return []

    def paint(self) -> None:
        """Draw content and border."""
        super().paint()
        if self.is_attached:
            room = self.size.width
            head = self.titled(fitted(self.heading(), room))
            foot = self.titled(fitted(self.footing(), room))
            if head != self._shown_head:
                self._shown_head = head
                self.border_title = head
            if foot != self._shown_foot:
                self._shown_foot = foot
                self.border_subtitle = foot

    _shown_head: Text | None = None
    _shown_foot: Text | None = None

    def chosen_text(self) -> str:
        """What `copy` takes."""
        return ""

    def open_chosen(self) -> None:
        """What `enter` does."""

    def set_filter(self, words: str) -> bool:
        """Show only what matches; False where there is nothing to filter."""
        del words
        return False

    @property
    def filter_words(self) -> str:
        """The filter that is set."""
        return ""


def is_visible(widget: Widget) -> bool:
    """Whether the widget and all around it are displayed."""
    return all(node.display for node in widget.ancestors_with_self if isinstance(node, Widget))
