"""The app's own themes: designed one by one, none inverted from another."""

from textual.theme import Theme

from tui.paint.palette import Colours

_NAMES = ("exoctl-dark", "exoctl-light", "exoctl-contrast", "exoctl-cb")
"""The last is blue, orange, black and white alone: protan, deutan and tritan eyes tell it apart."""
_LIGHT = "exoctl-light"

_COLOURS: dict[str, tuple[str, str, str, str]] = {
    "app": ("#090c12", "#dfe4ea", "#000000", "#07090d"),
    "pane": ("#10151e", "#f7f9fb", "#000000", "#0e131b"),
    "raised": ("#161c27", "#ffffff", "#101010", "#161d28"),
    "track": ("#222a38", "#dde3ea", "#3a3a3a", "#232d3c"),
    "line": ("#28313f", "#c3ccd6", "#8c8c8c", "#2f3a4a"),
    "cursor": ("#1d2a3d", "#dbe9fa", "#003a70", "#1b3350"),
    "text": ("#d6dde8", "#1a2330", "#ffffff", "#f0f3f8"),
    "dim": ("#8a96a8", "#525e6f", "#d0d0d0", "#a3afc0"),
    "faint": ("#566173", "#8995a4", "#a0a0a0", "#6c7a8e"),
    "accent": ("#6cc4ff", "#005fb8", "#6fd0ff", "#56b4e9"),
    "master": ("#ffc65c", "#8a5a00", "#ffd75f", "#ffffff"),
    "ok": ("#58a6ff", "#0058b0", "#6fb7ff", "#56b4e9"),
    "busy": ("#8bb8e8", "#2f6396", "#a8d4ff", "#9fd0f0"),
    "warn": ("#ff9f43", "#a34700", "#ffb84d", "#e69f00"),
    "bad": ("#ff5c93", "#b8004e", "#ff86b3", "#ff7a1a"),
    "idle": ("#7d889a", "#5d6877", "#c4c4c4", "#8794a6"),
    "code": ("#0c1018", "#edf1f5", "#101010", "#0a0e15"),
    "hue0": ("#2fc6ad", "#006775", "#3df0d0", "#8cc7f2"),
    "hue1": ("#a08cf7", "#5b3fc4", "#c0b0ff", "#f0b95c"),
    "hue2": ("#b9d84c", "#495c00", "#d4f25f", "#ffffff"),
    "hue3": ("#7fdbff", "#83495a", "#7fdfff", "#3d8fd6"),
    "hue4": ("#d8c38c", "#745e20", "#ffe9b0", "#c78a2c"),
    "hue5": ("#4fb56f", "#1b733a", "#6fe08f", "#b9c6d6"),
    "hue6": ("#d9a6ec", "#8e3fa6", "#f0c4ff", "#bfe3ff"),
    "hue7": ("#93a9c9", "#4a6080", "#bcd0f0", "#ffd9a0"),
}
"""By use: the colour in each theme, in the order of their names."""

OWN: dict[str, Colours] = {
    name: Colours(
        name=name,
        is_dark=name != _LIGHT,
        **{use: colours[place] for use, colours in _COLOURS.items()},
    )
    for place, name in enumerate(_NAMES)
}
DEFAULT = _NAMES[0]
COLOURLESS = "ansi-dark"
"""Textual's theme that sends no colours where NO_COLOR is set."""

_VARIABLES = (
    "app",
    "pane",
    "raised",
    "track",
    "line",
    "cursor",
    "dim",
    "faint",
    "master",
    "bad",
    "warn",
    "ok",
)


def textual_theme(colours: Colours) -> Theme:
    """The theme that Textual's own widgets take."""
    return Theme(
        name=colours.name,
        primary=colours.accent,
        secondary=colours.ok,
        accent=colours.accent,
        warning=colours.warn,
        error=colours.bad,
        success=colours.ok,
        foreground=colours.text,
        background=colours.app,
        surface=colours.pane,
        panel=colours.raised,
        dark=colours.is_dark,
        variables={name: str(getattr(colours, name)) for name in _VARIABLES}
        | {
            "block-cursor-background": colours.accent,
            "block-cursor-foreground": colours.app,
            "input-cursor-background": colours.accent,
            "input-cursor-foreground": colours.app,
            "input-selection-background": colours.cursor,
            "screen-selection-background": colours.cursor,
        },
    )


def default_variables() -> dict[str, str]:
    """Values of our variables where a theme does not define them."""
    return dict.fromkeys(_VARIABLES, "ansi_default")
