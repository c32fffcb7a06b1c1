"""Nodes: all of them in a table, one of them in full, and its links."""

from textual.app import ComposeResult
from textual.geometry import Size

from tui.views.view import View
from tui.widgets.node_details import NodeDetails
from tui.widgets.node_links import NodeLinks
from tui.widgets.node_table import NodeTable


class NodesView(View):
    """Table above; details and links of the chosen node below."""

    def compose(self) -> ComposeResult:
        """The three panes."""
        yield NodeTable(self.context, identity="nodes-table")
        yield NodeDetails(self.context, identity="nodes-details")
        yield NodeLinks(self.context, identity="nodes-links")

    def first_focus(self) -> NodeTable:
        """The table."""
        return self.query_one(NodeTable)

    def fit(self, size: Size) -> None:
        """As many lines for the table as there are nodes, up to half."""
        wanted = len(self.context.view.nodes) + 3
        table = max(5, min(wanted, size.height // 2))
        links = self.query_one(NodeLinks)
        links.display = size.width >= 100
        self.styles.grid_size_columns = 2 if links.display else 1
        self.styles.grid_rows = f"{table} 1fr"
        self.set_class(links.display, "-wide")
