"""The base of every view."""

from typing import ClassVar

from textual import events
from textual.containers import Container
from textual.geometry import Size
from textual.widget import Widget

from tui.context import Context
from tui.shell import Handler, Shell
from tui.widgets.painted import Painted
from tui.widgets.pane import Pane


class View(Container):
    """Some panes. Knows how they lie at a size, and which has the focus first."""

    title: ClassVar[str] = ""
    scope: ClassVar[str] = ""

    def __init__(self, context: Context, *, identity: str) -> None:
        super().__init__(id=identity)
        self.context = context

    @property
    def is_composed(self) -> bool:
        """All its panes are there."""
        below = self.walk_children(Widget, with_self=False)
        return bool(below) and all(widget.is_mounted for widget in below)

    @property
    def is_laid_out(self) -> bool:
        """Its main pane has its size, and so its rows."""
        main = self.first_focus()
        return main is None or bool(main.size)

    def painted(self) -> list[Painted]:
        """Everything in it that is drawn line by line."""
        return list(self.query(Painted))

    def pane_of(self, scope: str) -> Pane | None:
        """The first displayed pane of a scope."""
        for pane in self.query(Pane):
            if pane.scope == scope and pane.display:
                return pane
        return None

    def first_focus(self) -> Widget | None:
        """What has the focus when the view is shown."""
        return next((pane for pane in self.query(Pane) if pane.display), None)

    def handlers(self, shell: Shell) -> dict[str, Handler]:
        """What the view's own actions do."""
        del shell
        return {}

    def on_resize(self, event: events.Resize) -> None:
        """Lay the panes out for the new size."""
        if self.children:
            self.fit(event.size)

    def fit(self, size: Size) -> None:
        """Lay the panes out for a size."""
