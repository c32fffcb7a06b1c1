"""The cluster dialect: what is shown, and what is told."""

from collections.abc import Callable
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec.structs import replace

from node.api.server import ApiServer
from node.core import instance_status
from node.handle import LogLine
from node.model.command import PlaceInstance, Refused, StopInstance, Wish
from node.model.errors import Failure, TimeoutExpiredError
from node.model.ids import CommandId, RequestId
from node.model.instance import RunnerPhase
from node.model.machine import Address
from node.model.register import (
    DownloadFigures,
    DownloadRecord,
    LinkFigures,
    LinkRecord,
    RequestFigures,
    RouterFigures,
    RunnerFigures,
    RunnerProgress,
)
from node.model.request import RequestPhase, RequestRecord
from node.model.state import State
from node.model.topology import Plan
from tests.api.conftest import raw_status
from tests.fakes.eventually import eventually
from tests.fakes.fake_handle import (
    ALPHA,
    BETA,
    INSTANCE,
    MODEL,
    FakeHandle,
    make_machine_figures,
    make_state,
)

REQUEST = RequestRecord(
    request=RequestId("q-0123456789abcdef"),
    model=MODEL,
    instance=INSTANCE,
    taken_by=ALPHA,
    phase=RequestPhase.DECODE,
    started_at=1_700_000_000.5,
)


async def items(http: httpx2.AsyncClient, path: str, kind: str) -> list[Any]:
    answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    page = answer.json()
    assert page["apiVersion"] == "exoctl/v1"
    assert page["kind"] == kind
    assert page["index"] == 20
    return page["items"]


async def test_the_summary_counts(handle: FakeHandle, http: httpx2.AsyncClient) -> None:
    handle.set_register(ALPHA, RequestFigures(requests=(REQUEST,)))
    (summary,) = await items(http, "/v1/cluster", "Cluster")
    assert summary["session"] == {"term": 3, "master": ALPHA, "incarnation": 1}
    assert summary["master_name"] == "alpha"
    assert (summary["nodes"], summary["nodes_lost"]) == (2, 0)
    assert (summary["instances"], summary["instances_ready"]) == (1, 1)
    assert summary["requests_running"] == 1


async def test_times_are_rfc_3339_and_addresses_are_texts(http: httpx2.AsyncClient) -> None:
    (instance,) = await items(http, "/v1/cluster/instances", "Instance")
    assert instance["status"] == "ready"
    assert instance["instance"]["placed_at"] == "2023-11-14T22:13:20.000Z"
    assert instance["runners"][0]["phase"] == "ready"
    nodes = await items(http, "/v1/cluster/nodes", "Node")
    assert nodes[0]["record"]["addresses"] == ["127.0.0.1:52416"]
    assert nodes[0]["record"]["lost_at"] is None
    assert nodes[0]["is_master"] is True


