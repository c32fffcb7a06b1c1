"""One entry of the log, whole, as JSON."""

from textual.app import ComposeResult

from node.core.apply import read_event
from node.model.session import Entry
from tui.context import Context
from tui.dialogs.dialog import Dialog
from tui.paint.json_lines import json_lines
from tui.shell import app_of
from tui.viewmodel import glyphs, text
from tui.widgets.text_pane import TextPane


class EntryDialog(Dialog):
    """Index, session, writer and the event as it lies in the log."""

    BINDINGS = [("y", "copy", "Copy")]

    def __init__(self, entry: Entry, context: Context) -> None:
        super().__init__()
        self.entry = entry
        self.context = context

    def compose(self) -> ComposeResult:
        """The JSON in a pane."""
        entry, names = self.entry, self.context.view.names
        event = read_event(entry.payload)
        whole = {
            "index": entry.index,
            "session": {
                "term": entry.session.term,
                "master": names.name(entry.session.master),
                "incarnation": entry.session.incarnation,
            },
            "writer": {
                "node": names.name(entry.id.origin),
                "id": entry.id.origin,
                "incarnation": entry.id.incarnation,
                "sequence": entry.id.sequence,
            },
            "written_at": entry.written_at,
            "resubmitted": entry.resubmitted,
            "event": event if event is not None else f"{len(entry.payload)} bytes, unknown here",
        }
        pane = TextPane(self.context, json_lines(whole), identity="entry")
        pane.add_class("dialog-pane")
        kind = type(event).__name__ if event is not None else "unknown"
        pane.title_parts = [
            (f"{text.count(entry.index)} ", "text b"),
            (f"{glyphs.DOT} {kind} ", "dim"),
        ]
        pane.foot_parts = [
            ("y ", "accent b"),
            ("copies", "dim"),
            ("  esc ", "accent b"),
            ("closes", "dim"),
        ]
        self.pane = pane
        yield pane

    def on_mount(self) -> None:
        """The pane has the focus, and no more lines than it needs."""
        self.pane.styles.height = min(len(self.pane.lines) + 2, self.size.height - 2)
        self.pane.focus()

    def action_copy(self) -> None:
        """Copy the JSON."""
        app_of(self).copy_to_clipboard(self.pane.chosen_text())
        app_of(self).notify("copied", markup=False)
