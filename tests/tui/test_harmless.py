"""Nothing that a peer, a model, a log or a failure says reaches the terminal as a command to it."""

import io
import re

import msgspec
import pytest
from rich.console import Console
from rich.segment import Segment
from textual.strip import Strip

from node.handle import LogLine
from node.model.errors import BusyError, ConflictError
from node.model.machine import Address
from tests.fakes.cluster import Cluster, three_node_cluster
from tests.fakes.handle import FakeHandle
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import screen_text, settle, until_shown
from tui.actions.everywhere import VIEWS
from tui.app import _explain  # pyright: ignore[reportPrivateUsage]
from tui.app_options import AppOptions
from tui.paint.canvas import Canvas
from tui.paint.markdown import MarkdownPainter
from tui.paint.palette import Palette
from tui.shell import Question
from tui.themes import DEFAULT, OWN
from tui.viewmodel import text

EVIL = "ev\x1b]0;owned\x07\x1b[2J\n\t\x1b]52;c;ZXZpbA==\x07\x9b31m\x85\x90q\x9c\u202e\x7fil"
HARMFUL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def assert_harmless(words: str) -> None:
    found = HARMFUL.search(words.replace("\n", ""))
    assert found is None, repr(words[max(0, found.start() - 20) : found.end() + 20])


def raw(lines: list[Strip]) -> str:
    """The text between the styles that we set ourselves."""
    return "\n".join("".join(part.text for part in line) for line in lines)


def test_clean_replaces_what_commands_a_terminal_and_nothing_else() -> None:
    assert_harmless(text.clean(EVIL))
    assert text.clean("a\tb\nc") == "a b c"
    assert text.clean("a\tb\nc", keep="\n\t") == "a\tb\nc"
    kind = "Zo\xeb \u6f22\u5b57 \u2500 \U0001f600"
    assert text.clean(kind) == kind


@pytest.mark.parametrize("words", [EVIL, f"{EVIL} \u6f22\u5b57"], ids=["narrow", "wide"])
def test_canvas_holds_no_command(words: str) -> None:
    canvas = Canvas(120, 1, Palette(OWN[DEFAULT]))
    canvas.put(0, 0, words)
    strips = canvas.strips()
    assert_harmless(raw(strips))
    console = Console(color_system="truecolor", force_terminal=True, file=io.StringIO())
    assert "owned\x07" not in strips[0].render(console)


@pytest.mark.parametrize(
    "source",
    [EVIL, f"```\n{EVIL}\n```", f"`{EVIL}`", f"| a |\n|---|\n| {EVIL} |", "&#27;[2J &#x9b;31m"],
    ids=["words", "fence", "code", "table", "entities"],
)
def test_markdown_holds_no_command(source: str) -> None:
    lines = MarkdownPainter(Palette(OWN[DEFAULT])).lines(source, 60)
    assert lines
    assert_harmless(raw([Strip(line) for line in lines]))


def test_cutting_and_wrapping_clean_and_keep_to_the_cells() -> None:
    for width in (4, 9, 30):
        for line in (text.shorten(EVIL, width), text.middle(EVIL, width), *text.wrap(EVIL, width)):
            assert_harmless(line)
            assert text.cells(line) <= width


def evil_cluster() -> Cluster:
    state, registers = three_node_cluster()
    nodes = {
        node: msgspec.structs.replace(record, name=f"{EVIL}{record.name}")
        for node, record in state.nodes.items()
    }
    return msgspec.structs.replace(state, cluster_name=EVIL, nodes=nodes), registers


class EvilHandle(FakeHandle):
    async def logs(self, source: str = "", lines_max: int = 1000) -> list[LogLine]:
        del source, lines_max
        return [LogLine(at=1.0, level="error", source=f"runner {EVIL}", text=EVIL)]

    async def log_sources(self) -> list[str]:
        return [f"runner {EVIL}"]


def assert_screen_harmless(play: Screenplay) -> None:
    assert_harmless(screen_text(play.app))
    compositor = play.app.screen._compositor  # pyright: ignore[reportPrivateUsage]
    for strip in compositor.render_strips():
        for part in strip:
            assert isinstance(part, Segment)
            assert_harmless(part.text)


@pytest.mark.parametrize("view", [name for name, _ in VIEWS])
async def test_every_view_of_evil_names_and_log_lines_holds_no_command(view: str) -> None:
    options = AppOptions(animations=False, view=view)
    play = Screenplay(evil_cluster(), options, handle=EvilHandle)
    async with play.app.run_test(size=(150, 44)) as pilot:
        play.start()
        await settle(play, pilot)
        assert "ev" in screen_text(play.app)
        assert_screen_harmless(play)
        await pilot.press("enter")
        await settle(play, pilot)
        assert_screen_harmless(play)
    play.close()


async def test_an_evil_question_answer_and_failure_hold_no_command() -> None:
    play = Screenplay(three_node_cluster(), AppOptions(animations=False, view="chat"))
    play.handle.answer = EVIL
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press(*"why", "enter")
        await settle(play, pilot)
        assert_screen_harmless(play)
        play.handle.failure = BusyError.because("busy", f"full {EVIL}", f"later {EVIL}")
        await pilot.press(*"again", "enter")
        await settle(play, pilot)
        assert "full" in screen_text(play.app)
        assert_screen_harmless(play)
        assert play.app.context is not None
        conversation = play.app.context.conversation
        conversation.turns[0].text = conversation.turns[1].reasoning = EVIL
        conversation.shows_reasoning = True
        conversation.version += 1
        play.app.context.mark(frozenset(("chat",)))
        await settle(play, pilot)
        assert_screen_harmless(play)
    play.close()


async def test_messages_questions_and_dialogs_hold_no_command() -> None:
    play = Screenplay(three_node_cluster(), AppOptions(animations=False))
    async with play.app.run_test(size=(120, 40), notifications=True) as pilot:
        play.start()
        await settle(play, pilot)
        main = play.app.main
        assert main is not None
        main.say(f"said {EVIL}")
        main.report(ConflictError.because("x", f"failed {EVIL}", EVIL))
        await until_shown(play, pilot, "failed ev")
        assert_screen_harmless(play)
        main.prompt("level", f"hint {EVIL}")
        await until_shown(play, pilot, "hint ev")
        assert_screen_harmless(play)
        main.show_text(f"title {EVIL}", f"words {EVIL}")
        await until_shown(play, pilot, "words ev")
        assert_screen_harmless(play)
        await pilot.press("escape")
        main.ask(Question(title=f"[red]{EVIL}?", lines=(EVIL,), verb="Go"), lambda: None)
        await until_shown(play, pilot, "[red]ev")
        assert_screen_harmless(play)
        await pilot.press("escape")
        play.handle.failure = ConflictError.because("x", f"refused {EVIL}", EVIL)
        main.perform("global.join", f"code {Address('10.0.0.1', 1)}")
        await settle(play, pilot)
        await pilot.press("enter")
        await until_shown(play, pilot, "refused ev")
        assert_screen_harmless(play)
    play.close()


def test_what_is_said_after_the_app_holds_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    _explain(ConflictError.because("x", f"failed {EVIL}", EVIL))
    assert_harmless(capsys.readouterr().err)
