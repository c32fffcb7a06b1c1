"""Colours by name, and the styles made of them.

An ink is written `text`, `dim/track` (on a ground), `ok b` (with attributes: b bold, d dim,
i italic, u underlined, r reversed).
"""

import msgspec
from rich.color import Color, blend_rgb
from rich.color_triplet import ColorTriplet
from rich.style import Style

PLAIN = "text"
FADE = 0.55
"""How far stale figures go towards the ground."""


class Colours(msgspec.Struct, frozen=True, kw_only=True):
    """The named colours of one theme, as `#rrggbb`."""

    name: str
    is_dark: bool
    app: str
    pane: str
    raised: str
    track: str
    line: str
    cursor: str
    text: str
    dim: str
    faint: str
    accent: str
    master: str
    ok: str
    busy: str
    warn: str
    bad: str
    idle: str
    code: str
    hue0: str
    hue1: str
    hue2: str
    hue3: str
    hue4: str
    hue5: str
    hue6: str
    hue7: str


class Palette:
    """Inks as styles. Without colours (`None`) only attributes are left."""

    def __init__(self, colours: Colours | None, *, fade: float = 0.0) -> None:
        self.colours = colours
        self.has_colour = colours is not None
        self._fade = fade
        self._styles: dict[tuple[str, str], Style] = {}
        self._faded: Palette | None = None

    @property
    def faded(self) -> "Palette":
        """The same, gone back towards the ground: for what is stale."""
        if self._faded is None:
            self._faded = Palette(self.colours, fade=FADE)
        return self._faded

    def hex(self, name: str) -> str:
        """A colour as `#rrggbb`; empty where there are no colours."""
        return str(getattr(self.colours, name)) if self.colours else ""

    def style(self, ink: str, surface: str = "") -> Style:
        """The style of an ink, on a surface where the ink names no ground."""
        style = self._styles.get((ink, surface))
        if style is None:
            style = self._styles[ink, surface] = self._make(ink, surface)
        return style

    def _make(self, ink: str, surface: str) -> Style:
        name, _, attributes = ink.partition(" ")
        fore, _, ground = name.partition("/")
        ground = ground or surface
        bold, italic, underline = ("b" in attributes, "i" in attributes, "u" in attributes)
        if self.colours is None:
            quiet = fore in ("dim", "faint", "idle", "line") or "d" in attributes
            loud = bold or fore in ("bad", "warn")
            return Style(
                bold=loud,
                italic=italic,
                underline=underline,
                dim=quiet and not loud,
                reverse="r" in attributes or ground == "cursor" or fore == "app",
            )
        return Style(
            color=self._colour(fore or PLAIN),
            bgcolor=self._colour(ground) if ground else None,
            reverse="r" in attributes,
            bold=bold,
            italic=italic,
            underline=underline,
        )

    def _colour(self, name: str) -> Color:
        assert self.colours is not None
        first, _, share = name.partition("%")
        triplet = _triplet(str(getattr(self.colours, first)))
        if share:
            triplet = blend_rgb(_triplet(self.colours.pane), triplet, int(share) / 100)
        if self._fade and first not in ("pane", "app", "cursor", "raised"):
            triplet = blend_rgb(triplet, _triplet(self.colours.pane), self._fade)
        return Color.from_triplet(triplet)


def _triplet(text: str) -> ColorTriplet:
    return ColorTriplet(int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16))
