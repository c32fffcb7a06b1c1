"""Every action may be asked for in every view: it is done there or where it belongs."""

import pytest
from textual.geometry import Size

from node.handle import NodeHandle
from node.model.errors import ExoctlError
from tests.fakes.cluster import five_node_cluster, three_node_cluster
from tests.fakes.handle import FakeHandle
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import settle, until_shown
from tui.actions.catalogue import ACTIONS
from tui.actions.everywhere import VIEWS
from tui.actions.registry import BY_ID
from tui.app_options import AppOptions
from tui.main_screen import MainScreen
from tui.views.events import EventTable
from tui.widgets.event_log import EventLog
from tui.widgets.log_view import LogView
from tui.widgets.topology import TopologyPane
from tui.widgets.transcript import Transcript

ENDING = ("global.quit", "global.quit_now")


@pytest.fixture(autouse=True)
def nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_saved(_app: object, _name: str | None) -> str:
        return "/dev/null"

    monkeypatch.setattr("tui.app.ExoctlApp.save_screenshot", not_saved)
    monkeypatch.setattr("tui.handlers.panes.EXPORT_NAME", "/dev/null")
    monkeypatch.setattr("tui.views.logs.SAVE_NAME", "/dev/null")


def screen(view: str) -> Screenplay:
    return Screenplay(five_node_cluster(), AppOptions(animations=False, view=view))


@pytest.mark.parametrize("view", [name for name, _ in VIEWS])
async def test_every_action_can_be_asked_for_in_every_view(
    view: str, caplog: pytest.LogCaptureFixture
) -> None:
    play = screen(view)
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        main = play.app.main
        assert main is not None
        for action in ACTIONS:
            if action.id in ENDING:
                continue
            main.perform(f"global.{view}")
            main.run_line(action.command)
            await pilot.pause(0)  # whatever is under way may go on: nothing here waits for rest
            while play.app.screen is not main:
                play.app.pop_screen()
                await pilot.pause(0)
        await settle(play, pilot)
    assert "mistake" not in caplog.text
    play.close()


@pytest.mark.parametrize(
    "action_id",
    [
        action.id
        for action in ACTIONS
        if action.scope in ("chat", "logs", "events") and action.id != "chat.stop"
    ],
)
async def test_an_action_of_a_view_that_was_never_shown_is_done_there(
    action_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    play = screen("models")
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        assert play.app.main is not None
        play.app.main.run_line(BY_ID[action_id].command)
        await settle(play, pilot)
        assert play.app.main.view_name == BY_ID[action_id].scope
    assert "mistake" not in caplog.text
    play.close()


async def test_stopping_where_nothing_is_answered_leaves_the_box_and_then_the_chat() -> None:
    play = screen("models")
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        main = play.app.main
        assert main is not None
        main.perform("global.chat")
        await settle(play, pilot)
        main.run_line(BY_ID["chat.stop"].command)
        await settle(play, pilot)
        assert main.view_name == "chat"
        assert isinstance(main.focused_widget, Transcript)
        main.run_line(BY_ID["chat.stop"].command)
        await settle(play, pilot)
        assert main.view_name == "overview"
    play.close()


async def test_what_was_asked_for_before_its_view_was_there_takes_effect() -> None:
    play = screen("models")
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        main = play.app.main
        assert main is not None
        main.run_line("level")
        await settle(play, pilot)
        level = main.query_one(LogView).level
        main.run_line("models")
        main.run_line("level")
        await settle(play, pilot)
        assert main.query_one(LogView).level != level
        main.run_line(f"goto {play.entries[3].index}")
        await settle(play, pilot)
        events = main.view.query_one(EventLog) if main.view else None
        assert events is not None
        assert events.chosen == play.entries[3]
        main.run_line("models")
        main.run_line("matrix")
        await settle(play, pilot)
        assert main.view_name == "overview"
        assert main.query_one(TopologyPane).shows_matrix
    play.close()


async def test_what_was_asked_for_waits_until_the_panes_of_its_view_have_their_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine a view has its panes before these have their sizes."""
    looks = iter(range(20))
    size = EventTable.size

    def late(pane: EventTable) -> Size:
        return Size(0, 0) if next(looks, None) is not None else size.fget(pane)  # type: ignore[misc]

    monkeypatch.setattr(EventTable, "size", property(late))
    play = screen("models")
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        main = play.app.main
        assert main is not None
        main.run_line(f"goto {play.entries[3].index}")
        await settle(play, pilot)
        events = main.view.query_one(EventLog) if main.view else None
        assert events is not None
        assert events.chosen == play.entries[3]
    play.close()


async def test_a_mistake_in_a_handler_is_said_and_logged_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_self: MainScreen, _name: str) -> None:
        raise AssertionError("not thought of")

    play = Screenplay(three_node_cluster(), AppOptions(animations=False))
    async with play.app.run_test(size=(120, 40), notifications=True) as pilot:
        play.start()
        await settle(play, pilot)
        main = play.app.main
        assert main is not None
        with monkeypatch.context() as patched:
            patched.setattr(MainScreen, "show_view", fail)
            main.run_line("models")
            await until_shown(play, pilot, "not thought of")
        assert "by a mistake" in caplog.text
        main.run_line("models")
        await settle(play, pilot)
        assert main.view_name == "models"
    play.close()


async def test_a_mistake_in_taking_an_answer_is_said_and_ends_nothing() -> None:
    async def work(node: NodeHandle) -> object:
        assert isinstance(node, FakeHandle)
        return ExoctlError

    def reply(_result: object) -> None:
        raise KeyError("lost row")

    play = Screenplay(three_node_cluster(), AppOptions(animations=False))
    async with play.app.run_test(size=(120, 40), notifications=True) as pilot:
        play.start()
        await settle(play, pilot)
        play.node.call(work, reply)
        await until_shown(play, pilot, "lost row")
    play.close()
