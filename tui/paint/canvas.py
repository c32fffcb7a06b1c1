"""A grid of cells with an ink each, and its lines as strips."""

from collections.abc import Iterable

from rich.cells import cell_len, get_character_cell_size
from rich.segment import Segment
from textual.strip import Strip

from tui.paint.palette import PLAIN, Palette
from tui.viewmodel import glyphs
from tui.viewmodel.text import clean


class Canvas:
    """Cells to draw on. What falls outside is cut off."""

    def __init__(
        self,
        width: int,
        height: int,
        palette: Palette,
        *,
        ascii_only: bool = False,
        surface: str = "pane",
    ) -> None:
        self.width = max(0, width)
        self.height = max(0, height)
        self.palette = palette
        self.surface = surface
        self.is_ascii = ascii_only
        self.is_plain = ascii_only or not palette.has_colour
        """Bars are hatched, since there is no ground to fill."""
        self._characters = [[" "] * self.width for _ in range(self.height)]
        self._inks = [[PLAIN] * self.width for _ in range(self.height)]

    def put(self, x: int, y: int, text: str, ink: str = PLAIN, limit: int | None = None) -> int:
        """Write text, made harmless, within `limit` cells; returns the column after it."""
        if not 0 <= y < self.height:
            return x
        end = self.width if limit is None else min(self.width, x + limit)
        row, inks = self._characters[y], self._inks[y]
        text = clean(text)
        if 0 < x < self.width and row[x] == "":
            row[x - 1] = " "  # the wide character there loses its second half
        if text.isascii():
            for character in text:
                if x >= end:
                    break
                if x >= 0:
                    row[x] = character
                    inks[x] = ink
                x += 1
        else:
            x = self._put_wide(x, y, text, ink, end)
        if 0 < x < self.width and row[x] == "":
            row[x] = " "  # and this one its first
        return x

    def _put_wide(self, x: int, y: int, text: str, ink: str, end: int) -> int:
        row, inks = self._characters[y], self._inks[y]
        for character in text:
            size = get_character_cell_size(character)
            if size == 0:
                continue
            if x + size > end:
                break
            if x >= 0:
                row[x] = character
                inks[x] = ink
                if size == 2:
                    row[x + 1] = ""
                    inks[x + 1] = ink
            x += size
        return x

    def right(self, x: int, y: int, text: str, ink: str = PLAIN) -> int:
        """Write text that ends before column `x`; returns the column where it begins."""
        text = clean(text)
        start = x - cell_len(text)
        self.put(start, y, text, ink)
        return start

    def centre(self, y: int, text: str, ink: str = PLAIN, x: int = 0, width: int = -1) -> None:
        """Write text in the middle of a span of a row."""
        width = self.width if width < 0 else width
        text = clean(text)
        self.put(x + max(0, (width - cell_len(text)) // 2), y, text, ink)

    def parts(self, x: int, y: int, parts: Iterable[tuple[str, str]], limit: int = 9999) -> int:
        """Write (text, ink) pairs one after another within `limit` cells."""
        end = x + limit
        for text, ink in parts:
            if x >= end:
                break
            x = self.put(x, y, text, ink, end - x)
        return x

    def ground(self, y: int, name: str, x: int = 0, width: int = -1) -> None:
        """Put a ground under a span of a row where its cells have none."""
        if not 0 <= y < self.height:
            return
        end = self.width if width < 0 else min(self.width, x + width)
        inks = self._inks[y]
        for column in range(max(0, x), end):
            fore, blank, attributes = inks[column].partition(" ")
            if "/" not in fore:
                inks[column] = f"{fore}/{name}{blank}{attributes}"

    def underline(self, y: int, first: int, end: int) -> None:
        """Underline a span of a row, whatever its inks are."""
        inks = self._inks[y]
        for column in range(max(0, first), min(self.width, end)):
            ink, blank, attributes = inks[column].partition(" ")
            inks[column] = f"{ink}{blank or ' '}{attributes.replace('u', '')}u"

    def line(self, y: int) -> str:
        """The characters of a row; a blank stands for the second half of a wide one."""
        return "".join(character or " " for character in self._characters[y])

    def at(self, x: int, y: int) -> str:
        """The character of a cell."""
        return self._characters[y][x]

    def text(self) -> str:
        """All lines without inks."""
        return "\n".join("".join(row).rstrip() for row in self._characters)

    def strips(self) -> list[Strip]:
        """The lines, cells of one ink joined."""
        style, surface = self.palette.style, self.surface
        lines: list[Strip] = []
        for row, inks in zip(self._characters, self._inks, strict=True):
            segments: list[Segment] = []
            start = 0
            for column in range(1, self.width + 1):
                if column == self.width or inks[column] != inks[start]:
                    text = "".join(row[start:column])
                    if self.is_ascii:
                        text = glyphs.ascii_only(text)
                    segments.append(Segment(text, style(inks[start], surface)))
                    start = column
            lines.append(Strip(segments, self.width))
        return lines
