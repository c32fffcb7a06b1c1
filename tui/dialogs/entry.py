"""One entry of the log, whole, as JSON; or any text, whole."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from node.core.apply import read_event
from node.model.session import Entry
from tui.context import Context
from tui.dialogs.dialog import Dialog, width_of
from tui.paint.json_lines import json_lines
from tui.shell import app_of
from tui.viewmodel import glyphs, text
from tui.viewmodel.events import whole_entry
from tui.widgets.painted import Parts
from tui.widgets.text_pane import TextPane

WIDTH = 96
FRAME_CELLS = 4


class PageDialog(Dialog):
    """A scrolling page that can be copied."""

    BINDINGS: ClassVar[list[BindingType]] = [("y", "copy", "Copy")]

    def __init__(self, context: Context, title: Parts) -> None:
        super().__init__()
        self.pane = TextPane(context, [], identity="page")
        self.pane.add_class("dialog-pane")
        self.pane.title_parts = title
        self.pane.foot_parts = [
            ("y ", "accent b"),
            ("copies  ", "dim"),
            ("esc ", "accent b"),
            ("closes", "dim"),
        ]

    def page(self, width: int) -> list[Parts]:
        """The lines, for so many cells."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """The page."""
        yield self.pane

    def on_mount(self) -> None:
        """The page has the focus, and no more lines than it needs."""
        width = width_of(WIDTH, self.size.width)
        self.pane.styles.width = width
        self.pane.lines = self.page(width - FRAME_CELLS)
        self.pane.styles.height = min(len(self.pane.lines) + 2, self.size.height - 2)
        self.pane.focus()

    def action_copy(self) -> None:
        """Copy all of it."""
        app_of(self).copy_to_clipboard(self.pane.chosen_text())
        app_of(self).notify("copied", markup=False)


class TextDialog(PageDialog):
    """Words, broken into lines."""

    def __init__(self, title: str, words: str, context: Context) -> None:
        super().__init__(context, [(f"{title} ", "text b")])
        self.words = words

    def page(self, width: int) -> list[Parts]:
        """The words at that width."""
        return [[(line, "text")] for line in text.wrap(self.words, width)]


class EntryDialog(PageDialog):
    """Index, session, writer and the event as it lies in the log."""

    def __init__(self, entry: Entry, context: Context) -> None:
        event = read_event(entry.payload)
        kind = type(event).__name__ if event is not None else "unknown"
        index = text.count(entry.index)
        super().__init__(context, [(f"{index} ", "text b"), (f"{glyphs.DOT} {kind} ", "dim")])
        self.entry = entry
        self.names = context.view.names

    def page(self, width: int) -> list[Parts]:
        """The JSON."""
        del width
        return json_lines(whole_entry(self.entry, self.names))
