"""Wide characters: cells are counted, not characters."""

import pytest
from rich.cells import cell_len

from tui.paint.canvas import Canvas
from tui.paint.palette import Palette
from tui.viewmodel import text

WIDE = "\u6f22\u5b57" * 20
ACCENTED = "e\u0301" * 30


@pytest.mark.parametrize("words", [WIDE, ACCENTED, f"a {WIDE} b"], ids=["wide", "accent", "mixed"])
@pytest.mark.parametrize("width", [1, 7, 12, 60])
def test_lines_and_names_are_never_wider_than_their_room(words: str, width: int) -> None:
    if width > 1:
        assert all(cell_len(line) <= width for line in text.wrap(words, width))
    assert cell_len(text.shorten(words, width)) <= width
    assert cell_len(text.middle(words, width)) <= width
    whole = "".join(text.wrap(words, width)).replace(" ", "")
    assert whole == words.replace(" ", "")


def test_padding_counts_cells() -> None:
    assert cell_len(text.pad("\u6f22", 6)) == 6


@pytest.mark.parametrize("start", range(9))
def test_a_wide_character_that_is_written_over_leaves_no_half(start: int) -> None:
    canvas = Canvas(20, 1, Palette(None))
    canvas.put(2, 0, "\u6f22\u5b57\u6f22\u5b57")
    canvas.put(start, 0, "gap")
    strip = canvas.strips()[0]
    assert cell_len(strip.text) == strip.cell_length == 20
    assert "gap" in strip.text


def test_wide_characters_with_accents_take_their_cells() -> None:
    canvas = Canvas(10, 1, Palette(None))
    assert canvas.put(0, 0, "\u6f22\u0301") == 2
    assert cell_len(canvas.strips()[0].text) == 10
