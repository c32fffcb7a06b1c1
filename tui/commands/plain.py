"""Plain tables that fit the terminal, and text that can't harm it."""

import unicodedata
from collections.abc import Sequence

import msgspec

from tui.viewmodel.text import clean

_GAP = "  "
_READABLE = 20
"""Cells that a column keeps as long as another can be left out instead."""
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
    extra: bool = False
    """Left out where the terminal is narrow."""


class Table(msgspec.Struct, frozen=True):
    """Columns and the rows under them, cell for cell."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str = ""
    """Said to the person where there are no rows."""


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
    """The table's lines, its titles first. `width` 0 cuts nothing.

    Where it is too wide, columns that may be cut are, then extra ones are left out from the right.
    """
    cells = [[clean(cell) for cell in row] for row in table.rows]
    widths = [
        max([cell_width(column.title), *(cell_width(row[place]) for row in cells)])
        for place, column in enumerate(table.columns)
    ]
    shown = [
        place
        for place, column in enumerate(table.columns)
        if (wide or not column.wide) and (not cells or any(row[place] for row in cells))
    ]
    if width:
        shown = _fit(table.columns, shown, widths, width)
    columns = [table.columns[place] for place in shown]
    fitted = [widths[place] for place in shown]
    titles = [column.title for column in columns]
    return [
        _line(columns, titles, fitted, colour=False),
        *(_line(columns, [row[i] for i in shown], fitted, colour=colour) for row in cells),
    ]


def _fit(columns: Sequence[Column], shown: list[int], widths: list[int], width: int) -> list[int]:
    """The places of the columns that stay; the widths of those that are cut are changed."""
    _shrink(columns, shown, widths, (width, _READABLE))
    for place in [place for place in reversed(shown) if columns[place].extra]:
        if _excess(shown, widths, width) > 0:
            shown = [each for each in shown if each != place]
    _shrink(columns, shown, widths, (width, _SHRUNK_MIN))
    return shown


def _excess(shown: Sequence[int], widths: Sequence[int], width: int) -> int:
    return sum(widths[place] for place in shown) + len(_GAP) * (len(shown) - 1) - width


def _shrink(
    columns: Sequence[Column], shown: Sequence[int], widths: list[int], limits: tuple[int, int]
) -> None:
    width, least = limits
    candidates = [place for place in shown if columns[place].shrinks]
    while candidates and _excess(shown, widths, width) > 0:
        widest = max(candidates, key=lambda place: widths[place])
        if widths[widest] <= least:
            return
        widths[widest] -= 1


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
