"""Anthropic's, Ollama's and OpenAI's newer dialect: what reaches the model, what comes back."""

import json
from typing import Any, get_type_hints

import httpx2
import msgspec
import ollama
import pytest
from anthropic.types.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.message_create_params import MessageCreateParamsBase
from ollama._types import ChatRequest, GenerateRequest
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from node.api.anthropic_order import CountOrder, MessagesOrder
from node.api.ollama_order import OllamaChatOrder, OllamaOptions, OllamaTextOrder
from node.api.responses_order import ResponsesOrder
from node.model.request import Delta, Finished, FinishReason, Message, Usage
from tests.fakes.fake_handle import MODEL, FakeHandle, Step

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
CALL: dict[str, object] = {
    "id": "c1",
    "type": "function",
    "function": {"name": "add", "arguments": '{"a": 1}'},
}
FUNCTION: dict[str, object] = {"name": "add", "description": "Adds.", "parameters": SCHEMA}
CALLING: list[Step] = [
    Delta(index=0, reasoning="Hm."),
    Delta(index=1, text="Let me add."),
    Delta(index=2, tool_calls=(CALL,)),
    Finished(
        reason=FinishReason.TOOL_CALLS,
        usage=Usage(prompt_tokens=10, output_tokens=5, cached_tokens=4, reasoning_tokens=2),
    ),
]


def events(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.split("\n")]
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_every_parameter_that_the_vendors_document_is_known() -> None:
    known = (
        (MessageCreateParamsBase, MessagesOrder),
        (MessageCountTokensParams, CountOrder),
        (ResponseCreateParamsBase, ResponsesOrder),
    )
    for documented, order in known:
        assert set(get_type_hints(documented)) <= set(order.__struct_fields__)
    assert set(ollama.Options.model_fields) <= set(OllamaOptions.__struct_fields__)
    assert set(ChatRequest.model_fields) <= set(OllamaChatOrder.__struct_fields__)
    assert set(GenerateRequest.model_fields) <= set(OllamaTextOrder.__struct_fields__)


# -- Anthropic -------------------------------------------------------------------------------------

ANTHROPIC = "/v1/messages"
ANTHROPIC_TOOL = {"name": "add", "description": "Adds.", "input_schema": SCHEMA}


def message(**changes: Any) -> dict[str, Any]:
    return {
        "model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], **changes,
    }  # fmt: skip


async def test_text_beside_a_tools_result_reaches_the_model(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    result = {
        "type": "tool_result", "tool_use_id": "c1", "is_error": True,
        "content": [{"type": "text", "text": "no"}],
    }  # fmt: skip
    turns = [
        {"role": "user", "content": "Add."},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "So."}, use]},
        {"role": "user", "content": [result, {"type": "text", "text": "Again!"}]},
    ]
    body = message(messages=turns, tools=[ANTHROPIC_TOOL], system=[{"type": "text", "text": "S"}])
    assert (await http.post(ANTHROPIC, json=body)).status_code == 200
    (request,) = handle.generations
    assert request.messages == (
        Message(role="system", content="S"),
        Message(role="user", content="Add."),
        Message(role="assistant", content="So.", reasoning="Hm.", tool_calls=(CALL,)),
        Message(role="tool", content="Error: no", tool_call_id="c1"),
        Message(role="user", content="Again!"),
    )
    assert request.tools == ({"type": "function", "function": FUNCTION},)


