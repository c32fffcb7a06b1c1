"""Overview: who is in the cluster, what runs, what is fetched, what happened."""

from textual.app import ComposeResult
from textual.geometry import Size

from tui.views.view import View
from tui.widgets.downloads import DownloadsPane
from tui.widgets.event_log import EventLog
from tui.widgets.placements import PlacementsPane
from tui.widgets.topology import TopologyPane

WIDE, MIDDLE = 140, 96


class Overview(View):
    """Four panes; their places change with the width."""

    def compose(self) -> ComposeResult:
        """The panes in reading order."""
        yield TopologyPane(self.context, identity="overview-topology")
        yield PlacementsPane(self.context, identity="overview-placements")
        yield DownloadsPane(self.context, identity="overview-downloads")
        yield EventLog(self.context, identity="overview-events")

    def fit(self, size: Size) -> None:
        """Side by side where it is wide, one under another where it is narrow."""
        width, height = size
        self.set_class(width >= WIDE, "-wide")
        self.set_class(MIDDLE <= width < WIDE, "-middle")
        self.set_class(width < MIDDLE, "-narrow")
        downloads = self.query_one(DownloadsPane)
        moving = [row for row in self.context.view.downloads if row.phase != "complete"]
        downloads.display = bool(moving) or width >= MIDDLE
        if width >= WIDE:
            rows = self._wide(height)
        elif width >= MIDDLE:
            rows = self._middle(height)
        else:
            failed = any(row.phase == "failed" for row in moving)
            rows = self._narrow(height, max(len(moving), 2 * failed))
        self.styles.grid_rows = " ".join(str(row) for row in rows)

    @staticmethod
    def _wide(height: int) -> list[int]:
        events = max(8, height // 3)
        upper = height - events
        placements = min(upper - 6, max(10, upper * 11 // 20))
        return [placements, upper - placements, events]

    def _middle(self, height: int) -> list[int]:
        is_tall = height >= 36
        placements = 14 if is_tall else 7
        count = len(self.context.view.nodes)
        spread = count > 3 or count == 1
        topology = (17 if is_tall else 14) if spread else 11
        topology = max(topology, height - placements - 14)
        return [topology, placements, max(4, height - topology - placements)]

    def _narrow(self, height: int, moving: int) -> list[int]:
        view = self.context.view
        topology = min(len(view.nodes) + 3, height // 2)
        placements = 2 + max(1, min(len(view.placements), 4))
        downloads = [2 + min(moving, 2)] if moving else []
        events = height - topology - placements - sum(downloads)
        if events < 3:
            placements -= 3 - events
            events = 3
        return [topology, placements, *downloads, events]
