"""Models: what lies on the nodes, what fits, and one of them in full."""

from textual.app import ComposeResult
from textual.geometry import Size

from tui.views.view import View
from tui.widgets.model_details import ModelDetails
from tui.widgets.model_table import ModelTable


class ModelsView(View):
    """Table above, the chosen model below."""

    def compose(self) -> ComposeResult:
        """The two panes."""
        yield ModelTable(self.context, identity="models-table")
        yield ModelDetails(self.context, identity="models-details")

    def first_focus(self) -> ModelTable:
        """The table."""
        return self.query_one(ModelTable)

    def fit(self, size: Size) -> None:
        """The table takes what it needs; the details at most what they can fill."""
        view = self.context.view
        details = self.query_one(ModelDetails)
        lacking = any(row.note for row in view.models)
        wanted = len(view.nodes) + (8 if lacking else 7)
        details.display = bool(view.models) and size.height >= 16
        details.styles.height = max(9, min(wanted, size.height // 2))
