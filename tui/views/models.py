"""Models: what lies on the nodes, and what fits."""

from textual.app import ComposeResult

from tui.views.view import View
from tui.widgets.model_table import ModelTable


class ModelsView(View):
    """One table."""

    def compose(self) -> ComposeResult:
        """The table."""
        yield ModelTable(self.context, identity="models-table")