async def test_the_state_is_shown_without_answers_and_exactly_with_them(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    (state,) = await items(http, "/v1/cluster/state", "State")
    assert set(state) == set(State.__struct_fields__) - {"answers", "answers_before"}
    exact = (await http.get("/v1/cluster/state?exact=1")).json()["items"][0]
    assert msgspec.convert(exact, State) == handle.state


async def test_a_node_is_found_by_name_and_by_the_beginning_of_its_id(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.set_register(BETA, make_machine_figures())
    for wanted in ("beta", BETA, BETA[:12]):
        (node,) = await items(http, f"/v1/cluster/nodes/{wanted}", "Node")
        assert node["record"]["name"] == "beta"
        assert node["registers"]["MachineFigures"]["type"] == "MachineFigures"
    assert (await http.get("/v1/cluster/nodes/gamma")).status_code == 404


async def test_registers_are_spread_over_their_pages(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    link = LinkRecord(peer=BETA, address=Address("::1", 1), up=True)
    handle.set_register(ALPHA, LinkFigures(links=(link,)))
    download = DownloadRecord(model=MODEL, phase="downloading", bytes_done=1, bytes_total=9)
    handle.set_register(BETA, DownloadFigures(downloads=(download,)))
    handle.set_register(ALPHA, RequestFigures(requests=(REQUEST,)))
    (shown,) = await items(http, "/v1/cluster/topology", "Link")
    assert shown["link"]["address"] == "[::1]:1"
    (shown,) = await items(http, "/v1/cluster/downloads", "Download")
    assert shown["download"]["bytes_total"] == 9
    (shown,) = await items(http, "/v1/cluster/requests", "Request")
    assert shown["started_at"] == "2023-11-14T22:13:20.500Z"
    assert await items(http, f"/v1/cluster/requests/{REQUEST.request}", "Request") == [shown]
    assert (await http.get("/v1/cluster/requests/q-1")).status_code == 404
    assert len(await items(http, "/v1/cluster/registers", "Register")) == 3


async def test_logs_are_bounded_and_chosen(handle: FakeHandle, http: httpx2.AsyncClient) -> None:
    handle.log_lines = [
        LogLine(at=1_700_000_000.0 + number, level="info", source="worker", text=str(number))
        for number in range(5)
    ]
    lines = await items(http, "/v1/cluster/logs?lines=2", "LogLine")
    assert [line["text"] for line in lines] == ["3", "4"]
    assert lines[0]["at"] == "2023-11-14T22:13:23.000Z"
    assert await items(http, "/v1/cluster/logs?source=master", "LogLine") == []
    assert await items(http, "/v1/cluster/log_sources", "LogSource") == ["worker"]
    assert (await http.get("/v1/cluster/logs?lines=ten")).status_code == 400


async def test_an_instance_is_placed_shown_waited_for_and_stopped(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    body = {"model": MODEL, "wish": {"nodes": [ALPHA], "context_tokens": 2048}}
    answer = await http.post("/v1/cluster/instances", json=body)
    assert answer.status_code == 201
    assert answer.json()["items"][0]["subject"] == "i-00000001"
    wish = Wish(nodes=(ALPHA,), context_tokens=2048)
    assert handle.commands == [PlaceInstance(model=MODEL, wish=wish)]
    (shown,) = await items(http, f"/v1/cluster/instances/{INSTANCE}", "Instance")
    assert shown["instance"]["instance"] == INSTANCE
    waited = await items(http, f"/v1/cluster/instances/{INSTANCE}/wait?timeout=1", "Instance")
    assert waited == [shown]
    assert (await http.delete(f"/v1/cluster/instances/{INSTANCE}")).status_code == 200
    assert handle.commands[1:] == [StopInstance(instance=INSTANCE)]


async def test_a_refusal_is_an_error_with_numbers_and_remedy(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    failure = Failure(code="no_fit", message="9 GiB > 4 GiB", remedy="free 5 GiB", node="alpha")
    handle.answers.append(Refused(id=CommandId("c-1"), kind="NoFitError", failure=failure))
    answer = await http.post("/v1/cluster/instances", json={"model": MODEL})
    assert answer.status_code == 409
    error = answer.json()["error"]
    assert error["kind"] == "NoFitError"
    assert msgspec.convert({**error, "type": None}, Failure) == failure


async def test_what_is_not_there_is_404(http: httpx2.AsyncClient) -> None:
    for method, path in (
        ("GET", "/v1/cluster/instances/i-ffffffff"),
        ("DELETE", "/v1/cluster/instances/i-ffffffff"),
        ("GET", "/v1/cluster/instances/i-ffffffff/wait"),
        ("GET", "/v1/cluster/nothing"),
        ("GET", "/nothing"),
    ):
        answer = await http.request(method, path)
        assert answer.status_code == 404, (method, path)
        assert answer.json()["error"]["code"]
        assert answer.headers["x-request-id"]


async def test_a_wrong_method_is_405_and_says_the_right_one(http: httpx2.AsyncClient) -> None:
    answer = await http.delete("/v1/cluster/instances")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD, POST"
    assert "POST" in answer.json()["error"]["remedy"]


async def test_waiting_too_long_is_504(handle: FakeHandle, http: httpx2.AsyncClient) -> None:
    handle.state = make_state(RunnerPhase.LOADING)
    answer = await http.get(f"/v1/cluster/instances/{INSTANCE}/wait?timeout=0.05")
    assert answer.status_code == 504
    assert answer.json()["error"]["kind"] == "TimeoutExpiredError"
    bad = await http.get(f"/v1/cluster/instances/{INSTANCE}/wait?timeout=nan")
    assert bad.status_code == 400


async def test_plans_invitations_and_joins(handle: FakeHandle, http: httpx2.AsyncClient) -> None:
    handle.plans[MODEL] = Plan(model=MODEL, candidates=())
    plan = await http.post("/v1/cluster/plan", json={"model": MODEL})
    assert plan.json()["items"][0]["candidates"] == []
    assert (await http.post("/v1/cluster/plan", json={"model": "other"})).status_code == 404
    invite = await http.post("/v1/cluster/invite")
    assert invite.status_code == 201
    assert invite.json()["items"][0]["expires_at"] == "2023-11-14T22:23:20.000Z"
    long = await http.post("/v1/cluster/invite", json={"lifetime_seconds": 1e9})
    assert long.status_code == 400
    joined = await http.post("/v1/cluster/join", json={"code": "AAA", "peer": "10.0.0.1:52416"})
    assert joined.status_code == 200
    assert handle.joined == [("AAA", Address("10.0.0.1", 52416))]
    for body in ({"code": ""}, {"code": "A", "peer": "10.0.0.1:x"}, {"code": 5}):
        assert (await http.post("/v1/cluster/join", json=body)).status_code == 400
    assert (await http.post("/v1/cluster/leave")).status_code == 200
    assert handle.left == 1


async def test_a_shutdown_answers_first(handle: FakeHandle, http: httpx2.AsyncClient) -> None:
    answer = await http.post("/v1/cluster/shutdown")
    assert answer.status_code == 202
    await eventually(lambda: handle.shut_down == 1)


async def test_a_cancel_of_what_does_not_run_says_so(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    answer = await http.post("/v1/cancel/q-1")
    assert answer.json()["items"] == [{"request": "q-1", "cancelled": False}]
    assert handle.cancelled == ["q-1"]


async def test_an_asker_may_choose_its_command_s_id(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    command = {"type": "StopInstance", "instance": INSTANCE}
    answer = await http.post("/v1/cluster/commands?id=c-00ff", json=command)
    assert answer.json()["items"][0]["id"] == "c-00ff"
    refused = await http.post("/v1/cluster/commands?id=../x", json=command)
    assert refused.status_code == 400
    assert "command" in refused.json()["error"]["message"]


async def test_an_error_of_the_node_comes_through(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.failing["submit"] = TimeoutExpiredError.because("no_answer", "none within 30 s")
    answer = await http.post("/v1/cluster/instances", json={"model": MODEL})
    assert answer.status_code == 504


BODIES = [
    (b"", "$"),
    (b"{", "$"),
    (b"[]", "$"),
    (b"\xff", "$"),
    (b"[" * 100_000, "$"),
    (b'{"model":' * 100_000, "model"),
    (b'{"model": 5}', "model"),
    (b'{"wish": {}}', "model"),
    (b'{"model": "a", "wish": {"nodes": "b"}}', "wish.nodes"),
    (b'{"model": "a/../b"}', "model"),
    (b'{"model": "a\\u0000"}', "model"),
    (b'{"model": "' + b"a" * 300 + b'"}', "model"),
]


@pytest.mark.parametrize(("body", "param"), BODIES)
async def test_a_bad_body_is_400_with_its_place(
    http: httpx2.AsyncClient, body: bytes, param: str
) -> None:
    answer = await http.post(
        "/v1/cluster/plan", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["kind"] == "UsageError"


@pytest.mark.parametrize("name", ["..", "a%00b", "%2e%2e", "x" * 65, "a%20b", "a_b"])
async def test_ids_are_checked(server: ApiServer, name: str) -> None:
    assert await raw_status(server, f"/v1/cluster/requests/{name}") == 400


@pytest.mark.parametrize(("name", "status"), [("a%00b", 400), ("x" * 201, 400), ("a%20_b", 404)])
@pytest.mark.parametrize("kind", ["instances", "nodes"])
async def test_names_are_checked(server: ApiServer, kind: str, name: str, status: int) -> None:
    assert await raw_status(server, f"/v1/cluster/{kind}/{name}") == status


async def test_nodes_and_instances_are_found_by_the_rules_of_commands(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    named = replace(handle.state.nodes[BETA], name="aaa")  # also the start of alpha's id
    handle.state = replace(handle.state, nodes={**handle.state.nodes, BETA: named})
    for name, node in (("aaa", BETA), ("aaaa", ALPHA), ("alpha", ALPHA), (BETA, BETA)):
        [found] = await items(http, f"/v1/cluster/nodes/{name}", "Node")
        assert found["record"]["node"] == node
    for name in (INSTANCE, INSTANCE[:5], INSTANCE.removeprefix("i-"), MODEL):
        [found] = await items(http, f"/v1/cluster/instances/{name}", "Instance")
        assert found["instance"]["instance"] == INSTANCE
        assert (await http.delete(f"/v1/cluster/instances/{name}")).status_code == 200
    assert handle.commands == [StopInstance(instance=INSTANCE)] * 4


def lost(state: State) -> State:
    return replace(state, nodes={**state.nodes, ALPHA: replace(state.nodes[ALPHA], lost=True)})


def restarted(state: State) -> State:
    return replace(state, attempts={INSTANCE: 2})


def stopped(state: State) -> State:
    runners = {
        key: replace(record, phase=RunnerPhase.STOPPED) for key, record in state.runners.items()
    }
    return replace(state, runners=runners)


@pytest.mark.parametrize(
    ("change", "status"), [(lost, "degraded"), (restarted, "loading"), (stopped, "degraded")]
)
async def test_every_view_calls_ready_only_what_takes_requests(
    change: Callable[[State], State], status: str, handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.state = change(handle.state)
    assert not instance_status.status(handle.state, INSTANCE, handle.registers).ready
    [view] = await items(http, f"/v1/cluster/instances/{INSTANCE}", "Instance")
    [model] = (await http.get("/v1/models")).json()["data"]
    assert (view["status"], model["status"]) == (status, status)
    [summary] = await items(http, "/v1/cluster", "Cluster")
    assert summary["instances_ready"] == 0
    metrics = (await http.get("/metrics")).text
    assert 'exoctl_instances{status="ready"} 0.0' in metrics
    assert f'exoctl_instances{{status="{status}"}} 1.0' in metrics


async def test_the_root_says_what_listens_here_and_where_each_path_leads(
    http: httpx2.AsyncClient,
) -> None:
    answer = await http.get("/")
    assert answer.status_code == 200
    welcome = answer.json()
    assert (welcome["name"], welcome["version"]) == ("alpha", "0.1.0")
    for name in ("cluster", "health", "metrics", "documentation"):
        assert (await http.get(welcome[name])).status_code == 200, name
    assert (await http.get(f"{welcome['openai']}/models")).status_code == 200
    assert (await http.get(f"{welcome['ollama']}/tags")).status_code == 200
    assert (await http.head("/")).status_code == 200


async def test_health_and_readiness(handle: FakeHandle, http: httpx2.AsyncClient) -> None:
    assert (await http.get("/health")).json()["name"] == "alpha"
    ready = await http.get("/ready")
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    assert (await http.get("/health")).json()["disk"] == ""
    handle.set_register(ALPHA, RouterFigures(role="following", disk_trouble="no answer for 2 s"))
    stuck = await http.get("/health")
    assert (stuck.status_code, stuck.json()["disk"]) == (200, "no answer for 2 s")
    handle.set_register(ALPHA, RouterFigures(role="looking"))
    handle.local_view = replace(handle.local_view, waiting=("no master: electing for 0.3 s",))
    waiting = await http.get("/ready")
    assert waiting.status_code == 503
    assert waiting.json() == {
        "ready": False,
        "master": "",
        "waiting": ["no master: electing for 0.3 s"],
    }
    assert (await http.get("/health")).status_code == 200


async def test_metrics_tell_of_nodes_log_runners_and_requests(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.set_register(ALPHA, make_machine_figures())
    handle.set_register(
        ALPHA, RouterFigures(role="mastering", index_committed=20, index_applied=20)
    )
    handle.set_register(BETA, RouterFigures(role="following", index_committed=17, index_applied=17))
    handle.set_register(ALPHA, RequestFigures(requests=(REQUEST,), ended_total=7, failed_total=2))
    runner = RunnerProgress(runner=make_runner_id(handle), tokens_per_second=42.5)
    handle.set_register(ALPHA, RunnerFigures(runners=(runner,)))
    body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}]}
    await http.post("/v1/chat/completions", json=body)
    answer = await http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    for line in (
        "exoctl_log_entries 21.0",
        "exoctl_session_term 3.0",
        'exoctl_node_lag_entries{node="beta"} 3.0',
        'exoctl_node_lag_entries{node="alpha"} 0.0',
        'exoctl_runners{phase="ready"} 1.0',
        'exoctl_instances{status="ready"} 1.0',
        'exoctl_requests{phase="decode"} 1.0',
        'exoctl_node_requests_failed_total{node="alpha"} 2.0',
        'exoctl_api_tokens_total{kind="output"} 2.0',
        'exoctl_api_responses_total{status="200"} 1.0',
        "42.5",
    ):
        assert line in answer.text, line
    assert 'exoctl_node_memory_bytes{node="alpha"}' in answer.text


def make_runner_id(handle: FakeHandle) -> Any:
    return next(iter(handle.state.runners))


async def test_the_openapi_document_has_every_path_and_no_loose_end(
    http: httpx2.AsyncClient,
) -> None:
    document = (await http.get("/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    assert "/v1/models/{model}" in document["paths"]
    assert set(document["paths"]["/v1/cluster/instances"]) == {"get", "post"}
    schemas = document["components"]["schemas"]
    references = set(find_references(document))
    assert references
    assert references <= {f"#/components/schemas/{name}" for name in schemas}
    placed_at = schemas["InstanceForPeople"]["properties"]["placed_at"]
    assert placed_at["format"] == "date-time"
    assert schemas["SessionForPeople"]["type"] == "object"


def find_references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []  # type: ignore[reportUnknown]
        return own + [each for item in value.values() for each in find_references(item)]  # type: ignore[reportUnknown]
    if isinstance(value, list):
        return [each for item in value for each in find_references(item)]  # type: ignore[reportUnknown]
    return []


async def test_a_head_request_has_no_body(http: httpx2.AsyncClient) -> None:
    answer = await http.head("/health")
    assert (answer.status_code, answer.content) == (200, b"")
