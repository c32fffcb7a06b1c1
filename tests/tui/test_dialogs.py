"""Dialogs: what they show, what they do, and that nothing happens by mistake."""

import pytest

from node.model.command import PlaceInstance, Refused, RemoveNode, StopInstance
from node.model.errors import Failure, RefusedError
from node.model.ids import CommandId
from node.model.machine import Address
from node.model.register import JoinFigures, Register
from tests.fakes.cluster import five_node_cluster, lone_node, no_placement, three_node_cluster
from tests.fakes.fake_handle import make_join_request
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import check_snapshot, screen_text, settle, until_shown
from tui import app as app_module
from tui.app_options import AppOptions

KEYS = {
    "help": ("question_mark",),
    "place_model": ("n",),
    "place_plans": ("n", "enter"),
    "place_short": ("n", "enter", "end"),
    "invite": ("i",),
    "join": ("J",),
    "quit": ("q",),
    "entry": ("6", "enter"),
    "columns": ("2", "o"),
    "links": ("t",),
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
async def test_dialog_is_drawn_whole(
    name: str, size: tuple[int, int], request: pytest.FixtureRequest
) -> None:
    update = bool(request.config.getoption("--update-snapshots"))
    play = Screenplay(five_node_cluster())
    async with play.app.run_test(size=size) as pilot:
        play.start()
        await settle(play, pilot)
        for key in KEYS[name]:
            await pilot.press(key)
            await settle(play, pilot)
        assert len(play.app.screen_stack) == 3
        check_snapshot(play.app, f"dialog_{name}_{size[0]}x{size[1]}", update=update)
        await pilot.press("escape")
        await settle(play, pilot)
        assert len(play.app.screen_stack) == 2
    play.close()


async def test_a_model_is_placed_by_keys_alone() -> None:
    play = Screenplay(no_placement())
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("n", "enter")
        await settle(play, pilot)
        await pilot.press("enter")
        await settle(play, pilot)
    command = play.handle.submitted[0]
    assert isinstance(command, PlaceInstance)
    assert command.model == "llama-3.3-70b-4bit"
    assert sum(command.wish.layers) == 61
    assert len(command.wish.nodes) == len(command.wish.layers)
    assert not command.wish.force
    play.close()


async def test_what_does_not_fit_is_only_placed_after_a_question() -> None:
    play = Screenplay(lone_node())
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("n", "enter")
        await settle(play, pilot)
        assert "short" in screen_text(play.app)
        await pilot.press("enter")
        await settle(play, pilot)
        assert play.handle.submitted == []
        await pilot.press("o")
        await settle(play, pilot)
        assert "lack" in screen_text(play.app)
        await pilot.press("n")
        await settle(play, pilot)
        assert play.handle.submitted == []
        await pilot.press("o")
        await settle(play, pilot)
        await pilot.press("y")
        await settle(play, pilot)
    command = play.handle.submitted[0]
    assert isinstance(command, PlaceInstance)
    assert command.wish.force
    play.close()


async def test_layers_are_moved_over_a_boundary_and_planned_again() -> None:
    play = Screenplay(no_placement())
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("n", "enter")
        await settle(play, pilot)
        await pilot.press("left")
        await settle(play, pilot)
        first, moved = play.handle.wishes[0], play.handle.wishes[-1]
        assert first.layers == ()
        assert sum(moved.layers) == 61
        assert "your layers" in screen_text(play.app)
        await pilot.press("1")
        await settle(play, pilot)
        assert len(play.handle.wishes[-1].exclude) == 1
        await pilot.press("r")
        await settle(play, pilot)
        assert play.handle.wishes[-1].exclude == ()
    play.close()


async def test_stopping_asks_and_the_safe_answer_has_the_focus() -> None:
    play = Screenplay(three_node_cluster(), AppOptions(animations=False, view="placements"))
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("x")
        await settle(play, pilot)
        shown = screen_text(play.app)
        assert "2 running and 1 queued requests end" in shown
        await pilot.press("enter")
        await settle(play, pilot)
        assert play.handle.submitted == []
        await pilot.press("x")
        await settle(play, pilot)
        await pilot.press("y")
        await settle(play, pilot)
    assert isinstance(play.handle.submitted[0], StopInstance)
    play.close()


async def test_a_refusal_is_shown_with_its_remedy() -> None:
    play = Screenplay(three_node_cluster(), AppOptions(animations=False, view="nodes"))
    failure = Failure(code="last", message="mini-1 holds 10 layers", remedy="stop it first")
    play.handle.refusal = Refused(
        id=CommandId("c-0000000000000001"), kind="ConflictError", failure=failure
    )
    async with play.app.run_test(size=(120, 40), notifications=True) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("G", "K")
        await settle(play, pilot)
        await pilot.press("y")
        shown = await until_shown(play, pilot, "mini-1 holds 10 layers")
        assert "stop it first" in shown
    assert isinstance(play.handle.submitted[0], RemoveNode)
    play.close()


async def test_joining_complains_beside_the_field_and_then_joins() -> None:
    play = Screenplay(lone_node())
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("J")
        await settle(play, pilot)
        await pilot.press(*"ABCDE", "enter", *"10.0.0.12:port", "enter")
        await settle(play, pilot)
        assert "is no address" in screen_text(play.app)
        assert play.handle.joined == []
        for _ in range(5):
            await pilot.press("backspace")
        await pilot.press("enter")
        await settle(play, pilot)
        assert len(play.app.screen_stack) == 2
    assert play.handle.joined == [("ABCDE", Address("10.0.0.12", 52416))]
    play.close()


async def test_joining_without_a_code_asks_and_shows_the_digits_to_compare() -> None:
    play = Screenplay(lone_node())
    async with play.app.run_test(size=(100, 30), notifications=True) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("J", "enter", "enter")
        shown = await until_shown(play, pilot, "281 604")
        assert "mini at 10.0.0.31:52416 was asked" in shown
        await pilot.press("y")
        await until_shown(play, pilot, "joined")
    assert play.handle.finished == [("j-0badc0", True)]
    play.close()


async def test_digits_that_differ_withdraw_the_request() -> None:
    play = Screenplay(lone_node())
    async with play.app.run_test(size=(100, 30), notifications=True) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("J", "enter", "enter")
        await until_shown(play, pilot, "281 604")
        await pilot.press("enter")  # the safe answer has the focus
        await until_shown(play, pilot, "withdrawn")
    assert play.handle.finished == [("j-0badc0", False)]
    play.close()


@pytest.mark.parametrize(("key", "approve"), [("y", True), ("n", False)])
async def test_a_machine_that_asks_is_noticed_and_judged(key: str, *, approve: bool) -> None:
    state, registers = three_node_cluster()
    figures = JoinFigures(requests=(make_join_request(),))
    asked = state.master
    register = Register(node=asked, incarnation=1, sequence=1, value=figures)
    play = Screenplay((state, {**registers, (asked, "JoinFigures"): register}))
    async with play.app.run_test(size=(120, 40), notifications=True) as pilot:
        play.start()
        await until_shown(play, pilot, "mini wants to join")
        await pilot.press("A")
        shown = await until_shown(play, pilot, "asks to be let in")
        assert "281 604" in shown
        await pilot.press(key)
        await settle(play, pilot)
        assert len(play.app.screen_stack) == 2
    assert play.handle.judged == [("j-0badc0", approve)]
    play.close()


async def test_a_wrong_code_keeps_the_dialog_open() -> None:
    play = Screenplay(lone_node())
    play.handle.failure = RefusedError.because("code_used", "the code was used already")
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press(*"J", *"ABCDE", "enter", "enter")
        await settle(play, pilot)
        assert "the code was used already" in screen_text(play.app)
        assert len(play.app.screen_stack) == 3
    play.close()


async def test_quitting_says_what_ends_and_asks() -> None:
    play = Screenplay(three_node_cluster())
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("q")
        await settle(play, pilot)
        shown = screen_text(play.app)
        assert "this node holds L0" in shown
        assert "the other 2 elect a new one" in shown
        await pilot.press("n")
        await settle(play, pilot)
        assert play.app.is_running
    play.close()


async def test_ctrl_c_asks_as_q_does_and_behind_a_dialog_says_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Screenplay(three_node_cluster())
    async with play.app.run_test(size=(100, 30), notifications=True) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("question_mark")
        await settle(play, pilot)
        await pilot.press("ctrl+c")
        await until_shown(play, pilot, "ctrl-c again quits")
        await pilot.press("escape")
        await settle(play, pilot)
        monkeypatch.setattr(app_module, "INTERRUPTS_SECONDS", 0.0)
        await pilot.press("ctrl+c")
        await until_shown(play, pilot, "Quit this node?")
        assert play.app.is_running
        monkeypatch.setattr(app_module, "INTERRUPTS_SECONDS", 3.0)
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert not play.app.is_running
    play.close()


async def test_quitting_an_attached_app_ends_nothing_and_does_not_ask() -> None:
    play = Screenplay(three_node_cluster(), is_embedded=False)
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("q")
        await pilot.pause()
        assert not play.app.is_running
    assert not play.handle.ended
    play.close()


def frames(shown: str) -> list[tuple[int, int, int, int]]:
    """Whole frames on the screen: left, top, right, bottom."""
    lines = [line.ljust(200) for line in shown.split("\n")]
    found: list[tuple[int, int, int, int]] = []
    for top, line in enumerate(lines):
        for left, corner in enumerate(line):
            right = line.find("╮", left)
            if corner != "╭" or right < 0:
                continue
            for bottom in range(top + 1, len(lines)):
                if (lines[bottom][left], lines[bottom][right]) == ("╰", "╯"):
                    found.append((left, top, right, bottom))
                if (lines[bottom][left], lines[bottom][right]) != ("│", "│"):
                    break
    return found


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
async def test_the_palette_stands_in_a_whole_frame_with_a_line_for_each_action(
    size: tuple[int, int],
) -> None:
    play = Screenplay(five_node_cluster())
    async with play.app.run_test(size=size) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("ctrl+p")
        shown = await until_shown(play, pilot, "Filter: words")
        around = [
            (left, right)
            for left, top, right, _ in frames(shown)
            if "Search every action" in "".join(shown.split("\n")[top : top + 4])
            and right - left < size[0] - 1
        ]
        assert len(around) == 1, shown
        ((left, right),) = around
        assert left >= 5
        assert abs(left - (size[0] - 1 - right)) <= 1
        (line,) = (line for line in shown.split("\n") if "Place a model" in line)
        assert line[left + 1 : right].split()[:5] == ["Place", "a", "model", ":place", "n"]
    play.close()


@pytest.mark.parametrize("name", ["place_plans", "entry", "links", "help", "columns"])
@pytest.mark.parametrize("width", [80, 90, 100, 120])
async def test_no_sliver_of_a_torn_frame_stands_beside_a_dialog(name: str, width: int) -> None:
    play = Screenplay(five_node_cluster())
    async with play.app.run_test(size=(width, 24)) as pilot:
        play.start()
        await settle(play, pilot)
        for key in KEYS[name]:
            await pilot.press(key)
            await settle(play, pilot)
        shown = play.app.screen.children[0].region
        assert shown.x == 0 or shown.x >= 5, shown
    play.close()
