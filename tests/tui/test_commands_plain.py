"""Tables, units and the JSON of values."""

import enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model.errors import ExoctlError
from node.model.machine import Address
from node.model.register import LinkRecord, MachineFigures
from node.model.session import Session
from tests.fakes.cluster import node_id
from tests.fakes.fake_handle import make_machine_figures
from tui.commands.jsonable import fields_of, jsonable
from tui.commands.plain import Column, Table, cell_width, render, shorten
from tui.commands.units import (
    bytes_text,
    clock_text,
    count_text,
    duration_text,
    parse_duration,
    parse_tokens,
    rfc3339,
    tokens_text,
)
from tui.viewmodel.text import clean


def shown(width: int, *rows: tuple[str, ...]) -> list[str]:
    columns = (
        Column("NAME", shrinks=True),
        Column("N", right=True),
        Column("NOTE", shrinks=True, extra=True),
        Column("MORE", wide=True),
    )
    return render(Table(columns, rows), width=width, colour=False, wide=False)


def test_columns_are_as_wide_as_their_widest_cell_and_no_wider() -> None:
    assert shown(0, ("a", "1", "x", "m"), ("bbbbbb", "22", "yy", "m")) == [
        "NAME     N  NOTE",
        "a        1  x",
        "bbbbbb  22  yy",
    ]


def test_too_wide_a_table_cuts_then_leaves_out_then_cuts_more() -> None:
    row = ("n" * 40, "1", "o" * 40, "m")
    name, number, note = shown(60, row)[1].split()
    assert (name[-1], number, note[-1]) == ("…", "1", "…")
    assert abs(len(name) - len(note)) <= 1
    assert max(map(len, shown(60, row))) == 60
    assert "NOTE" not in shown(40, row)[0]
    assert shown(14, row)[1] == f"{'n' * 10}…  1"
    assert shown(3, row)[1] == f"{'n' * 7}…  1"


def test_a_column_without_a_single_value_is_left_out() -> None:
    assert shown(0, ("a", "1", "", "m"))[0] == "NAME  N"


def test_wide_characters_take_two_cells() -> None:
    lines = shown(0, ("机器", "1", "x", ""), ("abc", "2", "y", ""))
    assert [cell_width(line) for line in lines[1:]] == [cell_width(lines[2])] * 2
    assert shorten("机器学习", 5) == "机器…"
    assert cell_width("e\N{COMBINING ACUTE ACCENT}") == 1


@given(st.text(max_size=30), st.integers(1, 30))
def test_shortened_text_fits_and_unshortened_is_whole(text: str, cells: int) -> None:
    short = shorten(text, cells)
    assert cell_width(short) <= max(cells, 1)
    assert short == text or short.endswith("…")


@given(st.text(max_size=40))
def test_clean_text_has_no_control_character(text: str) -> None:
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in clean(text))


@given(
    st.lists(st.tuples(st.text(max_size=30), st.text(max_size=9)), max_size=5), st.integers(0, 80)
)
def test_any_cells_make_a_table_of_one_line_each(rows: list[tuple[str, str]], width: int) -> None:
    columns = (Column("A", shrinks=True), Column("B", right=True))
    lines = render(Table(columns, tuple(rows)), width=width, colour=False, wide=False)
    assert len(lines) == len(rows) + 1
    assert not any("\n" in line or "\x1b" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("1.5m", 90), ("2h", 7200), ("250ms", 0.25), ("1d", 86400)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1", "1w", "1 s", "nan", "1e9"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ExoctlError):
        parse_duration(text)


def test_tokens() -> None:
    assert (parse_tokens("4096"), parse_tokens("32k"), parse_tokens("8K")) == (4096, 32768, 8192)
    assert (tokens_text(32768), tokens_text(1000), tokens_text(0)) == ("32k", "1000", "0")
    for text in ("", "k", "-1", "1.5k", "4m"):
        with pytest.raises(ExoctlError):
            parse_tokens(text)


def test_quantities_in_words() -> None:
    assert [bytes_text(n) for n in (0, 999, 119_000_000, 1_900_000_000, -3_200_000_000)] == [
        "0 B",
        "999 B",
        "119 MB",
        "1.9 GB",
        "-3.2 GB",
    ]
    assert [count_text(n) for n in (12, 1500, 134_515_008, 8_030_000_000)] == [
        "12",
        "1.5k",
        "135M",
        "8.0B",
    ]
    assert [duration_text(s) for s in (-1, 0.34, 12.2, 200, 7500, 356_400)] == [
        "0.00 s",
        "0.34 s",
        "12 s",
        "3m 20s",
        "2h 5m",
        "4d 3h",
    ]


def test_times() -> None:
    assert rfc3339(1_700_000_000.5) == "2023-11-14T22:13:20.500Z"
    assert rfc3339(0) is None
    assert rfc3339(1e300) is None
    assert len(clock_text(1_700_000_000.5)) == len(clock_text(0)) == len(clock_text(1e300)) == 12


class Word(enum.Enum):
    READY = "ready"


def test_values_become_plain_json() -> None:
    assert jsonable(Address("::1", 5)) == "[::1]:5"
    assert jsonable(Session(term=3, master=node_id("a"), incarnation=1)) == {
        "term": 3,
        "master": node_id("a"),
        "incarnation": 1,
    }
    assert jsonable({"a": (Word.READY, b"\xff", None)}) == {"a": ["ready", "/w==", None]}
    assert fields_of(make_machine_figures())["type"] == MachineFigures.__name__
    link = LinkRecord(peer=node_id("b"), address=Address("h", 1), up=True, since=1_700_000_000.0)
    assert fields_of(link)["since"] == "2023-11-14T22:13:20.000Z"
    assert fields_of(link)["rtt_seconds"] is None
