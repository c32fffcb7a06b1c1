"""What was said. A finished block is rendered once; only the growing tail is rendered again."""

from typing import ClassVar

import msgspec
from rich.segment import Segment
from textual import events
from textual.binding import BindingType
from textual.strip import Strip

from tui.bridge.conversation import CHAT, Turn
from tui.bridge.store import PLACEMENTS
from tui.paint.canvas import Canvas
from tui.paint.markdown import MarkdownPainter
from tui.paint.palette import Palette
from tui.viewmodel import glyphs, text
from tui.viewmodel.placements import coming_words
from tui.widgets.list_pane import WHEEL_ROWS, ListPane
from tui.widgets.painted import Parts
from tui.widgets.pane import bindings

BAR_CELLS = 2
MODEL_CELLS_MIN = 20
"""Of a model's name before its figures are cut instead."""
CURSOR = glyphs.EIGHTHS[4]


class _Rendered(msgspec.Struct):
    """Lines of a turn whose blocks up to `end` are finished."""

    end: int = 0
    lines: list[list[Segment]] = []


class Transcript(ListPane):
    """Turns as Markdown; follows the newest line until it is scrolled up."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")
    topics: ClassVar[frozenset[str]] = frozenset((CHAT, PLACEMENTS))
    fades: ClassVar[bool] = False
    has_cursor = False
    is_following = True
    lines: list[list[Segment]] = []
    _rendered: dict[int, _Rendered]
    _made_for: tuple[int, int, int] = (0, 0, 0)
    _painter: MarkdownPainter | None = None
    _painter_palette: Palette | None = None

    def heading(self) -> Parts:
        """The model that answers, and how it stands."""
        model = self.context.chat_model
        if model is None:
            return [("Chat ", "text b")]
        parts: Parts = [(f"{model} ", "text b")]
        ready = [row for row in self.context.view.placements if row.model == model]
        if ready:
            row = max(ready, key=lambda item: item.ready)
            names = text.plural(len(row.runs), "node")
            parts.append((f"{glyphs.DOT} {row.word} on {names} ", row.level))
        else:
            parts.append((f"{glyphs.DOT} not placed: n places it ", "warn"))
        return parts

    def footing(self) -> Parts:
        """Speed while it answers; where the reader is."""
        turns = self.context.conversation.turns
        parts: Parts = []
        if turns and turns[-1].is_open:
            turn = turns[-1]
            figure = text.speed(turn.speed) if turn.speed else turn.progress
            words = f" {glyphs.DOT} ".join(part for part in (figure, "esc stops") if part)
            parts.append((words, "accent"))
        if not self.is_following:
            parts.append((f"  {glyphs.DOWN} end follows", "dim"))
        return parts

    def count(self) -> int:
        """How many lines there are."""
        return len(self.lines)

    def move(self, verb: str) -> None:
        """Scroll; the last line takes hold of the newest again."""
        self.is_following = False
        super().move(verb)
        self.is_following = self.top >= len(self.lines) - self.room
        self.paint()

    def draw_empty(self, canvas: Canvas) -> None:
        """Which model would answer, and what to do where none does."""
        y = max(0, canvas.height // 2 - 2)
        if self.context.chat_model is not None:
            canvas.centre(y, "Ask something.", "text b")
            canvas.centre(y + 1, f"{self.context.chat_model} answers.", "dim")
        elif coming := coming_words(self.context.view.placements):
            canvas.centre(y, f"{coming}.", "text b")
            canvas.centre(y + 1, "Ask here once it is ready.", "dim")
        else:
            canvas.centre(y, "No model is ready.", "text b")
            words = "esc, then n places one; then ask here."
            canvas.centre(y + 1, words, "dim")

    def draw(self, canvas: Canvas) -> None:
        """Draw the empty page; lines are put over it by `paint`."""
        self._make_lines(canvas.width)
        if not self.lines:
            self.draw_empty(canvas)
            return
        if self.is_following:
            self.top = len(self.lines) - self.room
        self.top = max(0, min(self.top, len(self.lines) - self.room))

    def paint(self) -> None:
        """Put the visible lines."""
        super().paint()
        width, height = self.size
        if not self.lines or width < 1:
            return
        visible = self.lines[self.top : self.top + height]
        base = self.context.palette.style("text", self.surface)
        shown: list[Strip] = []
        for line in visible:
            segments = list(Segment.apply_style(line, base))
            segments = [
                Segment(self.context.written(text.clean(part.text)), part.style)
                for part in segments
            ]
            shown.append(Strip(segments).adjust_cell_length(width, base))
        shown += [Strip.blank(width, base)] * (height - len(shown))
        self.strips = shown
        self.refresh()

    def _make_lines(self, width: int) -> None:
        conversation = self.context.conversation
        palette = self.context.palette
        key = (width, id(palette), conversation.version)
        if key != self._made_for:
            self._made_for = key
            self._rendered = {}
        lines: list[list[Segment]] = []
        for place, turn in enumerate(conversation.turns):
            if place:
                lines.append([])
            lines.append(self._head(turn, width))
            bar = "accent" if turn.role == "user" else "line"
            lead = Segment(f"{glyphs.LEFT_BAR} ", palette.style(bar))
            lines += [[lead, *line] for line in self._body(place, turn, width - BAR_CELLS)]
        self.lines = lines

    def _head(self, turn: Turn, width: int) -> list[Segment]:
        style = self.context.palette.style
        if turn.role == "user":
            return [
                Segment("you", style("accent b")),
                Segment(f"  {text.clock(turn.at + self.context.zone_seconds)[:5]}", style("faint")),
            ]
        figures: list[str] = []
        if turn.first_seconds:
            figures.append(f"first token {text.duration(turn.first_seconds)}")
        if turn.speed and not turn.is_open:
            figures.append(text.speed(turn.speed))
        if turn.tokens:
            figures.append(text.plural(turn.tokens, "token"))
        if turn.usage is not None and turn.usage.cached_tokens:
            figures.append(f"{turn.usage.cached_tokens} of the prompt from cache")
        words = f"  {f' {glyphs.DOT} '.join(figures)}" if figures else ""
        model = text.middle(turn.model, max(MODEL_CELLS_MIN, width - text.cells(words)))
        words = text.shorten(words, width - text.cells(model))
        return [Segment(model, style("hue0 b")), Segment(words, style("dim"))]

    def _body(self, place: int, turn: Turn, width: int) -> list[list[Segment]]:
        style = self.context.palette.style
        lines: list[list[Segment]] = []
        if turn.reasoning:
            lines += self._reasoning(turn, width)
        if turn.role == "user":
            lines += [[Segment(words, style("text"))] for words in text.wrap(turn.text, width)]
        elif turn.text:
            lines += self._markdown(place, turn, width)
        if turn.is_open:
            if turn.progress:
                lines.append([Segment(turn.progress + glyphs.ELLIPSIS, style("dim i"))])
            else:
                tail = lines[-1] if lines else []
                lines[-1:] = [[*tail, Segment(CURSOR, style("accent"))]]
        if turn.failure is not None:
            failure = turn.failure
            words = f"{glyphs.CROSS} {failure.message}. {failure.remedy}".rstrip(". ") + "."
            lines += [[Segment(part, style("bad"))] for part in text.wrap(words, width)]
        elif turn.is_stopped:
            lines.append([Segment("stopped", style("warn"))])
        return lines

    def _reasoning(self, turn: Turn, width: int) -> list[list[Segment]]:
        style = self.context.palette.style
        if not self.context.conversation.shows_reasoning:
            words = f"thought in {len(turn.reasoning.split()):,} words; T shows them"
            return [[Segment(words, style("faint i"))]]
        return [
            [Segment(part, style("dim i"))] for part in text.wrap(turn.reasoning.strip(), width)
        ]

    def _markdown(self, place: int, turn: Turn, width: int) -> list[list[Segment]]:
        palette = self.context.palette
        if self._painter is None or self._painter_palette is not palette:
            self._painter, self._painter_palette = MarkdownPainter(palette), palette
        held = self._rendered.setdefault(place, _Rendered(lines=[]))
        end = _finished(turn.text, held.end) if turn.is_open else len(turn.text)
        if end > held.end:
            block = turn.text[held.end : end]
            if held.lines:
                held.lines.append([])
            held.lines += self._painter.lines(block, width)
            held.end = end
        tail = turn.text[held.end :]
        if not tail.strip():
            return list(held.lines)
        fresh = self._painter.lines(tail, width)
        return [*held.lines, *([[]] if held.lines else []), *fresh]

    def chosen_text(self) -> str:
        """The last answer, as it was written."""
        answers = [turn.text for turn in self.context.conversation.turns if turn.role != "user"]
        return answers[-1] if answers else ""

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll by the wheel."""
        event.stop()
        self.is_following = False
        self.top = max(0, self.top - WHEEL_ROWS)
        self.paint()


def _finished(source: str, start: int) -> int:
    """Where the last finished block ends: at a blank line that is in no code fence."""
    end = start
    place = source.find("\n\n", start)
    while place >= 0:
        if source.count("```", start, place) % 2 == 0:
            end = place + 2
        place = source.find("\n\n", place + 2)
    return end
