"""What needs the person, above the view; nothing where nothing does."""

from typing import ClassVar

from tui.bridge.store import ALL
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.rows import SYMBOLS, Notice
from tui.widgets.painted import Painted

LINES_MAX = 3
GAP_CELLS = 2
TALL = 36
"""From this many lines of the screen on it may take more than one."""


class Banner(Painted):
    """One line for each notice, the worst first."""

    topics: ClassVar[frozenset[str]] = ALL
    surface: ClassVar[str] = "raised"
    fades: ClassVar[bool] = False

    def notices(self) -> list[Notice]:
        """The gone node first, then what the cluster says."""
        store = self.context.store
        if not store.heard_at:
            return []
        every = self.context.view.notices
        found = [item for item in every if item.level in ("bad", "warn")] or every[:1]
        if store.failure is not None and not store.is_connected:
            age = text.duration(store.stale_seconds)
            gone = Notice(
                level="bad",
                title=f"The node is gone for {age}",
                text=f"{store.failure.message}; tried again every few seconds. Figures are old.",
                key="q quits",
            )
            found.insert(0, gone)
        return found

    def fit(self) -> None:
        """Take as many lines as there are notices."""
        most = LINES_MAX if self.screen.size.height >= TALL else 1
        lines = min(most, len(self.notices()))
        if self.styles.height is None or self.styles.height.value != lines:
            self.styles.height = lines
            self.display = lines > 0

    def draw(self, canvas: Canvas) -> None:
        """Symbol, title, words, and the key that helps."""
        found = self.notices()
        for y, notice in enumerate(found[: canvas.height]):
            ink = notice.level
            canvas.put(1, y, f"{SYMBOLS[ink]} ", f"{ink} b")
            x = canvas.put(3, y, notice.title, f"{ink} b")
            rest = len(found) - canvas.height
            key = notice.key
            more = f"  +{rest} more" if rest > 0 and y + 1 == canvas.height else ""
            words = notice.text.replace("\n", f" {glyphs.DOT} ")
            room = canvas.width - 1 - x - 2 * GAP_CELLS - len(more)
            if text.cells(words) + text.cells(key) > room:
                # The key says what to do, the words say why: neither takes it all.
                key = text.shorten(key, max(room - text.cells(words), room * 2 // 5))
            right = canvas.right(canvas.width - 1, y, key + more, "accent") - GAP_CELLS
            canvas.put(x + GAP_CELLS, y, text.shorten(words, max(0, right - x - GAP_CELLS)), "text")
