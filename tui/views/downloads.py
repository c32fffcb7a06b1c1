"""Downloads: what is on its way, and which node has what."""

from textual.app import ComposeResult
from textual.geometry import Size

from tui.views.view import View
from tui.widgets.downloads import DownloadsPane, lines_wanted
from tui.widgets.model_table import ModelTable
from tui.widgets.throughput import ThroughputPane

BORDER_CELLS = 4


class DownloadsView(View):
    """Queue, throughput, models by node."""

    def compose(self) -> ComposeResult:
        """The three panes."""
        yield DownloadsPane(self.context, identity="downloads-queue")
        yield ThroughputPane(self.context, identity="downloads-throughput")
        yield ModelTable(self.context, identity="downloads-models")

    def fit(self, size: Size) -> None:
        """The queue takes what it needs, up to half."""
        downloads = self.context.view.downloads
        rows = max(4, lines_wanted(downloads, size.width - BORDER_CELLS) * len(downloads))
        self.query_one(DownloadsPane).styles.height = min(rows + 2, size.height // 2)
        throughput = self.query_one(ThroughputPane)
        throughput.styles.height = 5 if size.height >= 36 else 4
        throughput.display = size.height >= 26
