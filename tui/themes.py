"""The app's own themes: designed one by one, none inverted from another."""

from textual.theme import Theme

from tui.paint.palette import Colours

DARK = Colours(
    name="exoctl-dark",
    is_dark=True,
    app="#090c12",
    pane="#10151e",
    raised="#161c27",
    track="#222a38",
    line="#28313f",
    cursor="#1d2a3d",
    text="#d6dde8",
    dim="#8a96a8",
    faint="#566173",
    accent="#6cc4ff",
    master="#ffc65c",
    ok="#58a6ff",
    busy="#8bb8e8",
    warn="#ff9f43",
    bad="#ff5c93",
    idle="#7d889a",
    code="#0c1018",
    hue0="#2fc6ad",
    hue1="#a08cf7",
    hue2="#b9d84c",
    hue3="#7fdbff",
    hue4="#d8c38c",
    hue5="#4fb56f",
    hue6="#d9a6ec",
    hue7="#93a9c9",
)

LIGHT = Colours(
    name="exoctl-light",
    is_dark=False,
    app="#dfe4ea",
    pane="#f7f9fb",
    raised="#ffffff",
    track="#dde3ea",
    line="#c3ccd6",
    cursor="#dbe9fa",
    text="#1a2330",
    dim="#525e6f",
    faint="#8995a4",
    accent="#005fb8",
    master="#8a5a00",
    ok="#0058b0",
    busy="#2f6396",
    warn="#a34700",
    bad="#b8004e",
    idle="#5d6877",
    code="#edf1f5",
    hue0="#006775",
    hue1="#5b3fc4",
    hue2="#495c00",
    hue3="#83495a",
    hue4="#745e20",
    hue5="#1b733a",
    hue6="#8e3fa6",
    hue7="#4a6080",
)

CONTRAST = Colours(
    name="exoctl-contrast",
    is_dark=True,
    app="#000000",
    pane="#000000",
    raised="#101010",
    track="#3a3a3a",
    line="#8c8c8c",
    cursor="#003a70",
    text="#ffffff",
    dim="#d0d0d0",
    faint="#a0a0a0",
    accent="#6fd0ff",
    master="#ffd75f",
    ok="#6fb7ff",
    busy="#a8d4ff",
    warn="#ffb84d",
    bad="#ff86b3",
    idle="#c4c4c4",
    code="#101010",
    hue0="#3df0d0",
    hue1="#c0b0ff",
    hue2="#d4f25f",
    hue3="#7fdfff",
    hue4="#ffe9b0",
    hue5="#6fe08f",
    hue6="#f0c4ff",
    hue7="#bcd0f0",
)

COLOUR_BLIND = Colours(
    name="exoctl-cb",
    is_dark=True,
    app="#07090d",
    pane="#0e131b",
    raised="#161d28",
    track="#232d3c",
    line="#2f3a4a",
    cursor="#1b3350",
    text="#f0f3f8",
    dim="#a3afc0",
    faint="#6c7a8e",
    accent="#56b4e9",
    master="#ffffff",
    ok="#56b4e9",
    busy="#9fd0f0",
    warn="#e69f00",
    bad="#ff7a1a",
    idle="#8794a6",
    code="#0a0e15",
    hue0="#8cc7f2",
    hue1="#f0b95c",
    hue2="#ffffff",
    hue3="#3d8fd6",
    hue4="#c78a2c",
    hue5="#b9c6d6",
    hue6="#bfe3ff",
    hue7="#ffd9a0",
)
"""Blue, orange, black and white alone: told apart by protan, deutan and tritan eyes."""

OWN: dict[str, Colours] = {theme.name: theme for theme in (DARK, LIGHT, CONTRAST, COLOUR_BLIND)}
DEFAULT = DARK.name
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