async def test_blocks_of_a_stream_follow_one_another(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.script = CALLING
    thinking = {"type": "enabled", "budget_tokens": 2000}
    answer = await http.post(ANTHROPIC, json=message(stream=True, thinking=thinking))
    found = events(answer.text)
    starts = [event for event in found if event["type"] == "content_block_start"]
    assert [event["index"] for event in starts] == [0, 1, 2]
    kinds = [event["content_block"]["type"] for event in starts]
    assert kinds == ["thinking", "text", "tool_use"]
    flow = [(event["type"], event["index"]) for event in found if "index" in event]
    assert flow == [
        (f"content_block_{part}", index)
        for index in range(3)
        for part in ("start", "delta", "stop")
    ]
    change = next(event for event in found if event["type"] == "message_delta")
    assert change["delta"]["stop_reason"] == "tool_use"
    assert change["usage"]["cache_read_input_tokens"] == 4
    assert change["usage"]["input_tokens"] == 6
    (request,) = handle.generations
    assert (request.reasoning, request.reasoning_tokens_max) == ("medium", 2000)
    whole = (await http.post(ANTHROPIC, json=message())).json()
    assert [block["type"] for block in whole["content"]] == ["text", "tool_use"]
    assert whole["content"][1]["input"] == {"a": 1}


async def test_what_messages_ask_for_reaches_the_model(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well,"}]
    body = message(
        messages=turns, tools=[{**ANTHROPIC_TOOL, "strict": True}], top_k=5, top_p=0.5,
        tool_choice={"type": "tool", "name": "add", "disable_parallel_tool_use": True},
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}}, stop_sequences=["x"],
    )  # fmt: skip
    assert (await http.post(ANTHROPIC, json=body)).status_code == 200
    (request,) = handle.generations
    assert request.continue_last
    assert request.single_call
    assert request.tool_choice == {"type": "function", "function": {"name": "add"}}
    assert request.tools[0]["function"] == {**FUNCTION, "strict": True}
    assert msgspec.json.decode(request.answer_schema) == SCHEMA
    assert (request.sampling.top_k, request.sampling.top_p, request.stop) == (5, 0.5, ("x",))
    assert (request.reasoning, request.tokens_max) == ("none", 9)


NOTHING: list[str] = []
IMAGE = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/"}}


@pytest.mark.parametrize(
    ("word", "changes"),
    [
        ("messages[0].content[0]", {"messages": [{"role": "user", "content": [IMAGE]}]}),
        ("messages[0].content", {"messages": [{"role": "user", "content": NOTHING}]}),
        ("messages[0].content", {"messages": [{"role": "assistant", "content": NOTHING}]}),
        ("messages[0].role", {"messages": [{"role": "tool", "content": "x"}]}),
        ("tool_choice", {"tool_choice": {"type": "any"}}),
        ("tool_choice.name", {"tools": [ANTHROPIC_TOOL], "tool_choice": {"type": "tool"}}),
        ("tools[0].type", {"tools": [{"type": "bash_20250124", "name": "bash"}]}),
        ("thinking.budget_tokens", {"thinking": {"type": "enabled"}}),
        ("thinking.type", {"thinking": {"type": "deep"}}),
        ("output_config.effort", {"output_config": {"effort": "much"}}),
        ("container", {"container": "c"}),
        ("speed", {"speed": "fast"}),
        ("max_tokens", {"max_tokens": -1}),
    ],
)
async def test_what_messages_can_not_have_is_refused_by_name(
    handle: FakeHandle, http: httpx2.AsyncClient, word: str, changes: dict[str, Any]
) -> None:
    answer = await http.post(ANTHROPIC, json=message(**changes))
    assert answer.status_code == 400, answer.text
    body = answer.json()
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["error"]["message"].startswith(f"{word}: ")
    assert not handle.generations


# -- Ollama ----------------------------------------------------------------------------------------


