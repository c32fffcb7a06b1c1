"""Keys, palette, `:` line and help are one truth."""

import pytest
from textual.pilot import Pilot

from node.model.command import CordonNode
from tests.fakes.cluster import five_node_cluster, three_node_cluster
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import screen_text, settle, until_shown
from tui.actions.action import Action, key_text
from tui.actions.catalogue import ACTIONS, SCOPE_TITLES
from tui.actions.everywhere import VIEWS
from tui.actions.keymap import MAY_SHARE, TABLES
from tui.actions.registry import BY_ID, complete, in_scope, parse
from tui.app_options import AppOptions
from tui.main_screen import MainScreen
from tui.widgets.event_log import EventLog

IDS = [action.id for action in ACTIONS]
ENDING = ("global.quit", "global.quit_now")
SCOPE_VIEWS = {"topology": "overview", "list": "events", "global": "overview", "table": "nodes"}


def test_every_action_has_a_key_and_a_command_of_its_own() -> None:
    assert len(set(IDS)) == len(IDS)
    words = [word for action in ACTIONS for word in (action.command, *action.aliases)]
    assert len(set(words)) == len(words)
    assert all(action.keys for action in ACTIONS)
    assert all(action.scope in SCOPE_TITLES for action in ACTIONS)


@pytest.mark.parametrize("scope", [scope for scope in SCOPE_TITLES if scope != "global"])
def test_no_key_means_two_things_in_one_place(scope: str) -> None:
    actions = [*in_scope(scope), *(in_scope("list") if scope not in ("list", "topology") else [])]
    actions += in_scope("table") if scope in TABLES and scope != "table" else []
    taken: dict[str, Action] = {}
    for action in [*actions, *in_scope("global")]:
        for key in action.keys:
            other = taken.setdefault(key, action)
            allowed = frozenset((other.id, action.id)) in MAY_SHARE
            assert other is action or allowed, f"{key}: {other.id} and {action.id}"


def not_saved(_app: object, _name: str | None) -> str:
    return "/dev/null"


async def come_back(play: Screenplay, pilot: Pilot[None], view: str) -> None:
    """No dialog, no command line, the view's own first pane; waits only for what has to change."""
    main = play.app.main
    assert main is not None
    while len(play.app.screen_stack) > 2:
        play.app.pop_screen()
        await settle(play, pilot)
    main.query_one("CommandLine").display = False
    if main.view_name != view:
        main.show_view(view)
        await settle(play, pilot)
    first = main.view.first_focus() if main.view else None
    if view == "chat":
        first = main.query_one("#chat-transcript")
    if first is not None and main.focused is not first:
        first.focus()
        await settle(play, pilot)


@pytest.mark.parametrize("scope", SCOPE_TITLES)
async def test_each_action_is_done_by_its_key_and_by_its_command(
    scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    real = MainScreen.perform

    def spy(self: MainScreen, action_id: str, argument: str = "") -> None:
        done.append(action_id)
        if action_id not in ENDING:
            real(self, action_id, argument)

    monkeypatch.setattr(MainScreen, "perform", spy)
    monkeypatch.setattr("tui.app.ExoctlApp.save_screenshot", not_saved)
    monkeypatch.setattr("tui.handlers.panes.EXPORT_NAME", "/dev/null")
    monkeypatch.setattr("tui.views.logs.SAVE_NAME", "/dev/null")
    view = SCOPE_VIEWS.get(scope, scope)
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view=view))
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        for action in in_scope(scope):
            await come_back(play, pilot, view)
            done.clear()
            await pilot.press(action.keys[0])
            await settle(play, pilot)
            assert action.id in done, action.id
            await come_back(play, pilot, view)
            assert play.app.main is not None
            done.clear()
            play.app.main.run_line(action.command)
            await settle(play, pilot)
            assert done[0] == action.id, action.id
    play.close()


@pytest.mark.parametrize("view", [name for name, _ in VIEWS])
async def test_help_lists_what_acts_in_the_view_and_nothing_else(view: str) -> None:
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view=view))
    async with play.app.run_test(size=(140, 60)) as pilot:
        play.start()
        await settle(play, pilot)
        assert play.app.main is not None
        scopes = {*play.app.main.scopes, "global", "list"}
        await pilot.press("f1")
        await settle(play, pilot)
        shown = screen_text(play.app)
        for action in ACTIONS:
            listed = f"{action.title}  :{action.command}" in shown
            digit = action.keys[0].isdigit()
            if not digit and action.scope != "list":
                assert listed == (action.scope in scopes), action.id
    play.close()


async def test_last_line_names_keys_of_what_has_the_focus() -> None:
    play = Screenplay(five_node_cluster())
    async with play.app.run_test(size=(160, 45)) as pilot:
        play.start()
        await settle(play, pilot)
        assert "next ring" in screen_text(play.app).split("\n")[-1]
        await pilot.press("tab")
        await settle(play, pilot)
        last = screen_text(play.app).split("\n")[-1]
        assert "stop" in last
        assert "next ring" not in last
    play.close()


