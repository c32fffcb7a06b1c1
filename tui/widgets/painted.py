"""The base of everything that is drawn line by line."""

from typing import ClassVar

from rich.text import Text
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tui.context import Context
from tui.paint.canvas import Canvas
from tui.paint.palette import Palette
from tui.viewmodel.text import clean

Parts = list[tuple[str, str]]
"""Text with its ink."""


class Painted(Widget):
    """Draws on a canvas when painted, and refreshes only the lines that changed."""

    ALLOW_SELECT = False
    topics: ClassVar[frozenset[str]] = frozenset()
    surface: ClassVar[str] = "pane"
    """What it is drawn on."""
    fades: ClassVar[bool] = True
    """Goes back towards the ground while the figures are stale."""

    def __init__(
        self, context: Context, *, identity: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=identity, classes=classes)
        self.context = context
        self.strips: list[Strip] = []
        self.drawn_text = ""

    def draw(self, canvas: Canvas) -> None:
        """Draw the whole content."""
        raise NotImplementedError

    @property
    def palette(self) -> Palette:
        """The inks: gone back while the figures are stale."""
        palette = self.context.palette
        stale = self.fades and self.context.store.stale_seconds > 0
        return palette.faded if stale and palette.has_colour else palette

    def paint(self) -> None:
        """Draw anew; lines that stayed the same are not sent to the terminal."""
        width, height = self.size
        if width < 1 or height < 1 or not self.is_attached:
            return
        canvas = Canvas(
            width,
            height,
            self.palette,
            ascii_only=self.context.is_ascii,
            surface=self.surface,
        )
        self.draw(canvas)
        old, self.strips = self.strips, canvas.strips()
        if len(old) != len(self.strips):
            self.refresh()
            return
        changed = [y for y, strip in enumerate(self.strips) if strip != old[y]]
        if len(changed) * 2 > height:
            self.refresh()
        elif changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def titled(self, parts: Parts) -> Text:
        """Parts as a border's title."""
        palette = self.context.palette
        text = Text(no_wrap=True, end="")
        for words, ink in parts:
            text.append(self.context.written(clean(words)), palette.style(ink, self.surface))
        text.rstrip()
        return text

    def on_resize(self, _event: events.Resize) -> None:
        """Draw for the new size."""
        self.paint()

    def render_line(self, y: int) -> Strip:
        """One line, as Textual asks for it."""
        if y < len(self.strips):
            return self.strips[y]
        return Strip.blank(self.size.width, self.palette.style("text", self.surface))
