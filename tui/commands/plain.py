"""Plain tables that fit the terminal, and text that can't harm it."""

import unicodedata
from collections.abc import Sequence

import msgspec

_GAP = "  "
_SHRUNK_MIN = 8
_RESET = "\x1b[0m"
_GREEN, _YELLOW, _RED = "\x1b[32m", "\x1b[33m", "\x1b[31m"
_TONES = {
    _GREEN: {"ok", "ready", "running", "up", "done", "master", "complete", "yes", "decode"},
    _RED: {"failed", "fail", "lost", "down", "refused", "error", "no"},
    _YELLOW: {
        *("warn", "cordoned", "preparing", "connecting", "loading", "warming", "stopping"),
        *("queued", "prefill", "cancelled", "degraded", "downloading", "converting", "paused"),
        "partial",
    },
}  # fmt: skip


class Column(msgspec.Struct, frozen=True):
    """One column of a table."""

    title: str
    right: bool = False
    wide: bool = False
    """Shown with `-o wide` alone."""
    shrinks: bool = False
    """May be cut with an ellipsis where the terminal is narrow."""
    toned: bool = False
    """Its words are states and get a colour."""


class Table(msgspec.Struct, frozen=True):
    """Columns and the rows under them, cell for cell."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str = ""
    """Said to the person where there are no rows."""


def clean(text: str, *, keep: str = "") -> str:
    """The text with control characters replaced, so that no name or token moves the cursor."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in ("Cc", "Cs")
        else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


def cell_width(text: str) -> int:
    """Cells that the text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.combining(character)
        else 2
        if unicodedata.east_asian_width(character) in "WF"
        else 1
        for character in text
    )


def shorten(text: str, cells: int) -> str:
    """The text cut to so many cells, with an ellipsis where something is missing."""
    if cell_width(text) <= cells:
        return text
    kept, used = "", 1
    for character in text:
        used += cell_width(character)
        if used > cells:
            break
        kept += character
    return kept + "…"


def tone(word: str) -> str:
    """The colour code of a state word; empty for words without one."""
    first = word.split(" ", 1)[0].lower()
    return next((code for code, words in _TONES.items() if first in words), "")


def coloured(text: str, level: str) -> str:
    """The text in the colour of a level: `ok`, `warn` and `bad` have one."""
    code = {"ok": _GREEN, "warn": _YELLOW, "bad": _RED}.get(level, "")
    return f"{code}{text}{_RESET}" if code else text


def render(table: Table, *, width: int, colour: bool, wide: bool) -> list[str]:
    """The table's lines, its titles first. `width` 0 cuts nothing."""
    shown = [i for i, column in enumerate(table.columns) if wide or not column.wide]
    columns = [table.columns[i] for i in shown]
    rows = [[clean(row[i]) for i in shown] for row in table.rows]
    widths = [
        max(cell_width(column.title), *(cell_width(row[i]) for row in rows), 0)
        for i, column in enumerate(columns)
    ]
    if width:
        _shrink(columns, widths, width)
    lines = [_line(columns, [column.title for column in columns], widths, colour=False)]
    lines += [_line(columns, row, widths, colour=colour) for row in rows]
    return lines


def _shrink(columns: Sequence[Column], widths: list[int], width: int) -> None:
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    candidates = [i for i, column in enumerate(columns) if column.shrinks]
    while excess > 0 and candidates:
        widest = max(candidates, key=lambda i: widths[i])
        if widths[widest] <= _SHRUNK_MIN:
            return
        widths[widest] -= 1
        excess -= 1


def _line(
    columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int], *, colour: bool
) -> str:
    parts: list[str] = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        text = shorten(cell, width)
        padding = " " * (width - cell_width(text))
        code = tone(text) if colour and column.toned else ""
        text = f"{code}{text}{_RESET}" if code else text
        parts.append(padding + text if column.right else text + padding)
    return _GAP.join(parts).rstrip()
