"""Tables: sorted by any column, columns left out, and the way through what a filter found."""

from pathlib import Path

import pytest

from node.handle import LogLine
from node.model.errors import UnreachableError
from tests.fakes.cluster import NOW, five_node_cluster, three_node_cluster
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import screen_text, settle, until_shown
from tui.app_options import AppOptions
from tui.viewmodel import glyphs
from tui.viewmodel.matching import hits
from tui.viewmodel.sorting import find_column, next_column, ordered
from tui.widgets.event_log import EventLog
from tui.widgets.log_view import LogView
from tui.widgets.model_table import ModelTable
from tui.widgets.node_table import NodeTable


def test_figures_fall_words_rise_and_what_is_not_known_stays_last_either_way() -> None:
    figures = [3.0, None, 9.0, 1.0]
    assert ordered(figures, lambda row: row) == [9.0, 3.0, 1.0, None]
    assert ordered(figures, lambda row: row, backwards=True) == [1.0, 3.0, 9.0, None]
    words = ["mini", "Air", None, "studio"]
    assert ordered(words, lambda row: row) == ["Air", "mini", "studio", None]
    assert ordered(words, lambda row: row, backwards=True) == ["studio", "mini", "Air", None]
    assert ordered([(1, "b"), (1, "a")], lambda row: float(row[0])) == [(1, "b"), (1, "a")]


def test_columns_go_round_and_are_found_by_their_beginning() -> None:
    assert next_column(("node", "lag"), "") == "node"
    assert next_column(("node", "lag"), "node") == "lag"
    assert next_column(("node", "lag"), "lag") == ""
    assert next_column(("node", "lag"), "gone") == "node"
    assert find_column(("load", "lag", "layers"), "LO") == "load"
    assert find_column(("load", "lag", "layers"), "la") is None
    assert find_column(("load", "lag", "layers"), "lag") == "lag"
    assert find_column(("load",), "") is None


def test_hits_are_where_the_words_are_and_nowhere_for_what_must_not_be_there() -> None:
    line = "RunnerChanged  r-1  ready on north"
    assert hits("runner", line) == [(0, 6)]
    assert hits("RE on", line) == [(20, 22), (26, 28)]
    assert hits("/r-\\d/", line) == [(15, 18)]
    assert hits("!north ~rdy /[/ /x*/", line) == []
    assert hits("a+b", "a+b aab") == [(0, 3)]


async def test_what_the_filter_found_is_underlined() -> None:
    play = Screenplay(three_node_cluster(), AppOptions(animations=False, view="events"))
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        assert play.app.main is not None
        log = play.app.main.query_one("#events-log", EventLog)

        def underlined() -> set[str]:
            return {
                segment.text
                for strip in log.strips
                for segment in strip
                if segment.style is not None and segment.style.underline
            }

        assert underlined() == set()
        play.app.main.perform("global.filter", "admitted !mini")
        await settle(play, pilot)
        assert underlined() == {"Admitted"}
        await pilot.press("escape")
        await settle(play, pilot)
        assert underlined() == set()
    play.close()


async def test_a_table_is_sorted_turned_round_and_back_as_it_came() -> None:
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view="nodes"))
    async with play.app.run_test(size=(120, 40), notifications=True) as pilot:
        play.start()
        await settle(play, pilot)
        assert play.app.main is not None
        table = play.app.main.query_one(NodeTable)
        as_they_came = [row.name for row in table.rows]
        await pilot.press("down")
        chosen = table.key_of(table.cursor)
        await pilot.press("s")
        assert [row.name for row in table.rows] == sorted(as_they_came)
        assert table.key_of(table.cursor) == chosen
        assert "by node" in screen_text(play.app)
        await pilot.press("S")
        assert [row.name for row in table.rows] == sorted(as_they_came, reverse=True)
        play.app.main.run_line("sort load")
        await settle(play, pilot)
        loads = [row.load for row in table.rows if row.has_figures]
        assert loads == sorted(loads, reverse=True)
        play.app.main.run_line("sort load")
        await settle(play, pilot)
        assert [row.load for row in table.rows if row.has_figures] == sorted(loads)
        play.app.main.run_line("sort nonsense")
        await until_shown(play, pilot, "it can be sorted")
        play.app.main.run_line("sort version")
        await pilot.press("s")  # labels: the last
        await pilot.press("s")
        assert [row.name for row in table.rows] == as_they_came
    play.close()


