"""From tokens to text: whole characters, reasoning, tool calls; stop strings never leak."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from mlx_lm.tokenizer_utils import load as load_tokenizer

from node.runner.output_text import OutputText, Piece
from node.runner.prompt import Tokenizer
from tests.mlx.tiny_model import write_tokenizer

TOOLS: list[dict[str, object]] = [{"type": "function", "function": {"name": "weather"}}]
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'


def loaded(directory: Path, *, with_markers: bool) -> Tokenizer:
    write_tokenizer(directory, with_markers=with_markers)
    (directory / "config.json").write_text('{"model_type": "llama"}')
    tokenizer: Tokenizer = load_tokenizer(directory)  # type: ignore[assignment]
    return tokenizer


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return loaded(tmp_path_factory.mktemp("tokenizer"), with_markers=False)


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    tokenizer = loaded(tmp_path_factory.mktemp("tokenizer"), with_markers=True)
    assert tokenizer.has_thinking
    assert tokenizer.has_tool_calling
    return tokenizer


def run(
    tokenizer: Tokenizer,
    text: str,
    *,
    prompt: str = "",
    stop: tuple[str, ...] = (),
    tools: list[dict[str, object]] | None = None,
) -> tuple[Piece, list[str]]:
    """Everything that came out, joined, and each text on its own."""
    output = OutputText(tokenizer, list(tokenizer.encode(prompt)), stop, tools or [])
    whole = Piece()
    texts: list[str] = []
    for token in tokenizer.encode(text):
        piece = output.add(token)
        texts.append(piece.text)
        merge(whole, piece)
        if piece.stopped:
            return whole, texts
    merge(whole, output.finish())
    return whole, texts


def merge(whole: Piece, piece: Piece) -> None:
    whole.text += piece.text
    whole.reasoning += piece.reasoning
    whole.tool_calls = whole.tool_calls + piece.tool_calls
    whole.stopped = whole.stopped or piece.stopped


@given(text=some.text(max_size=40), prompt=some.text(max_size=10))
def test_every_text_comes_back_and_never_half_a_character(
    plain: Tokenizer, text: str, prompt: str
) -> None:
    whole, texts = run(plain, text, prompt=prompt)
    assert whole.text == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in part for part in texts)


@given(
    text=some.text(alphabet="abcST", max_size=30),
    stop=some.lists(some.text(alphabet="abcST", min_size=1, max_size=4), max_size=3),
)
def test_a_stop_string_ends_the_text_and_never_leaks(
    plain: Tokenizer, text: str, stop: list[str]
) -> None:
    whole, _ = run(plain, text, stop=tuple(stop))
    ends = [text.find(word) + len(word) for word in stop if word in text]
    if not ends:
        assert whole.text == text
        assert not whole.stopped
    else:
        assert whole.stopped
        assert text.startswith(whole.text)
        assert not any(word in whole.text for word in stop)
        assert len(whole.text) < min(ends)


def test_an_empty_stop_string_means_nothing(plain: Tokenizer) -> None:
    assert run(plain, "abc", stop=("",))[0].text == "abc"


def test_bytes_that_are_no_text_do_not_hold_back_what_follows(plain: Tokenizer) -> None:
    output = OutputText(plain, [], (), [])
    broken = plain.encode("é")[0]
    pieces = [output.add(broken).text for _ in range(40)]
    assert any(pieces)
    letter = plain.encode("a")[0]
    assert output.add(letter).text.endswith("a")


def test_the_first_space_of_a_continuation_is_kept(plain: Tokenizer) -> None:
    assert run(plain, " Paris", prompt="The capital of France is")[0].text == " Paris"


def test_reasoning_is_apart(thinking: Tokenizer) -> None:
    whole, _ = run(thinking, "<think>hm, so</think>It is.")
    assert (whole.reasoning, whole.text) == ("hm, so", "It is.")


def test_reasoning_that_the_template_began_is_apart_too(thinking: Tokenizer) -> None:
    whole, _ = run(thinking, "so</think>yes", prompt="question<think>")
    assert (whole.reasoning, whole.text) == ("so", "yes")
    whole, _ = run(thinking, "cut short", prompt="question<think>")
    assert (whole.reasoning, whole.text) == ("cut short", "")


@pytest.mark.parametrize(
    ("prompt", "text", "thought"),
    [("", "It is.", ""), ("", "<think>hm</think>yes", "hm</think>"),
     ("q<think>", "so</think>yes", "so</think>"), ("q<think>", "cut", "cut")],
)  # fmt: skip
def test_tokens_of_thinking_are_counted(
    thinking: Tokenizer, prompt: str, text: str, thought: str
) -> None:
    output = OutputText(thinking, list(thinking.encode(prompt)), (), [])
    for token in thinking.encode(text):
        output.add(token)
    assert output.reasoning_tokens == len(thinking.encode(thought))


def test_a_stop_string_counts_in_reasoning_as_well(thinking: Tokenizer) -> None:
    whole, _ = run(thinking, "<think>one STOP two</think>", stop=("STOP",))
    assert (whole.reasoning, whole.stopped) == ("one ", True)


def test_tool_calls_are_read(thinking: Tokenizer) -> None:
    whole, _ = run(thinking, f"Let me see. {CALL}\n{CALL}", tools=TOOLS)
    assert whole.text == "Let me see. \n"
    assert [call["function"] for call in whole.tool_calls] == [
        {"name": "weather", "arguments": '{"city": "Paris"}'}
    ] * 2
    assert len({str(call["id"]) for call in whole.tool_calls}) == 2


@pytest.mark.parametrize(
    "body",
    ["{not json", '"just a text"', "[]", "[1]", '{"arguments": {}}', '{"name": 7}', "null", ""],
)
def test_what_is_no_tool_call_stays_text(thinking: Tokenizer, body: str) -> None:
    text = f"a<tool_call>{body}</tool_call>b"
    whole, _ = run(thinking, text, tools=TOOLS)
    assert whole.tool_calls == []
    assert whole.text == text


def test_half_a_character_in_a_tool_call_can_be_sent_or_stays_text(thinking: Tokenizer) -> None:
    def call(name: str, arguments: str) -> Piece:
        body = f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'
        piece, _ = run(thinking, body, tools=TOOLS)
        msgspec.msgpack.encode(piece)
        return piece

    (sent,) = call("f", '{"x": "\\ud83d \u00e4"}').tool_calls
    function: Any = sent["function"]
    assert json.loads(function["arguments"]) == {"x": "\ud83d \u00e4"}
    for piece in (call("\\ud83d", "{}"), call("f", '"\\ud83d"')):
        assert piece.tool_calls == []
        assert "ud83d" in piece.text


def test_a_tool_call_cut_short_stays_text(thinking: Tokenizer) -> None:
    whole, _ = run(thinking, '<tool_call>{"name": "wea', tools=TOOLS)
    assert whole.text == '<tool_call>{"name": "wea'


def test_markers_are_text_where_no_tools_were_offered(thinking: Tokenizer) -> None:
    whole, _ = run(thinking, CALL)
    assert whole.text == CALL
    assert json.loads(CALL.removeprefix("<tool_call>").removesuffix("</tool_call>"))
