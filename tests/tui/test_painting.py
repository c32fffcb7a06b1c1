"""Canvas, bars, palette, themes: what they draw, in colour, without colour, in ASCII."""

from itertools import combinations

import pytest
from rich.color import Color, ColorSystem
from rich.color_triplet import ColorTriplet

from tests.fakes.cluster import five_node_cluster
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import screen_svg, screen_text, settle
from tui.actions.everywhere import VIEWS
from tui.app_options import AppOptions
from tui.paint.bars import bar, columns, graph, line, runs, stacked
from tui.paint.canvas import Canvas
from tui.paint.markdown import MarkdownPainter
from tui.paint.palette import Colours, Palette
from tui.themes import DEFAULT, OWN
from tui.viewmodel import glyphs

HUES = [f"hue{place}" for place in range(8)]


def luminance(colour: str) -> float:
    def linear(part: int) -> float:
        share = part / 255
        return share / 12.92 if share <= 0.03928 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", OWN.values(), ids=list(OWN))
def test_text_stands_out_from_every_ground(theme: Colours) -> None:
    inks = ("text", "dim", "accent", "master", "ok", "busy", "warn", "bad", *HUES)
    for ground in ("app", "pane", "raised"):
        for ink in inks:
            ratio = contrast(str(getattr(theme, ink)), str(getattr(theme, ground)))
            assert ratio >= 4.5, f"{theme.name}: {ink} on {ground} is {ratio:.2f}"
    for ink in ("text", "accent"):
        assert contrast(str(getattr(theme, ink)), theme.cursor) >= 4.5


@pytest.mark.parametrize("theme", OWN.values(), ids=list(OWN))
def test_bars_stand_out_from_their_track(theme: Colours) -> None:
    for ink in (*HUES, "accent"):
        ratio = contrast(str(getattr(theme, ink)), theme.track)
        assert ratio >= 3.0, f"{theme.name}: {ink} on its track is {ratio:.2f}"
    assert contrast(theme.faint, theme.pane) >= 2.5


@pytest.mark.parametrize("theme", OWN.values(), ids=list(OWN))
def test_hues_stay_apart_with_256_colours_and_from_the_status_colours(theme: Colours) -> None:
    def eight_bit(name: str) -> int | None:
        return Color.parse(str(getattr(theme, name))).downgrade(ColorSystem.EIGHT_BIT).number

    for one, other in combinations([*HUES, "ok", "warn", "bad"], 2):
        assert eight_bit(one) != eight_bit(other), f"{theme.name}: {one} and {other}"


def canvas(width: int = 20, height: int = 3, *, colours: Colours | None = OWN[DEFAULT]) -> Canvas:
    return Canvas(width, height, Palette(colours))


def test_what_falls_outside_is_cut_off() -> None:
    board = canvas(5, 2)
    board.put(3, 0, "hello")
    board.put(-2, 1, "hello")
    board.put(0, 7, "hello")
    assert board.text() == "   he\nllo"
    assert board.right(5, 1, "ab") == 3
    assert board.text() == "   he\nlloab"


def test_wide_characters_take_two_cells_and_are_never_cut_in_half() -> None:
    board = canvas(5, 1)
    board.put(0, 0, "日本語")
    strip = board.strips()[0]
    assert strip.cell_length == 5
    assert strip.text.rstrip() == "日本"


def test_strips_have_the_width_of_the_canvas_whatever_is_drawn() -> None:
    board = canvas(17, 4)
    bar(board, (2, 0), 30, 0.7, "hue1")
    stacked(board, (0, 1), 17, [(3.3, "hue0"), (4.2, "hue2"), (99, "hue3")])
    runs(board, (0, 2), 17, [(1.0, "hue0"), (60.0, "hue1")], 0.5)
    line(board, (0, 3), 17, 1.7, "hue4")
    assert all(strip.cell_length == 17 for strip in board.strips())


def grounds(board: Canvas, row: int = 0) -> list[str]:
    found: list[str] = []
    for segment in board.strips()[row]:
        colour = segment.style.bgcolor if segment.style else None
        name = colour.name if colour else ""
        found += [name] * len(segment.text)
    return found


def test_a_bar_is_filled_to_its_fraction_in_eighths() -> None:
    board = canvas(10, 1)
    bar(board, (0, 0), 10, 0.5, "hue0")
    assert grounds(board) == [OWN[DEFAULT].hue0] * 5 + [OWN[DEFAULT].track] * 5
    board = canvas(8, 1)
    bar(board, (0, 0), 8, 1 / 64, "hue0")
    assert board.at(0, 0) == glyphs.EIGHTHS[1]
    full = canvas(4, 1)
    bar(full, (0, 0), 4, 7.0, "hue0")
    assert grounds(full) == [OWN[DEFAULT].hue0] * 4


