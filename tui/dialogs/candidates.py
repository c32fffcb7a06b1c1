"""The candidates of a placement, and what the chosen one asks of each node."""

from collections.abc import Callable
from typing import ClassVar

from tui.context import Context
from tui.paint.bars import runs, stacked
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.plans import CandidateRow, ShareRow, speed_words
from tui.viewmodel.rows import SYMBOLS
from tui.widgets.list_pane import ListPane
from tui.widgets.painted import Painted, Parts

WIDE = 90


class CandidatePane(ListPane):
    """A row for each candidate, best first."""

    fades: ClassVar[bool] = False
    surface: ClassVar[str] = "raised"
    head_lines = 1

    def __init__(self, context: Context, on_move: Callable[[], None]) -> None:
        super().__init__(context, identity="candidates", classes="dialog-pane")
        self.rows: list[CandidateRow] = []
        self.title_parts: Parts = []
        self.foot_parts: Parts = []
        self._on_move = on_move
        self.launch: Callable[[], None] = lambda: None
        self.empty = "asking for a plan" + glyphs.ELLIPSIS

    def heading(self) -> Parts:
        """Model and figures."""
        return self.title_parts

    def footing(self) -> Parts:
        """What can be done."""
        return self.foot_parts

    @property
    def chosen(self) -> CandidateRow | None:
        """The candidate under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def count(self) -> int:
        """How many candidates."""
        return len(self.rows)

    def moved(self) -> None:
        """Show the other candidate's details."""
        self._on_move()

    def open_chosen(self) -> None:
        """Launch."""
        self.launch()

    def draw_empty(self, canvas: Canvas) -> None:
        """What is being waited for, or why there is nothing."""
        canvas.centre(canvas.height // 2, self.empty, "dim")

    def draw_head(self, canvas: Canvas) -> None:
        """Column heads."""
        width = canvas.width
        canvas.put(2, 0, "plan", "faint")
        canvas.put(22, 0, "nodes", "faint")
        canvas.right(46, 0, "tok/s", "faint")
        canvas.right(54, 0, "first", "faint")
        if width >= WIDE:
            canvas.put(57, 0, "slowest hop", "faint")
            canvas.right(width - 18, 0, "least slack", "faint")
        canvas.put(width - 15, 0, "verdict", "faint")

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """Figures of one candidate."""
        row = self.rows[place]
        width = canvas.width
        canvas.put(0, y, SYMBOLS[row.level], row.level)
        canvas.put(2, y, text.shorten(row.label, 18), "text b")
        names = row.names if len(row.names) <= 18 else text.plural(row.nodes, "node")
        canvas.put(22, y, names, "text")
        canvas.right(46, y, f"{row.speed:.1f}" if row.speed else text.UNKNOWN, "text")
        first = row.first_token_seconds
        canvas.right(54, y, text.duration(first) if first else text.UNKNOWN, "dim")
        if width >= WIDE:
            canvas.put(57, y, text.shorten(row.slowest, width - 86), "dim")
            canvas.right(width - 18, y, _signed(row.slack), row.level)
        canvas.put(width - 15, y, text.shorten(row.verdict, 15), f"{row.level} b")


class CandidateDetails(Painted):
    """Layers, memory for each node, and why not."""

    fades: ClassVar[bool] = False
    surface: ClassVar[str] = "raised"

    def __init__(self, context: Context) -> None:
        super().__init__(context, identity="candidate-details")
        self.row: CandidateRow | None = None
        self.boundary = 0

    def show(self, row: CandidateRow | None, boundary: int) -> None:
        """Show another candidate."""
        self.row, self.boundary = row, boundary
        self.paint()

    def draw(self, canvas: Canvas) -> None:
        """From the top: layers, memory, words."""
        row = self.row
        if row is None:
            return
        y = self._draw_layers(canvas, row)
        y = self._draw_memory(canvas, y + 1, row)
        self._draw_words(canvas, y + 1, row)

    def _draw_layers(self, canvas: Canvas, row: CandidateRow) -> int:
        pieces = [(float(run.layer_count), run.hue) for run in row.runs]
        total = sum(run.layer_count for run in row.runs)
        canvas.put(1, 0, "layers", "dim")
        canvas.right(canvas.width - 1, 0, f"{total} of {total}", "dim")
        spans = runs(canvas, (1, 1), canvas.width - 2, pieces)
        for place, ((x, width), run) in enumerate(zip(spans, row.runs, strict=True)):
            span = text.layers(run.first_layer, run.end_layer)
            for words in (f"{run.name} {span} ({run.layer_count})", f"{run.name} {span}", span):
                if len(words) < width:
                    canvas.put(x, 2, words, run.hue)
                    break
            if place == self.boundary and place + 1 < len(spans):
                mark = f"{glyphs.LEFT} {glyphs.RIGHT}"
                canvas.put(x + width - 2, 0, mark, "accent b")
        return 3

    def _draw_memory(self, canvas: Canvas, y: int, row: CandidateRow) -> int:
        width = canvas.width
        wide = width >= WIDE
        bar_end = width - (64 if wide else 38)
        canvas.put(1, y, "memory", "dim")
        x = width - 1
        heads = (
            ("slack", "limit", "after", "+ model", "now") if wide else ("slack", "+ model", "now")
        )
        for head in heads:
            canvas.right(x, y, head, "faint")
            x -= 10
        for share in row.shares:
            y += 1
            if y >= canvas.height - 1:
                break
            self._draw_share(canvas, y, share, bar_end)
        return y + 1

    def _draw_share(self, canvas: Canvas, y: int, share: ShareRow, bar_end: int) -> None:
        canvas.put(1, y, text.middle(share.name, 12), f"{share.hue} b")
        bar_width = bar_end - 14
        if bar_width > 4 and share.limit:
            scale = bar_width / max(share.limit, share.used + share.added)
            pieces = [(share.used * scale, "faint"), (share.added * scale, share.hue)]
            stacked(canvas, (14, y), bar_width, pieces)
            limit = 14 + min(bar_width - 1, int(share.limit * scale))
            if share.slack < 0:
                canvas.put(limit, y, glyphs.THIN_DOWN, f"bad/{share.hue} b")
        x = canvas.width - 1
        canvas.right(x, y, _signed(share.slack), f"{share.level} b")
        x -= 10
        if canvas.width >= WIDE:
            canvas.right(x, y, text.memory(share.limit), "dim")
            canvas.right(x - 10, y, text.memory(share.used + share.added), "text")
            x -= 20
        canvas.right(x, y, f"+{text.memory(share.added)}", "text b")
        canvas.right(x - 10, y, text.memory(share.used), "dim")
        if not share.held and canvas.width >= WIDE:
            canvas.right(x - 20, y, f"{glyphs.ARROW_DOWN} files", "busy")

    @staticmethod
    def _draw_words(canvas: Canvas, y: int, row: CandidateRow) -> None:
        for words, ink in _words(row):
            if y >= canvas.height:
                return
            canvas.put(1, y, text.shorten(words, canvas.width - 2), ink)
            y += 1


def lines_of(row: CandidateRow) -> int:
    """How many lines hold all details of a candidate."""
    return 7 + len(row.shares) + len(_words(row))


def _words(row: CandidateRow) -> list[tuple[str, str]]:
    """Why not and what helps, what is risky, what has to be fetched, the hops."""
    lines: list[tuple[str, str]] = []
    if row.why_not:
        lines.append((f"{SYMBOLS['bad']} {row.why_not}", "bad"))
    if row.remedy:
        lines.append((f"  what helps: {row.remedy}", "text"))
    lines += [(f"{SYMBOLS['warn']} {words}", "warn") for words in row.warnings]
    missing = [share.name for share in row.shares if not share.held]
    if missing:
        lines.append((f"  files are fetched first to {', '.join(missing)}", "dim"))
    if row.hops:
        lines.append((f"  hops: {f' {glyphs.ARROW} '.join(row.hops)}", "dim"))
    if row.speed:
        lines.append((f"  {speed_words(row.prompt_tokens, measured=row.measured)}", "dim"))
    return lines


def _signed(count: int) -> str:
    return ("+" if count >= 0 else "-") + text.memory(abs(count))
