"""Chat completions over HTTP."""

import json
from typing import Any, cast, get_type_hints

import httpx2
import msgspec
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.completion_create_params import CompletionCreateParamsBase as TextParamsBase

from node.api.openai_chat_order import ChatOrder
from node.api.openai_completions import CompletionOrder
from node.model.errors import (
    BusyError,
    ExoctlError,
    Failure,
    InternalError,
    NotFoundError,
    TimeoutExpiredError,
    UsageError,
)
from node.model.register import HeldModel, ModelFigures
from node.model.request import (
    Delta,
    Failed,
    Finished,
    FinishReason,
    Prefilled,
    Queued,
    Sampling,
    TokenLogprob,
    Usage,
)
from tests.fakes.eventually import eventually
from tests.fakes.fake_handle import ALPHA, MODEL, FakeHandle, Step, make_card, make_script

PATH = "/v1/chat/completions"


def finish(reason: FinishReason = FinishReason.STOP) -> list[Step]:
    return [Finished(reason=reason, usage=Usage(prompt_tokens=5, output_tokens=2))]


def order(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], **changes}


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


async def test_a_whole_answer_has_text_reason_and_usage(http: httpx2.AsyncClient) -> None:
    answer = await http.post(PATH, json=order())
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"] == {
        "role": "assistant",
        "content": "Hello there",
        "refusal": None,
    }
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["total_tokens"] == 7


async def test_a_stream_has_role_text_reason_and_done_in_this_order(
    http: httpx2.AsyncClient,
) -> None:
    answer = await http.post(PATH, json=order(stream=True))
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, done = events(answer.text)
    assert done == "[DONE]"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert [delta.get("content") for delta in deltas[1:-1]] == ["Hello", " there"]
    assert deltas[-1] == {}
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert all("usage" not in chunk for chunk in chunks)


async def test_usage_comes_last_where_it_is_asked_for(http: httpx2.AsyncClient) -> None:
    answer = await http.post(PATH, json=order(stream=True, stream_options={"include_usage": True}))
    *chunks, last, _ = events(answer.text)
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] == 5
    assert last["usage"]["completion_tokens"] == 2