def test_a_command_may_be_cut_short_where_it_stays_clear() -> None:
    assert complete("plac") == "place"
    assert complete("zz") is None
    parsed = parse("down")
    assert not isinstance(parsed, str)
    assert parsed.action.id == "list.down"
    parsed = parse("goto 182,403")
    assert not isinstance(parsed, str)
    assert parsed.argument == "182,403"
    assert "no command" in str(parse("frobnicate"))
    assert "takes no argument" in str(parse("zoom 3"))
    assert "type a command" in str(parse("  "))
    assert key_text("ctrl+p") == "^p"


async def test_command_line_says_what_is_wrong_and_keeps_the_line() -> None:
    play = Screenplay(three_node_cluster())
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("colon", *"frobnicate", "enter")
        await settle(play, pilot)
        line = screen_text(play.app).split("\n")[-2]
        assert "frobnicate" in line
        assert "no command" in line
        await pilot.press("escape")
        await settle(play, pilot)
        await pilot.press("colon", *"eve", "enter")
        await settle(play, pilot)
        assert "Live indices" in screen_text(play.app)
    play.close()


async def test_read_only_changes_nothing_and_says_so() -> None:
    writing = [action for action in ACTIONS if action.is_writing]
    assert {"global.place", "placements.stop", "global.join"} <= {a.id for a in writing}
    play = Screenplay(three_node_cluster(), AppOptions(animations=False, read_only=True))
    async with play.app.run_test(size=(120, 40), notifications=True) as pilot:
        play.start()
        await settle(play, pilot)
        assert "read-only" in screen_text(play.app).split("\n")[0]
        assert play.app.main is not None
        for action in writing:
            play.app.main.run_line(action.command)
            await settle(play, pilot)
            assert len(play.app.screen_stack) == 2
        await until_shown(play, pilot, "not in read-only mode")
    assert play.handle.submitted == []
    assert play.handle.joined == []
    play.close()


async def test_filter_zoom_hold_and_going_back() -> None:
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view="events"))
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("slash", *"mini-2 !loading", "enter")
        await settle(play, pilot)
        shown = screen_text(play.app)
        assert "filter mini-2 !loading" in shown
        assert "loading on" not in shown
        await pilot.press("escape")
        await settle(play, pilot)
        assert "filter mini-2" not in screen_text(play.app)
        await pilot.press("slash", *"/[/", "enter")
        await settle(play, pilot)
        assert "unterminated" in screen_text(play.app)
        await pilot.press("escape", "z")
        await settle(play, pilot)
        assert "Live indices" not in screen_text(play.app)
        await pilot.press("escape", "p")
        await settle(play, pilot)
        assert "Live indices" in screen_text(play.app)
        assert "held, +0" in screen_text(play.app).split("\n")[0]
        await pilot.press("p", "escape")
        await settle(play, pilot)
        assert "Topology" in screen_text(play.app)
    play.close()


async def test_going_to_an_index_and_to_the_next_problem() -> None:
    play = Screenplay(three_node_cluster(), AppOptions(animations=False, view="events"))
    async with play.app.run_test(size=(120, 40), notifications=True) as pilot:
        play.start()
        await settle(play, pilot)
        assert play.app.main is not None
        play.app.main.run_line("goto 182,433")
        await settle(play, pilot)
        await pilot.press("enter")
        await settle(play, pilot)
        assert '"index": 182433' in screen_text(play.app)
        await pilot.press("escape")
        play.app.main.run_line("goto 7")
        await until_shown(play, pilot, "index 7 is not among")
        await pilot.press("e")
        await until_shown(play, pilot, "no warning and no failure")
    play.close()


def test_registry_finds_by_id() -> None:
    assert BY_ID["global.quit"].command == "quit"


async def test_what_the_cursor_is_on_is_chosen_before_it_has_moved() -> None:
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view="nodes"))
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("C")
        await settle(play, pilot)
        first = play.handle.view.node
        assert play.handle.submitted == [CordonNode(node=first, cordoned=True)]
        await pilot.press("3")
        await settle(play, pilot)
        await pilot.press("x")
        await settle(play, pilot)
        assert "Stop llama-3.3-70b-4bit?" in screen_text(play.app)
    play.close()


async def test_going_to_an_index_keeps_what_was_begun_for_the_person() -> None:
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view="events"))
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("number_sign", *"182430", "enter")
        await settle(play, pilot)
        assert play.app.main is not None
        chosen = play.app.main.query_one(EventLog).chosen
        assert chosen is not None
        assert chosen.index == 182_430
    play.close()


async def test_marked_rows_are_acted_on_together_after_one_question() -> None:
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view="nodes"))
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("a")
        await settle(play, pilot)
        assert len(play.app.screen_stack) == 2
        await pilot.press("space", "down", "space", "a")
        await settle(play, pilot)
        assert "What with 2 marked rows?" in screen_text(play.app)
        await pilot.press("enter")
        await settle(play, pilot)
        shown = screen_text(play.app)
        assert "Cordon 2 marked rows?" in shown
        assert "studio-a" in shown
        await pilot.press("y")
        await settle(play, pilot)
        names = [play.handle.state.nodes[c.node].name for c in play.handle.submitted]  # type: ignore[union-attr]
        assert names == ["studio-a", "mbp-max"]
        assert all(isinstance(command, CordonNode) for command in play.handle.submitted)
        await pilot.press("a")
        await settle(play, pilot)
        assert len(play.app.screen_stack) == 2
    play.close()
