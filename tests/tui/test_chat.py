"""Chatting: streaming, stopping, retrying, choosing, and what is shown where it can't be done."""

import pytest

from node.model.errors import BusyError
from node.model.ids import ModelId, RequestId
from node.model.request import Delta, Finished, FinishReason, Usage
from tests.fakes.cluster import five_node_cluster, loading, no_placement, three_node_cluster
from tests.fakes.handle import ANSWER
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import check_snapshot, screen_text, settle, until_shown
from tui.app_options import AppOptions
from tui.bridge.conversation import Conversation
from tui.bridge.inbox import Generated
from tui.viewmodel import glyphs
from tui.widgets.composer import Composer
from tui.widgets.pane import fitted
from tui.widgets.transcript import Transcript

CHAT = AppOptions(animations=False, view="chat")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
async def test_an_answer_is_shown_as_markdown_with_its_figures(
    size: tuple[int, int], request: pytest.FixtureRequest
) -> None:
    update = bool(request.config.getoption("--update-snapshots"))
    play = Screenplay(three_node_cluster(), CHAT)
    async with play.app.run_test(size=size) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press(*"why rings", "enter")
        await settle(play, pilot)
        shown = screen_text(play.app)
        assert "def split(layers: int, weights: list[float])" in shown
        assert "**" not in shown
        assert play.node.generated[0].messages[0].content == "why rings"
        check_snapshot(play.app, f"chat_answer_{size[0]}x{size[1]}", update=update)
        transcript = play.app.main.query_one(Transcript) if play.app.main else None
        assert transcript is not None
        assert transcript.chosen_text() == ANSWER
    play.close()


async def test_the_second_question_carries_the_first_answer() -> None:
    play = Screenplay(three_node_cluster(), CHAT)
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press(*"one", "enter")
        await settle(play, pilot)
        await pilot.press(*"two", "ctrl+j", *"lines", "enter")
        await settle(play, pilot)
    roles = [message.role for message in play.node.generated[1].messages]
    assert roles == ["user", "assistant", "user"]
    assert play.node.generated[1].messages[-1].content == "two\nlines"
    play.close()


async def test_escape_stops_the_answer_and_keeps_what_came() -> None:
    play = Screenplay(three_node_cluster(), CHAT)
    play.node.items_max = 8
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press(*"why", "enter")
        await settle(play, pilot)
        assert "esc stops" in screen_text(play.app)
        await pilot.press("escape")
        await settle(play, pilot)
        shown = screen_text(play.app)
        assert "stopped" in shown
        assert "Each node holds" in shown
        assert play.node.stopped == [play.node.generated[0].id]
    play.close()


async def test_letters_act_once_the_field_is_left_and_type_while_it_is_not() -> None:
    play = Screenplay(five_node_cluster(), CHAT)
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("q", "m", "1")
        await settle(play, pilot)
        assert play.app.main is not None
        assert play.app.main.query_one(Composer).text == "qm1"
        await pilot.press("escape", "m")
        await settle(play, pilot)
        assert "Model to chat with" in screen_text(play.app)
        await pilot.press("enter")
        await settle(play, pilot)
        assert play.app.context is not None
        assert play.app.context.conversation.model == "llama-3.3-70b-4bit"
        await pilot.press("1")
        await settle(play, pilot)
        assert "Topology" in screen_text(play.app)
    play.close()


async def test_without_a_ready_model_nothing_is_sent_and_the_next_key_is_named() -> None:
    play = Screenplay(no_placement(), CHAT)
    async with play.app.run_test(size=(100, 30), notifications=True) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press(*"why", "enter")
        await until_shown(play, pilot, "no model is ready: n places one")
        assert play.node.generated == []
        assert play.app.main is not None
        assert play.app.main.query_one(Composer).text == "why"
    play.close()


async def test_a_model_that_is_loading_is_named_with_how_far_it_is() -> None:
    play = Screenplay(loading(), CHAT)
    async with play.app.run_test(size=(100, 30), notifications=True) as pilot:
        play.start()
        await settle(play, pilot)
        shown = screen_text(play.app)
        assert "llama-3.3-70b-4bit is loading: 40/80 layers." in shown
        assert "No model is ready" not in shown
        await pilot.press(*"why", "enter")
        await until_shown(play, pilot, "layers: ask once it is ready")
        assert play.node.generated == []
        assert play.app.main is not None
        assert play.app.main.query_one(Composer).text == "why"
    play.close()