async def test_parameters_reach_the_generation(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    answer = await http.post(
        PATH,
        json=order(
            messages=[
                {"role": "developer", "content": [
                    {"type": "text", "text": "Be "}, {"type": "text", "text": "brief"}]},
                {"role": "user", "content": "Hi", "name": "ann"},
                {"role": "assistant", "content": None, "tool_calls": [call("f", "c1")]},
                {"role": "tool", "content": "42", "tool_call_id": "c1"},
            ],
            temperature=0.5, top_p=0.9, top_k=40, min_p=0.1, seed=7, stop="END",
            presence_penalty=0.1, frequency_penalty=-0.2, repetition_penalty=1.1,
            logit_bias={"12": -100}, max_tokens=9, logprobs=True, top_logprobs=3,
            user="ann", metadata={"a": "b"}, something_unknown=1, store=False,
        ),
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    (request,) = handle.generations
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "tool"]
    assert request.messages[0].content == "Be brief"
    assert request.messages[1].name == "ann"
    assert request.messages[2].tool_calls[0]["function"] == {"name": "f", "arguments": "{}"}
    assert request.messages[3].tool_call_id == "c1"
    assert request.sampling == Sampling(
        temperature=0.5, top_p=0.9, top_k=40, min_p=0.1, seed=7,
        presence_penalty=0.1, frequency_penalty=-0.2, repetition_penalty=1.1,
        logit_bias={12: -100.0},
    )  # fmt: skip
    assert (request.tokens_max, request.stop, request.top_logprobs) == (9, ("END",), 3)
    assert answer.headers["x-request-id"] == request.id
    assert answer.json()["id"] == f"chatcmpl-{request.id}"


async def test_defaults_are_openai_s(handle: FakeHandle, http: httpx2.AsyncClient) -> None:
    await http.post(PATH, json=order(max_completion_tokens=3, max_tokens=9))
    (request,) = handle.generations
    assert request.sampling == Sampling()
    assert request.tokens_max == 3
    assert request.top_logprobs is None


TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("messages", {"messages": []}),
    ("messages", {"messages": "Hi"}),
    ("messages[0].role", {"messages": [{"role": "function", "content": "x"}]}),
    ("messages[0].role", {"messages": [{"content": "x"}]}),
    ("messages[0].content", {"messages": [{"role": "user"}]}),
    ("messages[0].tool_call_id", {"messages": [{"role": "tool", "content": "x"}]}),
    (
        "messages[0].content[0]",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
    ),
    ("messages[0].audio", {"messages": [{"role": "assistant", "content": "", "audio": {}}]}),
    ("temperature", {"temperature": 2.1}),
    ("temperature", {"temperature": "hot"}),
    ("top_p", {"top_p": 0}),
    ("top_k", {"top_k": -2}),
    ("min_p", {"min_p": 1.5}),
    ("seed", {"seed": 2**63}),
    ("max_tokens", {"max_tokens": 0}),
    ("max_completion_tokens", {"max_completion_tokens": -1}),
    ("stop[0]", {"stop": [""]}),
    ("stop", {"stop": ["a"] * 17}),
    ("n", {"n": 17}),
    ("n", {"n": 0}),
    ("logit_bias", {"logit_bias": {"a": 1}}),
    ("logit_bias[...]", {"logit_bias": {"1": 101}}),
    ("top_logprobs", {"top_logprobs": 2}),
    ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
    ("stream_options", {"stream_options": {"include_usage": True}}),
    (
        "stream_options.include_obfuscation",
        {"stream": True, "stream_options": {"include_obfuscation": True}},
    ),
    ("tools[0]", {"tools": [{"type": "custom"}]}),
    ("tools[0].function.name", {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
    ("tool_choice", {"tool_choice": "auto"}),
    ("tool_choice", {"tool_choice": "required", "tools": []}),
    ("tool_choice", {"tool_choice": "sometimes", "tools": TOOLS}),
    (
        "tool_choice",
        {"tool_choice": {"type": "function", "function": {"name": "no"}}, "tools": TOOLS},
    ),
    ("tool_choice", {"tool_choice": {"type": "function"}, "tools": TOOLS}),
    ("response_format.type", {"response_format": {"type": "grammar"}}),
    ("response_format.json_schema", {"response_format": {"type": "json_schema"}}),
    (
        "response_format.json_schema.name",
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
    ),
    (
        "response_format.json_schema.schema",
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": {"title": "a" * 70_000}},
            }
        },
    ),
    ("reasoning_effort", {"reasoning_effort": "most"}),
    ("model", {"model": "../../etc"}),
    ("model", {"model": "a\0b"}),
    ("model", {"model": "a" * 201}),
    ("model", {"model": ""}),
    *(
        (name, {name: value})
        for name, value in cast("dict[str, object]", {
            "audio": {}, "function_call": "auto", "functions": [], "modalities": ["audio"],
            "moderation": {}, "prediction": {}, "prompt_cache_options": {},
            "prompt_cache_retention": "24h", "service_tier": "flex",
            "store": True, "verbosity": "low", "web_search_options": {},
        }).items()
    ),
]  # fmt: skip


@pytest.mark.parametrize(("param", "changes"), WRONG)
async def test_what_can_not_be_honoured_is_refused_by_name(
    handle: FakeHandle, http: httpx2.AsyncClient, param: str, changes: dict[str, Any]
) -> None:
    answer = await http.post(PATH, json=order(**changes))
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert not handle.generations


def test_every_parameter_that_openai_documents_is_known() -> None:
    chat = get_type_hints(CompletionCreateParamsBase)
    assert set(chat) <= set(ChatOrder.__struct_fields__)
    text = get_type_hints(TextParamsBase)
    assert set(text) <= set(CompletionOrder.__struct_fields__)


async def test_values_that_change_nothing_are_let_through(http: httpx2.AsyncClient) -> None:
    answer = await http.post(
        PATH,
        json=order(
            modalities=["text"], service_tier="auto", store=False, verbosity="medium",
            response_format={"type": "text"}, n=None, stream=False, tools=[], top_k=-1,
        ),
    )  # fmt: skip
    assert answer.status_code == 200, answer.text


async def test_an_unknown_model_is_404_with_what_is_loaded_and_how_to_load(
    http: httpx2.AsyncClient,
) -> None:
    answer = await http.post(PATH, json=order(model="owner/other"))
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert error["code"] == "model_not_found"
    assert MODEL in error["message"]
    assert "exoctl load owner/other" in error["message"]


FAILURES: list[tuple[ExoctlError, int, str]] = [
    (BusyError.because("queue_full", "64 wait"), 429, "rate_limit_error"),
    (BusyError.because("not_ready", "it loads"), 503, "server_error"),
    (UsageError.because("context", "5000 tokens, 4096 fit"), 400, "invalid_request_error"),
    (NotFoundError.because("gone", "no instance"), 404, "not_found_error"),
    (InternalError.because("bug", "our mistake"), 500, "server_error"),
    (TimeoutExpiredError.because("late", "too late"), 504, "server_error"),
]