def test_runs_fill_the_width_in_proportion_and_are_parted() -> None:
    board = canvas(20, 1)
    spans = runs(board, (0, 0), 20, [(3.0, "hue0"), (1.0, "hue1")])
    assert spans == [(0, 15), (15, 5)]
    assert board.at(15, 0) == glyphs.HAIRLINE
    assert runs(board, (0, 0), 20, []) == []


def test_without_colour_bars_are_hatched_and_differ() -> None:
    board = canvas(10, 2, colours=None)
    stacked(board, (0, 0), 10, [(4, "hue0"), (4, "hue1")])
    assert board.text().split("\n")[0] == "████▓▓▓▓░░"
    graph(board, (0, 1), (10, 1), [0.1, 0.5, 1.0], "hue0")
    assert len(set(board.text().split("\n")[1].strip())) == 3
    assert all(
        segment.style is None or segment.style.color is None
        for strip in board.strips()
        for segment in strip
    )


def test_columns_keep_the_newest_at_the_right() -> None:
    board = canvas(6, 1)
    columns(board, (0, 0), 6, [0.0] * 10 + [1.0], "hue0")
    assert board.at(5, 0) == glyphs.COLUMNS[8]
    assert board.at(4, 0) == glyphs.COLUMNS[1]


def test_stale_inks_go_back_towards_the_ground() -> None:
    palette = Palette(OWN[DEFAULT])

    def ratio(which: Palette) -> float:
        colour = which.style("text").color
        assert colour is not None
        triplet = colour.triplet
        assert isinstance(triplet, ColorTriplet)
        return contrast(triplet.hex, OWN[DEFAULT].pane)

    assert ratio(palette.faded) < ratio(palette) / 2
    assert palette.faded is palette.faded


@pytest.mark.parametrize("view", [name for name, _ in VIEWS])
async def test_ascii_alone_draws_no_byte_over_127(view: str) -> None:
    options = AppOptions(animations=False, ascii=True, view=view)
    play = Screenplay(five_node_cluster(), options)
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        if view == "chat":
            await pilot.press(*"why", "enter")
        if view == "overview":
            await pilot.press("q")
        if view == "events":
            await pilot.press("enter")
        await settle(play, pilot)
        shown = screen_text(play.app)
        strange = sorted({character for character in shown if not character.isascii()})
        assert strange == [], shown
    play.close()


def test_every_glyph_has_a_stand_in() -> None:
    for name, value in vars(glyphs).items():
        if name.isupper() and isinstance(value, str):
            assert glyphs.ascii_only(value).isascii()
            assert "?" not in glyphs.ascii_only(value), name


async def test_no_colour_sends_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    play = Screenplay(five_node_cluster())
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        assert play.app.theme == "ansi-dark"
        assert "FAILED" in screen_text(play.app)
        assert play.app.context is not None
        assert not play.app.context.palette.has_colour
    play.close()


async def test_themes_change_the_picture_at_once() -> None:
    play = Screenplay(five_node_cluster())
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        pictures = [screen_svg(play.app)]
        for _ in range(2):
            await pilot.press("f2")
            await settle(play, pilot)
            pictures.append(screen_svg(play.app))
        assert len(set(pictures)) == 3
        assert OWN[DEFAULT].pane in pictures[0]
        assert play.app.theme == "exoctl-contrast"
        assert play.app.main is not None
        play.app.main.run_line("theme light")
        await settle(play, pilot)
        assert play.app.theme == "exoctl-light"
    play.close()


def test_markdown_keeps_every_word_within_the_width() -> None:
    painter = MarkdownPainter(Palette(OWN[DEFAULT]))
    source = "# Head\n\nSome *words* and `code`.\n\n```python\nx = 1\n```\n\n"
    source += "| a | b |\n|---|---|\n| 1 | 2 |"
    lines = painter.lines(source, 30)
    shown = ["".join(part.text for part in line) for line in lines]
    assert max(len(line.rstrip()) for line in shown) <= 30
    whole = "\n".join(shown)
    for word in ("Head", "words", "code", "x = 1", "python", "a", "2"):
        assert word in whole
    assert shown[0].strip()
    assert shown[-1].strip()
