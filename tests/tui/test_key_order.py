"""Keys typed ahead: none is lost, and none acts where it was not meant."""

import asyncio

import pytest
from textual import events
from textual.widgets import Button

from tests.fakes.cluster import five_node_cluster, three_node_cluster
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import screen_text, settle, until_shown
from tui.app_options import AppOptions
from tui.widgets.composer import Composer


def typed(play: Screenplay, keys: str) -> None:
    """As a terminal sends them: all at once."""
    for key in keys:
        name = {"?": "question_mark", ":": "colon"}.get(key, key)
        play.app.post_message(events.Key(name, key))


@pytest.mark.parametrize("round_", range(5))
async def test_a_key_behind_the_one_that_closes_a_dialog_is_not_lost(round_: int) -> None:
    del round_
    play = Screenplay(three_node_cluster())
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        typed(play, "qn?")
        await until_shown(play, pilot, "Everywhere")
        assert "Quit this node?" not in screen_text(play.app)
    play.close()


async def test_an_answer_that_takes_a_second_on_a_busy_machine_costs_no_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    async def late(_self: Button, _event: events.Key) -> None:
        await asyncio.sleep(0.8)

    monkeypatch.setattr(Button, "on_key", late, raising=False)
    play = Screenplay(three_node_cluster())
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        typed(play, "qn?")
        await until_shown(play, pilot, "Everywhere")
        assert "Quit this node?" not in screen_text(play.app)
    play.close()


async def test_a_key_behind_the_one_that_opens_a_dialog_acts_in_it() -> None:
    play = Screenplay(three_node_cluster(), AppOptions(animations=False, view="nodes"))
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        typed(play, "Kn2")  # asks, no, and nothing of it copies, cordons or places anything
        await settle(play, pilot)
        assert play.app.main is not None
        assert play.app.main.view_name == "nodes"
        assert len(play.app.screen_stack) == 2
        assert play.handle.submitted == []
    play.close()


async def test_words_behind_the_key_of_chat_go_into_its_field() -> None:
    play = Screenplay(five_node_cluster())
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        typed(play, "7hello, quick node")
        await until_shown(play, pilot, "hello, quick node")
        assert play.app.main is not None
        assert play.app.main.query_one(Composer).text == "hello, quick node"
        assert play.app.main.view_name == "chat"
    play.close()


async def test_many_keys_at_once_all_arrive_in_their_order() -> None:
    play = Screenplay(three_node_cluster())
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        line = "goto " + "0123456789" * 12
        typed(play, ":" + line)
        await until_shown(play, pilot, line[-40:])
    play.close()
