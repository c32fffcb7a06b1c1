"""What is shown below 80 by 24: the most in the least room."""

from typing import ClassVar

from tui.bridge.store import ALL
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.rows import SYMBOLS, DownloadRow, PlacementRow
from tui.widgets.painted import Painted, Parts


class CompactPane(Painted):
    """Placements, downloads, notices; and the size that the views need."""

    topics: ClassVar[frozenset[str]] = ALL

    def draw(self, canvas: Canvas) -> None:
        """As many lines as there are."""
        lines = self._lines()
        room = canvas.height - 1
        for y, parts in enumerate(lines[:room]):
            canvas.parts(0, y, parts)
        if canvas.height >= 3:
            size = self.screen.size
            words = f"{size.width}x{size.height}: the views need 80x24"
            canvas.put(0, canvas.height - 1, words, "faint")

    def _lines(self) -> list[Parts]:
        view = self.context.view
        lines: list[Parts] = [_placement(row) for row in view.placements]
        lines += [_download(row) for row in view.downloads if row.phase != "complete"]
        lines += [
            [(f"{SYMBOLS[notice.level]} ", notice.level), (notice.title, notice.level)]
            for notice in view.notices
            if notice.level in ("bad", "warn")
        ]
        if not lines and self.context.store.heard_at:
            lines.append([("Nothing is running. ", "text"), ("n", "accent b"), (" places", "dim")])
        return lines


def _placement(row: PlacementRow) -> Parts:
    figure = text.speed(row.speed) if row.speed else row.detail
    return [
        (f"{SYMBOLS[row.level]} ", row.level),
        (f"{text.pad(text.middle(row.model, 18), 18)} ", "text b"),
        (f"{row.word:<10} ", f"{row.level} b"),
        (figure, "text"),
    ]


def _download(row: DownloadRow) -> Parts:
    words = text.percent(row.fraction) if row.phase != "queued" else "    "
    return [
        (f"{glyphs.ARROW_DOWN} ", row.level),
        (f"{text.pad(text.middle(row.model, 18), 18)} ", "text"),
        (f"{text.pad(text.middle(row.name, 10), 10)} ", row.hue),
        (f"{words} {row.phase}", "dim"),
    ]
