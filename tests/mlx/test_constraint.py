"""Answers kept to a schema, tool calls that are forced or strict, and thinking on a budget."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import msgspec
import pytest
from llguidance import LLMatcher, LLTokenizer
from mlx_lm.utils import load_model, load_tokenizer

from node.model.ids import RequestId
from node.model.request import (
    Delta,
    Failed,
    Finished,
    FinishReason,
    GenerationItem,
    GenerationRequest,
    Sampling,
)
from node.runner.constraint import Constraints
from node.runner.engine import Engine, EngineSettings
from node.runner.grammar import grammar_of
from tests.mlx.runner_process import chat
from tests.mlx.tiny_model import byte_tokenizer, write_tiny_model

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{2,5}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["cat", "dog"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
TOOL: dict[str, object] = {
    "type": "function",
    "function": {"name": "look_up", "strict": True, "parameters": SCHEMA},
}
OTHER: dict[str, object] = {"type": "function", "function": {"name": "other"}}
Items = dict[str, list[GenerationItem]]
Ask = Callable[..., list[GenerationItem]]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, Items]:
    directory = write_tiny_model(tmp_path_factory.mktemp("marked") / "m", with_markers=True)
    model, config = load_model(directory)
    tokenizer: Any = load_tokenizer(directory, eos_token_ids=config["eos_token_id"])
    settings = EngineSettings(
        context_tokens=512, vocabulary_size=272, batch_max=4, queue_max=8,
        cache_bytes_max=10_000_000, cache_bytes_per_token=1024,
    )  # fmt: skip
    items: Items = {}

    def emit(request: RequestId, item: GenerationItem) -> None:
        items.setdefault(request, []).append(item)

    return Engine(model, tokenizer, settings, emit), items


@pytest.fixture
def ask(engine: tuple[Engine, Items]) -> Ask:
    made, items = engine

    def run(request: GenerationRequest) -> list[GenerationItem]:
        items.clear()
        made.submit(request)
        while made.has_work:
            made.step()
        return items[request.id]

    return run


def text_of(items: list[GenerationItem]) -> str:
    return "".join(item.text for item in items if isinstance(item, Delta))


def reasoning_of(items: list[GenerationItem]) -> str:
    return "".join(item.reasoning for item in items if isinstance(item, Delta))


def end_of(items: list[GenerationItem]) -> FinishReason:
    assert isinstance(items[-1], Finished), items[-1]
    return items[-1].reason


@pytest.mark.parametrize("seed", range(4))
def test_an_answer_obeys_its_schema_however_it_is_drawn(ask: Ask, seed: int) -> None:
    hot = Sampling(temperature=2.0, seed=seed)
    items = ask(chat("a", "who?", answer_schema=json.dumps(SCHEMA), sampling=hot, tokens_max=200))
    assert end_of(items) is FinishReason.STOP
    read = json.loads(text_of(items))
    assert list(read) == ["name", "age", "kind"]
    assert read["name"].isalpha()
    assert 0 <= read["age"] <= 99
    assert read["kind"] in ("cat", "dog")


def test_an_answer_beside_a_kept_one_is_free(engine: tuple[Engine, Items]) -> None:
    made, received = engine
    received.clear()
    made.submit(chat("alone", "who?", tokens_max=12))
    while made.has_work:
        made.step()
    made.submit(chat("free", "who?", tokens_max=12))
    made.submit(chat("kept", "who?", answer_schema='{"type":"object"}', tokens_max=40))
    while made.has_work:
        made.step()
    assert text_of(received["free"]) == text_of(received["alone"])
    assert text_of(received["kept"]).startswith("{")


@pytest.mark.parametrize(
    "schema",
    [
        *(
            "[1]",
            "{",
            '{"type": "nothing"}',
            '{"$ref": "http://127.0.0.1:1/x"}',
            '{"minimum": "a"}',
        ),
        *('{"$ref": "#"}', '{"enum": []}', '{"type": "integer", "minimum": 5, "maximum": 2}'),
        # Found to be too much for the grammar only once the answer has begun.
        *('{"type": "string", "pattern": "^(a{1000}){1000}$"}',),
        *('{"type": "string", "pattern": "^(ab{2000}){2000}$"}',),
    ],
)
def test_a_schema_that_can_t_be_obeyed_is_refused_by_name(ask: Ask, schema: str) -> None:
    items = ask(chat("a", "who?", answer_schema=schema))
    assert isinstance(items[-1], Failed)
    assert (items[-1].kind, items[-1].failure.code) == ("UsageError", "bad_schema")
    assert "<state>" not in items[-1].failure.message


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "look_up"}}]
)
def test_a_forced_call_is_made_and_its_arguments_obey(ask: Ask, choice: Any) -> None:
    hot = Sampling(temperature=2.0, seed=5)
    request = chat(
        "a", "who?", tools=(TOOL,), tool_choice=choice, sampling=hot, tokens_max=300,
        single_call=True,
    )  # fmt: skip
    items = ask(request)
    assert end_of(items) is FinishReason.TOOL_CALLS
    (call,) = [call for item in items if isinstance(item, Delta) for call in item.tool_calls]
    function: Any = call["function"]
    assert function["name"] == "look_up"
    assert json.loads(function["arguments"])["kind"] in ("cat", "dog")
    assert text_of(items).strip() == ""
    assert "\r" not in str(function["arguments"])


def test_a_strict_tool_leaves_the_model_free_to_answer_in_words(ask: Ask) -> None:
    words = Sampling(temperature=0.0, logit_bias={65: 500.0})
    request = chat("a", "who?", tools=(TOOL, OTHER), tool_choice="auto", sampling=words)
    items = ask(msgspec.structs.replace(request, tokens_max=30))
    assert len(set(text_of(items))) == 1
    assert end_of(items) is FinishReason.LENGTH


def test_a_strict_call_begun_by_the_model_obeys(ask: Ask) -> None:
    begin = Sampling(temperature=0.0, logit_bias={262: 50.0})  # <tool_call>
    request = chat(
        "a", "who?", tools=(TOOL,), tool_choice="auto", sampling=begin, tokens_max=300,
        single_call=True,
    )  # fmt: skip
    items = ask(request)
    calls = [call for item in items if isinstance(item, Delta) for call in item.tool_calls]
    assert len(calls) == 1
    assert end_of(items) is FinishReason.TOOL_CALLS


def test_thinking_ends_with_its_budget(ask: Ask) -> None:
    never = Sampling(temperature=0.0, logit_bias={261: -100.0, 256: -100.0})  # no </think>, no end
    prompt = GenerationRequest(
        id=RequestId("a"), model=chat("x", "y").model, prompt="<think>", sampling=never,
        tokens_max=60, reasoning_tokens_max=7,
    )  # fmt: skip
    items = ask(prompt)
    assert 0 < len(reasoning_of(items).encode()) <= 7 * 4
    assert text_of(items)


@pytest.mark.parametrize("thinks", [True, False])
def test_thinking_that_the_model_begins_by_itself_has_a_budget_too(
    engine: tuple[Engine, Items], thinks: bool
) -> None:
    tokenizer: Any = vars(engine[0])["_tokenizer"]
    request = msgspec.structs.replace(chat("a", "x"), reasoning_tokens_max=3)
    made = Constraints(tokenizer, 272).processors(request, 2, is_thinking=False)
    (begin,), (end,) = tokenizer.think_start_tokens, tokenizer.think_end_tokens
    tokens = [1, 2, begin if thinks else 65]
    forced: list[bool] = []
    for _ in range(5):
        logits = mx.zeros((1, 272))
        for change in made:
            logits = change(mx.array(tokens), logits)
        forced.append(mx.sum(logits == 0).item() == 1 and mx.argmax(logits).item() == end)
        tokens.append(end if forced[-1] else 66)
    assert forced == [False, False, False, thinks, False]


def test_a_schema_waits_for_the_end_of_thinking(ask: Ask) -> None:
    request = GenerationRequest(
        id=RequestId("a"), model=chat("x", "y").model, prompt="<think>", tokens_max=200,
        sampling=Sampling(temperature=0.0, logit_bias={256: -100.0}), reasoning_tokens_max=7,
        answer_schema=json.dumps(SCHEMA),
    )  # fmt: skip
    items = ask(request)
    assert reasoning_of(items)
    assert set(json.loads(text_of(items))) == {"name", "age", "kind"}


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("words only", True),
        ('well <tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>', True),
        ("well <tool_call>\nsurely", False),
        ('<tool_call>{"name": "another", "arguments": {}}</tool_call>', False),
    ],
)
def test_markers_that_are_no_tokens_of_their_own_are_found_in_the_text(
    text: str, whole: bool
) -> None:
    def parse_tool_call(text: str, tools: object) -> object:
        return json.loads(text)

    parse_tool_call.__module__ = "mlx_lm.tool_parsers.json_tools"
    tokenizer: Any = SimpleNamespace(
        has_tool_calling=True, tool_call_start="<tool_call>", tool_call_end="</tool_call>",
        tool_parser=parse_tool_call,
    )  # fmt: skip
    strict: dict[str, object] = {"type": "function", "function": {"name": "other", "strict": True}}
    grammar = grammar_of(chat("a", "x", tools=(strict,)), tokenizer, lambda _: None)
    plain = LLTokenizer(byte_tokenizer().to_str(), n_vocab=260, eos_token=[256])
    matcher = LLMatcher(plain, grammar)
    tokens = plain.tokenize_str(text)
    assert (matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()) is whole
