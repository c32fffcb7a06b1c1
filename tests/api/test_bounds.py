"""Bodies that decode, and would not fit between nodes."""

from typing import Any

import httpx2
import pytest

from node.api.bounds import check_command, check_integers
from node.api.faults import ParameterError
from node.model.command import PlaceInstance, Wish
from node.model.ids import ModelId
from tests.fakes.fake_handle import MODEL, FakeHandle

HUGE = 10**30
COMMANDS, INSTANCES = "/v1/cluster/commands", "/v1/cluster/instances"
PLANS, GENERATE = "/v1/cluster/plan", "/v1/cluster/generate"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
NODE = "a" * 52
USER = [{"role": "user", "content": "a"}]
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "maxProperties": HUGE}},
}


def wishes() -> list[dict[str, Any]]:
    return [{"nodes_min": HUGE}, {"context_tokens": HUGE}, {"layers": [1, HUGE]}]


def generation(**changes: Any) -> dict[str, Any]:
    return {"id": "q-1", "model": MODEL, "prompt": "a", **changes}


def chat(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": USER, **changes}


HUGE_BODIES: list[tuple[str, dict[str, Any]]] = [
    *((COMMANDS, {"type": "PlaceInstance", "model": MODEL, "wish": wish}) for wish in wishes()),
    *((INSTANCES, {"model": MODEL, "wish": wish}) for wish in wishes()),
    *((PLANS, {"model": MODEL, "wish": wish}) for wish in wishes()),
    (
        COMMANDS,
        {"type": "AdmitNode", "node": NODE, "name": "x", "addresses": [["10.0.0.1", HUGE]]},
    ),
    (GENERATE, generation(tokens_max=HUGE)),
    (GENERATE, generation(top_logprobs=HUGE)),
    (GENERATE, generation(sampling={"top_k": HUGE})),
    (GENERATE, generation(sampling={"seed": HUGE})),
    (GENERATE, generation(sampling={"logit_bias": {str(HUGE): 1.0}})),
    (GENERATE, generation(tools=[TOOL])),
    (GENERATE, generation(tool_choice={"a": [HUGE]})),
    (GENERATE, generation(messages=[{"role": "user", "tool_calls": [{"a": HUGE}]}])),
    *((CHAT, chat(**{name: HUGE})) for name in ("seed", "max_tokens", "top_k", "n")),
    (CHAT, chat(logit_bias={str(HUGE): 1})),
    (CHAT, chat(tools=[TOOL])),
    (COMPLETIONS, {"model": MODEL, "prompt": "a", "seed": -HUGE}),
]


@pytest.mark.parametrize(("path", "body"), HUGE_BODIES)
async def test_an_integer_beyond_64_bits_is_refused_before_it_goes_anywhere(
    path: str, body: dict[str, Any], http: httpx2.AsyncClient, handle: FakeHandle
) -> None:
    answer = await http.post(path, json=body)
    assert answer.status_code == 400, answer.text
    assert (handle.commands, handle.planned, handle.generations) == ([], [], [])


LONG_BODIES: list[tuple[str, dict[str, Any], str]] = [
    (COMMANDS, {"type": "RemoveNode", "node": NODE, "reason": "x" * 256}, "reason"),
    (COMMANDS, {"type": "AdmitNode", "node": NODE, "name": "x" * 256}, "name"),
    (
        COMMANDS,
        {"type": "AdmitNode", "node": NODE, "name": "x", "addresses": [["h" * 256, 1]]},
        "addresses[0].host",
    ),
    (COMMANDS, {"type": "CordonNode", "node": "n" * 10_000}, "node"),
    (COMMANDS, {"type": "StopInstance", "instance": "i" * 10_000}, "instance"),
    (COMMANDS, {"type": "PlaceInstance", "model": "m" * 10_000}, "model"),
    (INSTANCES, {"model": MODEL, "wish": {"strategy": "s" * 10_000}}, "wish.strategy"),
    (INSTANCES, {"model": MODEL, "wish": {"nodes": ["n"] * 1001}}, "wish.nodes"),
    (PLANS, {"model": MODEL, "wish": {"layers": [1] * 1001}}, "wish.layers"),
    (PLANS, {"model": MODEL, "wish": {"context_tokens": 2**31}}, "wish.context_tokens"),
]


@pytest.mark.parametrize(("path", "body", "place"), LONG_BODIES)
async def test_a_command_that_can_not_be_meant_is_refused_by_the_name_of_its_part(
    path: str, body: dict[str, Any], place: str, http: httpx2.AsyncClient, handle: FakeHandle
) -> None:
    answer = await http.post(path, json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == place
    assert (handle.commands, handle.planned) == ([], [])


async def test_a_peer_that_is_no_address_is_refused(
    http: httpx2.AsyncClient, handle: FakeHandle
) -> None:
    answer = await http.post("/v1/cluster/join", json={"code": "x", "peer": "h" * 256})
    assert answer.status_code == 400
    assert not handle.joined


def test_what_fits_passes() -> None:
    wish = Wish(context_tokens=2**31 - 1, layers=(1,) * 1000)
    check_command(PlaceInstance(model=ModelId("m" * 255), wish=wish))
    for number in (2**63 - 1, -(2**63)):
        check_integers(str(number).encode(), {"a": [number, True, None, 1.5]})
        with pytest.raises(ParameterError) as caught:
            check_integers(b"9" * 19, {"a": [number * 2]})
        assert caught.value.param == "a[0]"
