"""The live indices: where every node is in the ordered log, and what it waits for."""

from typing import ClassVar

from tui.bridge.store import EVENTS, NODES, SESSION
from tui.paint.bars import columns
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.matching import matcher
from tui.viewmodel.rows import SYMBOLS, IndexRow
from tui.widgets.list_pane import ListPane
from tui.widgets.painted import Parts


class IndexBoard(ListPane):
    """A row for each node."""

    scope: ClassVar[str] = "indices"
    topics: ClassVar[frozenset[str]] = frozenset((NODES, SESSION, EVENTS))
    head_lines = 1
    rows: list[IndexRow] = []

    def prepare(self) -> None:
        """Take the rows that match."""
        matches = matcher(self._words)
        self.rows = [row for row in self.context.view.indices if matches(f"{row.name} {row.role}")]

    @property
    def room(self) -> int:
        """Rows above the line with the rate."""
        return max(1, self.size.height - self.head_lines - 1)

    def count(self) -> int:
        """One for each node."""
        return len(self.rows)

    def key_of(self, place: int) -> object:
        """The node."""
        return self.rows[place].node if place < len(self.rows) else None

    def heading(self) -> Parts:
        """Whose session it is."""
        header = self.context.view.header
        parts: Parts = [("Live indices ", "text b")]
        if header.master:
            parts.append((f"{glyphs.DOT} session t{header.term} / ", "dim"))
            parts.append((f"{header.master} ", header.master_hue))
        return parts

    def footing(self) -> Parts:
        """How large the log is where this node keeps it."""
        here = self.context.view.here
        row = next((row for row in self.rows if row.node == here), None)
        if row is None or not row.has_figures:
            return []
        return [(f"{text.size(row.log_bytes)} of log on disk here", "dim")]

    @property
    def _fields(self) -> list[tuple[str, int]]:
        fields = [("role", 10), ("written", 9), ("applied", 10), ("lag", 6), ("buffer", 8)]
        if self.size.width >= 90:
            fields += [("gap", 18), ("unack", 7), ("oldest", 7), ("replays", 8)]
        else:
            fields += [("unack", 7), ("replays", 8)]
        if self.size.width >= 120:
            fields += [("committed", 11), ("elections", 10)]
        return fields

    def draw_head(self, canvas: Canvas) -> None:
        """Column heads."""
        canvas.put(2, 0, "node", "faint")
        x = 14
        for name, width in self._fields:
            if name == "role":
                canvas.put(x + 1, 0, name, "faint")
            else:
                canvas.right(x + width, 0, name, "faint")
            x += width
        self._draw_rate(canvas, canvas.height - 1)

    def _draw_rate(self, canvas: Canvas, y: int) -> None:
        if y <= self.head_lines + len(self.rows) - 1:
            return
        store = self.context.store
        history = store.event_history
        peak = max(history.peak, 1.0)
        canvas.put(2, y, "entries/s", "dim")
        width = max(10, min(60, canvas.width - 44))
        columns(
            canvas, (14, y), width, [value / peak for value in history.shown(store.now)], "accent"
        )
        x = canvas.put(15 + width, y, f"{store.event_rate.value(store.now):.1f}", "text b")
        canvas.put(x, y, f"  peak {history.peak:.0f}", "dim")

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """One node's figures."""
        row = self.rows[place]
        if row.is_master:
            canvas.put(0, y, glyphs.DIAMOND, "master b")
        else:
            canvas.put(0, y, SYMBOLS[row.level], row.level)
        canvas.put(2, y, text.middle(row.name, 12), f"{row.hue} b")
        if not row.has_figures:
            canvas.put(15, y, f"{row.role}: no figures", row.level)
            return
        x = 14
        for name, width in self._fields:
            words, ink = _field(row, name)
            if name == "role":
                canvas.put(x + 1, y, words, ink)
            else:
                canvas.right(x + width, y, words, ink)
            x += width

    def chosen_text(self) -> str:
        """The node's row as words."""
        if self.cursor >= len(self.rows):
            return ""
        row = self.rows[self.cursor]
        return f"{row.name} {row.role} applied {row.applied} lag {row.lag}"


def _field(row: IndexRow, name: str) -> tuple[str, str]:  # noqa: PLR0911 - one line for each column
    if name == "role":
        return row.role, "accent" if row.role == "looking" else "dim"
    if name == "applied":
        return text.count(row.applied), "text b"
    if name == "lag":
        return str(row.lag), "warn b" if row.level == "warn" else "text" if row.lag else "faint"
    if name == "gap":
        if row.gap_first < 0:
            return text.UNKNOWN, "faint"
        return f"{row.gap_first:,}{glyphs.EN_DASH}{row.gap_last:,}", "warn b"
    if name == "oldest":
        waits = row.unacknowledged > 0
        return text.duration(
            row.oldest_seconds
        ) if waits else text.UNKNOWN, "text" if waits else "faint"
    number = {
        "written": row.written,
        "buffer": row.buffered,
        "unack": row.unacknowledged,
        "replays": row.replays,
        "committed": row.committed,
        "elections": row.elections,
    }[name]
    quiet = number == 0 or name in ("written", "committed", "elections")
    return text.count(number), "dim" if quiet and number else "faint" if quiet else "warn"
