"""Plain completions, and the list of models."""

from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from node.api.server import ApiServer
from node.model.ids import InstanceId, ModelId
from node.model.instance import RunnerPhase
from node.model.register import HeldModel, ModelFigures
from node.model.request import Delta, TokenLogprob
from tests.api.conftest import raw_status
from tests.api.test_chat import events, finish
from tests.fakes.fake_handle import (
    ALPHA,
    BETA,
    MODEL,
    FakeHandle,
    make_card,
    make_instance,
    make_runners,
    make_state,
    without_instances,
)

PATH = "/v1/completions"


def order(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "Once", **changes}


async def test_a_text_goes_on(handle: FakeHandle, http: httpx2.AsyncClient) -> None:
    body = (await http.post(PATH, json=order())).json()
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {"index": 0, "text": "Hello there", "finish_reason": "stop", "logprobs": None}
    ]
    (request,) = handle.generations
    assert request.prompt == "Once"
    assert request.messages == ()
    assert request.tokens_max == 16


async def test_a_streamed_text_ends_with_reason_usage_and_done(http: httpx2.AsyncClient) -> None:
    answer = await http.post(PATH, json=order(stream=True, stream_options={"include_usage": True}))
    *chunks, usage, done = events(answer.text)
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["Hello", " there", ""]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert usage["usage"]["total_tokens"] == 7
    assert done == "[DONE]"


async def test_several_prompts_are_answered_side_by_side(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    body = (await http.post(PATH, json=order(prompt=["a", "b"], n=2))).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert sorted(request.prompt or "" for request in handle.generations) == ["a", "a", "b", "b"]
    assert body["usage"]["prompt_tokens"] == 10


async def test_logprobs_stand_side_by_side(handle: FakeHandle, http: httpx2.AsyncClient) -> None:
    tokens = tuple(
        TokenLogprob(token=text, logprob=-1.0, top=((text, -1.0),)) for text in ("ab", "c")
    )
    handle.script = [
        Delta(index=0, text="ab", logprobs=tokens[:1]),
        Delta(index=1, text="c", logprobs=tokens[1:]),
        *finish(),
    ]
    expected = {
        "tokens": ["ab", "c"],
        "token_logprobs": [-1.0, -1.0],
        "top_logprobs": [{"ab": -1.0}, {"c": -1.0}],
        "text_offset": [0, 2],
    }
    body = (await http.post(PATH, json=order(logprobs=1))).json()
    assert body["choices"][0]["logprobs"] == expected
    chunks = events((await http.post(PATH, json=order(logprobs=1, stream=True))).text)
    assert chunks[1]["choices"][0]["logprobs"]["text_offset"] == [2]


@pytest.mark.parametrize(
    ("param", "changes"),
    [
        ("prompt", {"prompt": []}),
        ("prompt", {"prompt": [1, 2]}),
        ("prompt", {"prompt": ["a"] * 17}),
        ("prompt", {"prompt": None}),
        ("prompt", {"prompt": ["a"] * 8, "n": 3}),
        ("echo", {"echo": True}),
        ("suffix", {"suffix": "x"}),
        ("best_of", {"best_of": 2}),
        ("logprobs", {"logprobs": 21}),
        ("logprobs", {"logprobs": True}),
    ],
)
async def test_what_can_not_be_honoured_is_refused_by_name(
    http: httpx2.AsyncClient, param: str, changes: dict[str, Any]
) -> None:
    answer = await http.post(PATH, json=order(**changes))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


async def test_models_are_listed_with_what_they_can_do_now(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    loading = make_instance(InstanceId("i-00000002"), ModelId("owner/big"), (ALPHA, BETA))
    state = make_state()
    handle.state = replace(
        state,
        instances={**state.instances, loading.instance: loading},
        runners={**state.runners, **make_runners(loading, RunnerPhase.LOADING)},
    )
    cards = [make_card(), make_card(ModelId("other"))]
    held = tuple(HeldModel(card=card, complete=True, bytes_on_disk=1) for card in cards)
    part = HeldModel(card=make_card(ModelId("partly")), complete=False, bytes_on_disk=1)
    handle.set_register(ALPHA, ModelFigures(held=(*held, part)))
    body = (await http.get("/v1/models")).json()
    assert body["object"] == "list"
    assert [(model["id"], model["status"]) for model in body["data"]] == [
        (MODEL, "ready"),
        ("owner/big", "loading"),
        ("other", "on_disk"),
    ]
    assert body["data"][0]["created"] == 1_700_000_000
    assert (await http.get("/v1/models/owner/big")).json()["status"] == "loading"
    missing = await http.get("/v1/models/nothing")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


async def test_a_model_on_disk_says_how_to_load_it(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.state = without_instances(handle.state)
    held = HeldModel(card=make_card(), complete=True, bytes_on_disk=1)
    handle.set_register(ALPHA, ModelFigures(held=(held,)))
    answer = await http.post(PATH, json=order())
    assert answer.status_code == 404
    message = answer.json()["error"]["message"]
    assert "on disk but not loaded" in message
    assert f"exoctl load {MODEL}" in message


@pytest.mark.parametrize("name", ["..", "a/../b", "a%00b", "a%2F..%2Fb", "x" * 300, "%ff", "-a"])
async def test_a_name_that_can_not_be_one_is_400(server: ApiServer, name: str) -> None:
    assert await raw_status(server, f"/v1/models/{name}") == 400