async def test_ollamas_calls_carry_objects_both_ways(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.script = CALLING
    turns = [
        {"role": "user", "content": "Add."},
        {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 2}}}]},
        {"role": "tool", "tool_name": "add", "content": "2"},
    ]
    tool = {"type": "function", "function": FUNCTION}
    body = {"model": MODEL, "messages": turns, "tools": [tool], "stream": False, "think": "low"}
    said = (await http.post("/api/chat", json=body)).json()["message"]
    assert said["thinking"] == "Hm."
    assert said["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1}}
    (request,) = handle.generations
    assert request.reasoning == "low"
    assert request.tools == (tool,)
    (call,) = request.messages[1].tool_calls
    assert call["function"] == {"name": "add", "arguments": '{"a":2}'}
    lines = events((await http.post("/api/chat", json={**body, "stream": True})).text)
    assert [line["done"] for line in lines] == [False, False, False, True]
    assert lines[-1]["prompt_eval_count"] == 10


async def test_ollamas_options_reach_the_model(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    options = {
        "temperature": 0.5, "top_k": 3, "seed": 7, "num_predict": 4, "stop": "x", "num_ctx": 2048,
        "repeat_penalty": 1.3, "repeat_last_n": 9,
    }  # fmt: skip
    body = {"model": MODEL, "prompt": "Hi", "options": options, "format": "json", "stream": False}
    assert (await http.post("/api/generate", json=body)).status_code == 200
    plain = {"model": MODEL, "prompt": "Hi", "raw": True, "stream": False}
    assert (await http.post("/api/generate", json=plain)).status_code == 200
    request, raw = handle.generations
    drawn = request.sampling
    assert (drawn.temperature, drawn.top_k, drawn.seed) == (0.5, 3, 7)
    assert (drawn.repetition_penalty, drawn.repetition_window) == (1.3, 9)
    assert (request.tokens_max, request.stop, request.answer_schema != "") == (4, ("x",), True)
    assert raw.prompt == "Hi"
    assert (raw.sampling.temperature, raw.sampling.top_k, raw.sampling.top_p) == (0.8, 40, 0.9)


# -- Responses -------------------------------------------------------------------------------------


async def test_a_response_with_a_call_and_what_came_of_an_earlier_one(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.script = CALLING
    items = [
        {"role": "developer", "content": "Brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Add."}]},
        {"type": "reasoning", "id": "r", "summary": [],
         "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
    ]  # fmt: skip
    tool = {"type": "function", "strict": True, **FUNCTION}
    body = {"model": MODEL, "input": items, "tools": [tool], "tool_choice": "required"}
    answer = (await http.post("/v1/responses", json=body)).json()
    assert [item["type"] for item in answer["output"]] == ["reasoning", "message", "function_call"]
    assert answer["output"][2]["arguments"] == '{"a": 1}'
    assert answer["usage"]["input_tokens_details"]["cached_tokens"] == 4
    assert answer["usage"]["output_tokens_details"] == {"reasoning_tokens": 2}
    (request,) = handle.generations
    assert request.messages == (
        Message(role="system", content="Brief."),
        Message(role="user", content="Add."),
        Message(role="assistant", reasoning="Hm.", tool_calls=(CALL,)),
        Message(role="tool", content="2", tool_call_id="c1"),
    )
    assert request.tool_choice == "required"
    found = events((await http.post("/v1/responses", json={**body, "stream": True})).text)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    added = [event for event in found if event["type"] == "response.output_item.added"]
    done = [event for event in found if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in added] == [0, 1, 2]
    assert [event["item"]["id"] for event in added] == [event["item"]["id"] for event in done]
    assert found[-1]["response"]["output"] == [event["item"] for event in done]


@pytest.mark.parametrize(
    ("param", "changes"),
    [
        ("store", {"store": True}),
        ("previous_response_id", {"previous_response_id": "resp_1"}),
        ("text.verbosity", {"text": {"verbosity": "low"}}),
        ("text.format.type", {"text": {"format": {"type": "grammar"}}}),
        ("reasoning.effort", {"reasoning": {"effort": "much"}}),
        ("reasoning.summary", {"reasoning": {"summary": "auto"}}),
        ("tools[0]", {"tools": [{"type": "web_search"}]}),
        ("tool_choice", {"tool_choice": "required"}),
        ("include", {"include": ["file_search_call.results"]}),
        ("input", {"input": ""}),
        ("input[0]", {"input": [{"type": "item_reference", "id": "x"}]}),
        ("top_logprobs", {"top_logprobs": 2}),
    ],
)
async def test_what_responses_can_not_have_is_refused_by_name(
    handle: FakeHandle, http: httpx2.AsyncClient, param: str, changes: dict[str, Any]
) -> None:
    answer = await http.post("/v1/responses", json={"model": MODEL, "input": "Hi", **changes})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert not handle.generations


@pytest.mark.parametrize("path", ["/v1/embeddings", "/api/embed", "/ollama/api/embeddings"])
async def test_embeddings_are_refused_by_name_in_the_client_s_own_form(
    http: httpx2.AsyncClient, path: str
) -> None:
    answer = await http.post(path, json={"model": "m", "input": "words"})
    assert answer.status_code == 404
    error = answer.json()["error"]
    message = error["message"] if path.startswith("/v1") else error
    assert "embeddings are not served" in message
    if path.startswith("/v1"):
        assert error["code"] == "embeddings_not_served"