async def test_columns_are_left_out_and_their_room_goes_to_others() -> None:
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view="nodes"))
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        assert "temp" not in screen_text(play.app).splitlines()[3]
        await pilot.press("o", "down", "space", "down", "down", "space")
        await settle(play, pilot)
        assert "11 of 13" in screen_text(play.app)
        await pilot.press("s", "escape")
        await settle(play, pilot)
        heads = next(line for line in screen_text(play.app).splitlines() if "status" in line)
        assert "memory" not in heads
        assert "layers" not in heads
        assert "temp" in heads
        assert play.app.main is not None
        assert play.app.main.query_one(NodeTable).sort_by == ""  # a hidden column sorts nothing
    play.close()


async def test_nodes_that_find_no_room_beside_a_model_are_counted() -> None:
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view="models"))
    async with play.app.run_test(size=(80, 24)) as pilot:
        play.start()
        await settle(play, pilot)
        assert play.app.main is not None
        facts, nodes = play.app.main.query_one(ModelTable).columns
        assert [name for name, _ in facts] == ["size"]
        assert nodes < 5
        heads = next(line for line in screen_text(play.app).splitlines() if "memory now" in line)
        assert f"+{5 - nodes}" in heads
    play.close()


async def test_n_goes_on_to_the_next_hit_while_a_filter_is_set_and_places_a_model_otherwise() -> (
    None
):
    play = Screenplay(three_node_cluster(), AppOptions(animations=False, view="events"))
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        assert play.app.main is not None
        log = play.app.main.query_one("#events-log", EventLog)
        play.app.main.perform("global.filter", "Runner")
        await settle(play, pilot)
        hits = log.count()
        assert 1 < hits < len(play.entries)
        await pilot.press("g", "n")
        assert log.cursor == 1
        await pilot.press("N", "N")
        assert log.cursor == hits - 1
        await pilot.press("n")
        assert log.cursor == 0
        assert len(play.app.screen_stack) == 2
        await pilot.press("escape", "n")
        await settle(play, pilot)
        assert len(play.app.screen_stack) == 3
    play.close()


async def test_a_setting_acts_at_once_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    path.write_text('# mine\n[node]\nname = "studio"\n')
    monkeypatch.setenv("EXOCTL_CONFIG", str(path))
    play = Screenplay(three_node_cluster())
    async with play.app.run_test(size=(80, 24)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("comma")
        await settle(play, pilot)
        assert "Settings" in screen_text(play.app)
        await pilot.press("right")
        await settle(play, pilot)
        assert play.app.theme == "exoctl-light"
        await pilot.press("down", "enter")
        await settle(play, pilot)
        assert all(ord(letter) < 128 for letter in screen_text(play.app))
        await pilot.press("down", "down", "down", "down", "left")
        await settle(play, pilot)
        await pilot.press("escape")
        await settle(play, pilot)
        assert len(play.app.screen_stack) == 2
    before = '# mine\n[node]\nname = "studio"\n\n'
    kept = '[app]\ntheme = "exoctl-light"\nascii = true\nview = "logs"\n'
    assert path.read_text() == before + kept
    play.close()


async def test_a_setting_that_can_not_be_kept_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EXOCTL_CONFIG", str(tmp_path / "file" / "config.toml"))
    play = Screenplay(three_node_cluster())
    async with play.app.run_test(size=(80, 24)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("comma", "right")
        await settle(play, pilot)
        assert "not kept" in screen_text(play.app)
    play.close()


async def test_links_are_measured_from_the_app_and_a_broken_one_says_why() -> None:
    play = Screenplay(three_node_cluster())
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("t")
        await settle(play, pilot)
        shown = screen_text(play.app)
        assert "Links · from studio-a" in shown
        assert shown.count(" ms ") >= 2
        await pilot.press("down", "b")
        await settle(play, pilot)
        assert "b/s" in screen_text(play.app)
        play.handle.failure = UnreachableError.because("gone", "no answer", "look at the cable")
        await pilot.press("t")
        await settle(play, pilot)
        assert "no answer; look at the cable" in screen_text(play.app)
    play.close()


async def shown_after(view: str, size: tuple[int, int], *keys: str) -> str:
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view=view))
    async with play.app.run_test(size=size) as pilot:
        play.start()
        await settle(play, pilot)
        for key in keys:
            await pilot.press(key)
            await settle(play, pilot)
        drawn = screen_text(play.app)
    play.close()
    return drawn


