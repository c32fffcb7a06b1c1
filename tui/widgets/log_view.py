"""Lines of logs, and the sources that they come from."""

from collections.abc import Callable
from typing import ClassVar

from node.handle import LogLine
from tui.context import Context
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.matching import matcher
from tui.widgets.list_pane import ListPane
from tui.widgets.painted import Parts

LEVELS = ("debug", "info", "warning", "error")
INKS = {"debug": "faint", "info": "dim", "warning": "warn", "error": "bad", "output": "hue7"}
ALL_SOURCES = "all"


class SourceList(ListPane):
    """Chooses whose lines are shown."""

    scope: ClassVar[str] = "logs"

    def __init__(self, context: Context, chosen: Callable[[str], None]) -> None:
        super().__init__(context, identity="logs-sources")
        self.sources: list[str] = [ALL_SOURCES]
        self._chosen = chosen

    def show_sources(self, sources: tuple[str, ...]) -> None:
        """Take the sources that there are now."""
        names = [ALL_SOURCES, *sources]
        if names != self.sources:
            self.sources = names
            self.paint()

    def next(self) -> None:
        """Choose the next source."""
        self.cursor = (self.cursor + 1) % len(self.sources)
        self._cursor_key = self.key_of(self.cursor)
        self.moved()
        self.paint()

    def moved(self) -> None:
        """Show its lines."""
        source = self.sources[self.cursor]
        self._chosen("" if source == ALL_SOURCES else source)

    def count(self) -> int:
        """How many sources."""
        return len(self.sources)

    def key_of(self, place: int) -> object:
        """The source."""
        return self.sources[place] if place < len(self.sources) else None

    def heading(self) -> Parts:
        """Title."""
        return [("Sources ", "text b")]

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """One source, marked where it is shown."""
        mark = glyphs.RIGHT if place == self.cursor else " "
        canvas.put(0, y, mark, "accent")
        ink = "text b" if place == self.cursor else "dim"
        canvas.put(2, y, text.middle(self.sources[place], canvas.width - 2), ink)


_Part = tuple[LogLine, int, str]
"""A line, which part of it, and the words of that part."""


