"""Events: where each node is in the log, and the log itself."""

from textual.app import ComposeResult
from textual.geometry import Size

from tui.views.view import View
from tui.widgets.event_log import EventLog
from tui.widgets.index_board import IndexBoard


class EventTable(EventLog):
    """The log with column heads."""

    head_lines = 1


class EventsView(View):
    """Index board above, event table below."""

    def compose(self) -> ComposeResult:
        """The two panes."""
        yield IndexBoard(self.context, identity="events-board")
        yield EventTable(self.context, identity="events-log")

    def first_focus(self) -> EventTable:
        """The log."""
        return self.query_one(EventTable)

    def fit(self, size: Size) -> None:
        """A line for each node, but never more than half."""
        board = self.query_one(IndexBoard)
        rows = len(self.context.view.nodes)
        board.styles.height = max(5, min(rows + 5, size.height // 2))