async def test_the_columns_dialog_says_which_columns_have_no_room() -> None:
    narrow = await shown_after("nodes", (80, 24), "o")
    assert narrow.count("no room at this width") >= 5
    assert "no node has a label" in narrow
    assert "6 seen" in narrow
    wide = await shown_after("nodes", (200, 60), "o")
    assert "no room" not in wide
    assert "12 seen" in wide
    assert "no room at this width" in await shown_after("models", (80, 24), "o")


async def test_events_are_narrowed_to_a_kind_and_to_a_node_and_widened_by_escape() -> None:
    kind = await shown_after("events", (120, 40), "t", "down", "down", "enter")
    assert "only NodeAdmitted" in kind
    log = kind[kind.index("only NodeAdmitted") :]
    assert "let in by" in log
    assert "RunnerChanged" not in log
    both = await shown_after("events", (120, 40), "t", "end", "enter", "o", "down", "enter")
    assert "by mini-2" in both or "by mbp-max" in both or "by mini-1" in both
    again = await shown_after("events", (120, 40), "t", "down", "down", "enter", "escape")
    assert "only NodeAdmitted" not in again
    assert "RunnerChanged" in again


async def test_the_rows_around_a_hit_are_seen_once_the_filter_is_cleared() -> None:
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view="events"))
    async with play.app.run_test(size=(100, 24)) as pilot:
        play.start()
        await settle(play, pilot)
        main = play.app.main
        assert main is not None
        log = main.query_one(EventLog)
        main.run_line("filter NodeAdmitted")
        await settle(play, pilot)
        await pilot.press("home", "down")
        await settle(play, pilot)
        hit = log.chosen
        assert hit is not None
        await pilot.press("escape")
        await settle(play, pilot)
        assert log.chosen == hit
        place = log.shown.index(hit)
        assert log.top < place < log.top + log.room - 1, "rows before it and behind it"
    play.close()


async def test_a_long_line_of_a_log_is_cut_or_whole_as_is_wanted() -> None:
    words = "the link broke because " + "of this and that " * 12 + "in the end"
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view="logs"))
    lines = [LogLine(at=NOW, level="info", source="node", text=part) for part in ("one", words)]
    async with play.app.run_test(size=(80, 24)) as pilot:
        play.start()
        await settle(play, pilot)
        assert play.app.main is not None
        view = play.app.main.query_one(LogView)
        view.show_lines(tuple(lines))
        view.focus()
        assert view.count() == 2
        view.wrap()
        assert view.count() > 4
        assert view.chosen is lines[1]
        shown = screen_text(play.app)
        await settle(play, pilot)
        view.show_lines(tuple(lines))
        shown = screen_text(play.app)
        assert "in the end" in shown
        assert glyphs.ELLIPSIS not in "".join(
            line for line in shown.split("\n") if "this and that" in line
        )
        assert len(view.shown) == 2, "saved as lines, not as rows"
        view.wrap()
        assert view.count() == 2
    play.close()