class LogView(ListPane):
    """Follows the newest line until the cursor moves up."""

    scope: ClassVar[str] = "logs"
    is_following = True
    level = "info"
    source = ""
    failure = ""
    _lines: tuple[LogLine, ...] = ()
    shown: list[LogLine] = []
    wraps = False
    _parts: list[_Part] = []

    def show_source(self, source: str) -> None:
        """Show another source's lines, once they are read."""
        self.source = source
        self._lines = ()
        self.is_following = True

    def show_lines(self, lines: tuple[LogLine, ...]) -> None:
        """Take what was read."""
        if lines == self._lines and not self.failure:
            return
        self._lines = lines
        self.failure = ""
        self.paint()

    def show_failure(self, words: str) -> None:
        """Say that nothing could be read."""
        self.failure = words
        self.paint()

    def next_level(self) -> None:
        """Show one level more or fewer."""
        self.level = LEVELS[(LEVELS.index(self.level) + 1) % len(LEVELS)]
        self.paint()

    def follow(self) -> None:
        """Follow, or stay."""
        self.is_following = not self.is_following
        self.paint()

    def prepare(self) -> None:
        """Take the lines of the level that match."""
        least = LEVELS.index(self.level)
        matches = matcher(self._words)
        self.shown = [
            line
            for line in self._lines
            if (line.level not in LEVELS or LEVELS.index(line.level) >= least)
            and matches(f"{line.source} {line.level} {line.text}")
        ]
        most = 17 if self.size.width >= 90 else 12
        longest = max((len(line.source) for line in self.shown), default=0)
        self._source_cells = min(most, longest)
        self._parts = [part for line in self.shown for part in self._parts_of(line)]
        if self.is_following:
            self.cursor = max(0, len(self._parts) - 1)
            self._cursor_key = None

    _source_cells = 0

    @property
    def _text_at(self) -> int:
        """Where the words of a line begin."""
        x = (14 if self.size.width >= 90 else 9) + 8
        return x if self.source else x + self._source_cells + 1

    def _parts_of(self, line: LogLine) -> list[_Part]:
        """One for a line that is cut; as many as it takes for one that is shown whole."""
        said = self.context.view.names.words(line.text)
        room = max(1, self.size.width - self._text_at)
        if not self.wraps:
            return [(line, 0, text.shorten(said.replace("\n", f" {glyphs.DOT} "), room))]
        return [(line, part, words) for part, words in enumerate(text.wrap(said, room))]

    def wrap(self) -> None:
        """Show long lines whole, or cut; the cursor stays on its line."""
        at = self._parts[self.cursor][0] if self.cursor < len(self._parts) else None
        self.wraps = not self.wraps
        self._show_around((id(at), 0))
        self.paint()

    def count(self) -> int:
        """How many rows are shown."""
        return len(self._parts)

    def key_of(self, place: int) -> object:
        """The line itself, and which part of it."""
        if place >= len(self._parts):
            return None
        line, part, _ = self._parts[place]
        return id(line), part

    def move(self, verb: str) -> None:
        """Moving up lets go of the newest; the last line takes hold of it again."""
        self.is_following = False
        super().move(verb)
        self.is_following = self.cursor >= len(self._parts) - 1
        self.paint()

    def heading(self) -> Parts:
        """Source, level, filter."""
        parts: Parts = [("Log ", "text b"), (f"{glyphs.DOT} {self.source or ALL_SOURCES} ", "dim")]
        parts.append((f"{glyphs.DOT} {self.level} and worse ", "dim"))
        if self._words:
            parts.append((f"{glyphs.DOT} filter {self._words} ", "warn"))
        return parts

    def footing(self) -> Parts:
        """How many lines, how many of them errors, whether it follows."""
        errors = sum(line.level == "error" for line in self._lines)
        parts: Parts = [(text.plural(len(self.shown), "line"), "dim")]
        if errors:
            parts.append((f" {glyphs.DOT} {text.plural(errors, 'error')}", "bad"))
        word = "following" if self.is_following else "f follows"
        parts.append((f"  {glyphs.DOWN} {word}", "accent" if self.is_following else "dim"))
        return parts

    def draw_empty(self, canvas: Canvas) -> None:
        """Nothing to show, and why."""
        words = self.failure or (
            "No line matches; esc clears the filter, v shows lower levels."
            if self._lines
            else "No lines yet."
        )
        canvas.centre(canvas.height // 2, words, "bad" if self.failure else "dim")

    def draw_row(self, canvas: Canvas, y: int, place: int) -> None:
        """Time, level, source, text."""
        line, part, words = self._parts[place]
        ink = INKS.get(line.level, "text")
        x = 0
        if not part:
            if line.at:
                canvas.put(0, y, self._clock(line, milliseconds=canvas.width >= 90), "faint")
            x = 14 if canvas.width >= 90 else 9
            canvas.put(x, y, text.shorten(line.level, 7), f"{ink} b")
            if not self.source:
                canvas.put(x + 8, y, text.middle(line.source, self._source_cells), "hue7")
        loud = line.level in ("warning", "error")
        canvas.put(self._text_at, y, words, ink if loud else "text")

    @property
    def chosen(self) -> LogLine | None:
        """The line under the cursor."""
        return self._parts[self.cursor][0] if self.cursor < len(self._parts) else None

    def open_chosen(self) -> None:
        """Show the whole line."""
        line = self.chosen
        if line is not None:
            title = f"{self._clock(line)} {line.level} {line.source}"
            self.context.show_text(title, self.context.view.names.words(line.text))

    def _clock(self, line: LogLine, *, milliseconds: bool = False) -> str:
        at = line.at + self.context.zone_seconds if line.at else 0.0
        return text.clock(at, milliseconds=milliseconds)

    def chosen_text(self) -> str:
        """The line under the cursor."""
        return self.words_of(self.chosen) if self.chosen is not None else ""

    def words_of(self, line: LogLine) -> str:
        """A line as it is copied and saved."""
        return f"{self._clock(line)} {line.level} {line.source} {line.text}"
