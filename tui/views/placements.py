"""Placements: the instances, and the requests that they serve."""

from textual.app import ComposeResult
from textual.geometry import Size

from tui.views.view import View
from tui.widgets.instance_details import InstanceDetails
from tui.widgets.placements import PlacementsPane
from tui.widgets.requests import RequestsPane


class PlacementsView(View):
    """Instances above, the chosen one in full, requests below."""

    def compose(self) -> ComposeResult:
        """The three panes."""
        yield PlacementsPane(self.context, identity="placements-list")
        yield InstanceDetails(self.context, identity="placements-details")
        yield RequestsPane(self.context, identity="placements-requests")

    def first_focus(self) -> PlacementsPane:
        """The instances."""
        return self.query_one(PlacementsPane)

    def fit(self, size: Size) -> None:
        """Instances and details side by side where it is wide."""
        wide = size.width >= 120
        self.styles.grid_size_columns = 2 if wide else 1
        self.set_class(wide, "-wide")
        count = max(1, len(self.context.view.placements))
        if wide:
            upper = max(10, min(size.height * 3 // 5, max(count * 4 + 2, 14)))
            self.styles.grid_rows = f"{upper} 1fr"
        else:
            top = min(count * 4 + 1 if size.height > 30 else count + 2, size.height // 3)
            self.styles.grid_rows = f"{max(4, top)} 1fr {max(5, size.height // 3)}"