async def test_a_failed_answer_shows_its_cause_and_remedy_in_place() -> None:
    play = Screenplay(three_node_cluster(), CHAT)
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        play.handle.failure = BusyError.because("queue_full", "8 of 8 wait", "try again soon")
        await pilot.press(*"why", "enter")
        await settle(play, pilot)
        shown = screen_text(play.app)
        assert "8 of 8 wait" in shown
        assert "try again soon" in shown
        play.handle.failure = None
        await pilot.press("ctrl+r")
        await settle(play, pilot)
        assert "token ids" in screen_text(play.app)
    play.close()


async def test_streaming_renders_finished_blocks_once() -> None:
    play = Screenplay(three_node_cluster(), CHAT)
    play.handle.answer = "\n\n".join(f"Paragraph {place} of the answer." for place in range(40))
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press(*"go", "enter")
        await settle(play, pilot)
        assert play.app.main is not None
        transcript = play.app.main.query_one(Transcript)
        words = "\n".join("".join(part.text for part in line) for line in transcript.lines)
        assert all(f"Paragraph {place} of the answer." in words for place in range(40))
        assert "Paragraph 39" in screen_text(play.app)
        transcript.focus()
        await pilot.press("home")
        await settle(play, pilot)
        assert "you" in screen_text(play.app)
        assert "end follows" in screen_text(play.app)
    play.close()


def test_the_tokens_of_an_answer_are_those_that_the_node_counted() -> None:
    conversation = Conversation()
    conversation.model = ModelId("m")
    request = RequestId("q-1")
    conversation.ask("why", request, 1.0)
    for item in (Delta(index=0, text="a", tokens=(7,)), Delta(index=1, text="held back")):
        conversation.accept(Generated(request, item), 2.0)
    assert conversation.turns[-1].tokens == 1
    usage = Usage(prompt_tokens=3, output_tokens=2, decode_seconds=1.0)
    end = Finished(reason=FinishReason.STOP, usage=usage)
    conversation.accept(Generated(request, end), 3.0)
    assert conversation.turns[-1].tokens == 2


async def test_a_line_that_is_cut_says_so() -> None:
    play = Screenplay(three_node_cluster(), CHAT)
    async with play.app.run_test(size=(80, 24)) as pilot:
        play.start()
        await settle(play, pilot)
        assert play.app.context is not None
        play.app.context.conversation.model = ModelId("llama-3.3-70b-4bit")
        await pilot.press(*"hi", "enter")
        await settle(play, pilot)
        turn = play.app.context.conversation.turns[-1]
        turn.model = ModelId("owner/a-model-with-a-name-of-more-than-fifty-characters-4bit")
        turn.started_at, turn.first_at = 1.0, 1.4
        assert play.app.main is not None
        transcript = play.app.main.query_one(Transcript)
        transcript.paint()
        await settle(play, pilot)
        lines = ["".join(part.text for part in line) for line in transcript.lines]
        (head,) = (line for line in lines if "first token" in line)
        assert glyphs.ELLIPSIS in head
        assert len(head) <= transcript.size.width
    play.close()


def test_a_title_that_is_cut_says_so() -> None:
    parts = [("Chat ", "b"), ("with a model of a long name", "dim"), (" and more", "dim")]
    assert fitted(parts, 60) == parts
    cut = fitted(parts, 20)
    assert "".join(words for words, _ in cut) == "Chat with a model o" + glyphs.ELLIPSIS


async def test_the_key_bar_says_what_escape_does_now_and_how_the_field_is_left() -> None:
    play = Screenplay(three_node_cluster(), CHAT)
    play.node.items_max = 3
    async with play.app.run_test(size=(80, 24)) as pilot:
        play.start()
        await settle(play, pilot)
        bar = screen_text(play.app).split("\n")[-1]
        assert "esc leave" in bar
        assert "tab transcript" in bar
        await pilot.press(*"hi", "enter")
        await settle(play, pilot)
        assert "esc stop" in screen_text(play.app).split("\n")[-1]
        await pilot.press("escape")
        await settle(play, pilot)
        assert "esc leave" in screen_text(play.app).split("\n")[-1]
        await pilot.press("tab")
        await settle(play, pilot)
        assert isinstance(play.app.screen.focused, Transcript)
    play.close()
