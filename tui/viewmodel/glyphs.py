"""Every glyph that is drawn, by name, and what stands for it where only ASCII may be."""

CROSS = "\u00d7"
EN_DASH = "\u2013"
EM_DASH = "\u2014"
DOT = "\u00b7"
ELLIPSIS = "\u2026"
DEGREE = "\u00b0"
APPROX = "\u2248"
AT_LEAST = "\u2265"
FULL_CIRCLE = "\u25cf"
OPEN_CIRCLE = "\u25cb"
HALF_CIRCLE = "\u25d0"
DIAMOND = "\u25c6"
UP = "\u25b2"
DOWN = "\u25bc"
RIGHT = "\u25b6"
LEFT = "\u25c0"
SQUARE = "\u25a0"
CHECK = "\u2713"
ARROW = "\u2192"
ARROW_UP = "\u2191"
ARROW_DOWN = "\u2193"
FULL = "\u2588"
LEFT_BAR = "\u258e"
HAIRLINE = "\u258f"
EIGHTHS = " \u258f\u258e\u258d\u258c\u258b\u258a\u2589\u2588"
COLUMNS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
LIGHT_SHADE = "\u2591"
DARK_SHADE = "\u2593"

HALF_HEAVY = "\u2578"
THIN, HEAVY, DASHED = "\u2500", "\u2501", "\u2504"
THIN_DOWN, HEAVY_DOWN, DASHED_DOWN = "\u2502", "\u2503", "\u2506"
ROUND = "\u256d\u256e\u2570\u256f"
"""Corners: top left, top right, bottom left, bottom right."""

ASCII = str.maketrans(
    {
        CROSS: "x",
        EN_DASH: "-",
        EM_DASH: "-",
        DOT: ".",
        ELLIPSIS: "~",
        DEGREE: " ",
        APPROX: "~",
        AT_LEAST: ">",
        FULL_CIRCLE: "*",
        OPEN_CIRCLE: "o",
        HALF_CIRCLE: "%",
        DIAMOND: "@",
        UP: "^",
        DOWN: "v",
        RIGHT: ">",
        LEFT: "<",
        SQUARE: "#",
        CHECK: "+",
        ARROW: ">",
        ARROW_UP: "^",
        ARROW_DOWN: "v",
        LEFT_BAR: "|",
        HAIRLINE: "|",
        LIGHT_SHADE: ".",
        DARK_SHADE: "=",
        THIN: "-",
        HEAVY: "=",
        HALF_HEAVY: "=",
        DASHED: "-",
        THIN_DOWN: "|",
        HEAVY_DOWN: "|",
        DASHED_DOWN: ":",
        **dict.fromkeys(ROUND, "+"),
        **dict.fromkeys(EIGHTHS[3:], "#"),
        **dict(zip(COLUMNS[1:], "__..--##", strict=True)),
        "\u2550": "=",
        "\u2590": "|",
        "\u2595": "|",
    }
)


def ascii_only(text: str) -> str:
    """The text without any byte over 127: known glyphs have stand-ins, all others are `?`."""
    if text.isascii():
        return text
    return text.translate(ASCII).encode("ascii", "replace").decode()
