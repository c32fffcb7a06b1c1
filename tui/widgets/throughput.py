"""Bytes a second of all downloads together, over the last minutes."""

from typing import ClassVar

from tui.bridge.store import DOWNLOADS
from tui.paint.bars import graph
from tui.paint.canvas import Canvas
from tui.viewmodel import text
from tui.widgets.painted import Parts
from tui.widgets.pane import Pane


class ThroughputPane(Pane):
    """Block columns with the peak as their scale."""

    scope: ClassVar[str] = "throughput"
    topics: ClassVar[frozenset[str]] = frozenset((DOWNLOADS,))

    def heading(self) -> Parts:
        """Title."""
        return [("Throughput ", "text b")]

    def draw(self, canvas: Canvas) -> None:
        """Scale at the left, now at the right."""
        history = self.context.store.download_history
        peak = max(history.peak, 1.0)
        now = sum(row.bytes_per_second for row in self.context.view.downloads)
        canvas.put(0, 0, text.rate(history.peak), "faint")
        label = text.rate(now)
        canvas.right(canvas.width, canvas.height - 1, label, "text b")
        width = canvas.width - 24
        graph(
            canvas,
            (11, 0),
            (width, canvas.height),
            [value / peak for value in history.shown(self.context.store.now)],
            "accent",
        )