@pytest.mark.parametrize(("error", "status", "kind"), FAILURES)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_failure_before_the_first_token_is_a_status(
    handle: FakeHandle,
    http: httpx2.AsyncClient,
    error: ExoctlError,
    status: int,
    kind: str,
    streamed: bool,
) -> None:
    failed = Failed(kind=type(error).__name__, failure=error.failure)
    for last in (failed, error):
        handle.script = [Queued(ahead=2), Prefilled(done=1, total=9), last]
        answer = await http.post(PATH, json=order(stream=streamed))
        assert answer.status_code == status
        assert answer.json()["error"]["type"] == kind
        assert answer.json()["error"]["message"] == error.failure.message
        assert ("retry-after" in answer.headers) == (status in (429, 503))


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.0, "5"), (0.2, "1"), (41.3, "42"), (1e9, "600"), (float("nan"), "5")]
)
async def test_who_is_refused_for_now_is_told_when_to_come_again(
    handle: FakeHandle, http: httpx2.AsyncClient, seconds: float, told: str
) -> None:
    failure = Failure(code="queue_full", message="64 wait", retry_seconds=seconds)
    handle.script = [Failed(kind="BusyError", failure=failure)]
    answer = await http.post(PATH, json=order())
    assert (answer.status_code, answer.headers["retry-after"]) == (429, told)


async def test_a_failure_after_the_first_token_is_an_event_and_the_end(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.script = [Delta(index=0, text="a"), BusyError.because("runner_lost", "it died")]
    answer = await http.post(PATH, json=order(stream=True))
    assert answer.status_code == 200
    assert events(answer.text)[-1]["error"]["code"] == "runner_lost"
    assert "[DONE]" not in answer.text


async def test_a_long_wait_starts_the_stream_with_keep_alives(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.script = [Queued(ahead=1), 0.5, BusyError.because("runner_lost", "it died")]
    answer = await http.post(PATH, json=order(stream=True))
    assert answer.status_code == 200
    assert 3 <= answer.text.count(": keep-alive\n\n") <= 4
    assert events(answer.text)[-1]["error"]["code"] == "runner_lost"


async def test_progress_does_not_keep_a_client_waiting_in_silence(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    progress: list[Step] = [Prefilled(done=number, total=20) for number in range(20)]
    handle.script = [step for each in progress for step in (each, 0.03)] + make_script()
    answer = await http.post(PATH, json=order(stream=True))
    assert answer.text.startswith(": keep-alive\n\n: keep-alive\n\n")
    assert answer.text.endswith("data: [DONE]\n\n")


async def test_a_gap_in_the_deltas_is_our_mistake_and_is_told(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.script = [Delta(index=0, text="a"), Delta(index=2, text="c")]
    answer = await http.post(PATH, json=order())
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "stream_gap"


async def test_a_generation_without_an_end_is_told(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.script = [Delta(index=0, text="a")]
    answer = await http.post(PATH, json=order(stream=True))
    assert events(answer.text)[-1]["error"]["code"] == "stream_cut"


async def test_a_mistake_of_ours_is_a_500_and_nothing_more(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.failing["generate"] = RuntimeError("secret detail")  # type: ignore[assignment]
    answer = await http.post(PATH, json=order())
    assert answer.status_code == 500
    assert "secret" not in answer.text
    del handle.failing["generate"]
    assert (await http.post(PATH, json=order())).status_code == 200


async def test_n_answers_differ_by_seed_and_share_the_prompt_s_count(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    body = (await http.post(PATH, json=order(n=3, seed=5))).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert sorted(request.sampling.seed or 0 for request in handle.generations) == [5, 6, 7]
    assert len({request.id for request in handle.generations}) == 3
    assert body["usage"]["prompt_tokens"] == 5
    assert body["usage"]["completion_tokens"] == 6


async def test_one_failed_answer_of_n_ends_all(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.script = [Delta(index=0, text="a"), BusyError.because("runner_lost", "it died")]
    answer = await http.post(PATH, json=order(n=3, stream=True))
    assert answer.text.count("runner_lost") == 1
    await eventually(lambda: len(handle.closed) == 3)


async def test_logprobs_are_given_with_bytes_and_alternatives(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    token = TokenLogprob(token="é", logprob=-0.5, top=(("é", -0.5), ("e", -1.5)))
    handle.script = [Delta(index=0, text="é", logprobs=(token,)), *finish()]
    body = (await http.post(PATH, json=order(logprobs=True, top_logprobs=2))).json()
    (content,) = body["choices"][0]["logprobs"]["content"]
    assert content["bytes"] == [195, 169]
    assert [each["token"] for each in content["top_logprobs"]] == ["é", "e"]
    streamed = await http.post(PATH, json=order(logprobs=True, stream=True))
    assert events(streamed.text)[1]["choices"][0]["logprobs"]["content"][0]["logprob"] == -0.5


def call(name: str, call_id: str) -> dict[str, object]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


async def test_tool_calls_are_numbered_and_end_with_their_reason(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.script = [
        Delta(index=0, tool_calls=(call("add", "c1"),)),
        Delta(index=1, tool_calls=(call("add", "c2"),)),
        *finish(FinishReason.TOOL_CALLS),
    ]
    body = (await http.post(PATH, json=order(tools=TOOLS))).json()["choices"][0]
    assert body["finish_reason"] == "tool_calls"
    assert body["message"]["content"] is None
    assert [each["id"] for each in body["message"]["tool_calls"]] == ["c1", "c2"]
    chunks = events((await http.post(PATH, json=order(tools=TOOLS, stream=True))).text)
    numbers = [
        part["index"]
        for chunk in chunks[:-1]
        for part in chunk["choices"][0]["delta"].get("tool_calls", [])
    ]
    assert numbers == [0, 1]
    single = await http.post(PATH, json=order(tools=TOOLS, parallel_tool_calls=False))
    assert len(single.json()["choices"][0]["message"]["tool_calls"]) == 1


async def test_the_form_of_an_answer_and_of_calls_reaches_the_model(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    strict = {"type": "function", "function": {"name": "add", "strict": True}}
    named = {"type": "function", "function": {"name": "add"}}
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    for changes in (
        {"response_format": {"type": "json_object"}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": schema},
            }
        },
        {"tools": [strict], "tool_choice": "required", "parallel_tool_calls": False},
        {"tools": TOOLS, "tool_choice": named},
        {"reasoning_effort": "low"},
        {},
    ):
        assert (await http.post(PATH, json=order(**changes))).status_code == 200, changes
    anything, kept, forced, one, thinking, plain = handle.generations
    assert anything.answer_schema == '{"type":"object"}'
    assert msgspec.json.decode(kept.answer_schema) == schema
    assert forced.tools == (strict,)
    assert (forced.tool_choice, forced.single_call) == ("required", True)
    assert one.tool_choice == named
    assert thinking.reasoning == "low"
    assert (plain.answer_schema, plain.tool_choice, plain.reasoning) == ("", None, "")


async def test_effort_of_reasoning_is_refused_where_the_model_does_not_reason(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    held = ModelFigures(held=(HeldModel(card=make_card(), complete=True, bytes_on_disk=1),))
    handle.set_register(ALPHA, held)
    answer = await http.post(PATH, json=order(reasoning_effort="high"))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "reasoning_effort"
    assert (await http.post(PATH, json=order(reasoning_effort="none"))).status_code == 200


async def test_tools_of_a_model_that_can_not_call_are_refused(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    held = HeldModel(card=make_card(), complete=True, bytes_on_disk=1)
    handle.set_register(ALPHA, ModelFigures(held=(held,)))
    answer = await http.post(PATH, json=order(tools=TOOLS))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tools"
    assert (await http.post(PATH, json=order(tools=TOOLS, tool_choice="none"))).status_code == 200


async def test_reasoning_is_apart_from_the_text(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    usage = Usage(prompt_tokens=5, output_tokens=2, reasoning_tokens=1)
    end = Finished(reason=FinishReason.STOP, usage=usage)
    handle.script = [Delta(index=0, reasoning="hm"), Delta(index=1, text="yes"), end]
    answer = (await http.post(PATH, json=order())).json()
    message = answer["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", "yes")
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 1}


async def test_a_cancelled_generation_is_no_answer(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.script = [Delta(index=0, text="a"), *finish(FinishReason.CANCELLED)]
    assert (await http.post(PATH, json=order())).status_code == 499
    streamed = await http.post(PATH, json=order(stream=True))
    assert events(streamed.text)[-1]["error"]["code"] == "cancelled"


async def test_all_answers_of_a_request_are_cancelled_by_its_id(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.script = [Delta(index=0, text="a"), 0.2, Delta(index=1, text="b")]
    async with http.stream("POST", PATH, json=order(n=3, stream=True)) as answer:
        shown = f"chatcmpl-{answer.headers['x-request-id']}"
        cancelled = await http.post(f"/v1/cancel/{shown}")
        assert cancelled.json()["items"][0]["cancelled"] is True
        text = "".join([part async for part in answer.aiter_text()])
    assert events(text)[-1]["error"]["code"] == "cancelled"
    assert len(handle.cancelled) == 3
