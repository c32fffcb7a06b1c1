"""Whatever a body holds, the answer is an error that its client can read, never a 500."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import anyio
import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.api.context import ApiContext, Timing
from node.api.exchange import Exchange
from node.api.faults import ParameterError, dialect_of
from node.api.names import instance_id, model_name, request_id
from node.api.operation import Operation
from node.api.operations import OPERATIONS
from node.model.download import ModelOrder, OrderDone, PullModel
from node.model.errors import Failure
from node.model.ids import NodeId
from node.model.register import DownloadFigures, DownloadRecord
from tests.fakes.fake_handle import MODEL, FakeHandle

POSTS = [operation for operation in OPERATIONS if operation.method == "POST"]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=12,
)
PLAUSIBLE: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "a"}],
    "prompt": "a",
    "id": "q-1",
    "type": "StopInstance",
    "instance": "i-1",
    "code": "x",
    "stream": True,
    "n": 2,
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "logit_bias": {"1": 1},
    "wish": {"nodes": []},
}


class EmptyHub(FakeHandle):
    """A node whose hub has nothing, which it tells at once."""

    async def order(
        self, node: NodeId, order: ModelOrder, timeout_seconds: float = 30.0
    ) -> OrderDone:
        if isinstance(order, PullModel):
            failure = Failure(code="hub_not_found", message=f"{order.model} is not on the hub")
            record = DownloadRecord(
                model=order.model, phase="failed", bytes_done=0, bytes_total=0, failure=failure
            )
            self.set_register(node, DownloadFigures(downloads=(record,)))
        return await super().order(node, order, timeout_seconds)


async def answer_of(operation: Operation, body: bytes) -> tuple[int, bytes]:
    """Run an operation's handler on a body, without a socket between."""
    statuses: list[int] = []
    parts: list[bytes] = []
    incoming = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if incoming:
            return incoming.pop()
        return await never()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
        else:
            parts.append(message["body"])

    scope: dict[str, Any] = {
        "path": operation.path,
        "query_string": b"exact=1",
        "headers": [],
        "path_params": dict.fromkeys(re.findall(r"\{(\w+)\}", operation.path), "q-1"),
        "state": {"request_id": "q-1"},
    }
    context = ApiContext(EmptyHub(), Timing())
    exchange = Exchange(context, scope, receive, send, dialect_of(operation.path))

    async def handle(exchange: Exchange) -> None:
        await operation.handler(context, exchange)

    await exchange.run(handle, body=True)
    return statuses[0], b"".join(parts)


async def never() -> Any:
    await anyio.sleep_forever()


@pytest.mark.parametrize("operation", POSTS, ids=lambda operation: operation.path)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(body=st.dictionaries(st.sampled_from(sorted(PLAUSIBLE)), VALUES) | VALUES)
async def test_bodies_of_any_shape(operation: Operation, body: Any) -> None:
    mixed = {**PLAUSIBLE, **cast("dict[str, Any]", body)} if isinstance(body, dict) else body
    status, answer = await answer_of(operation, json.dumps(mixed).encode())
    assert status < 500, answer
    assert answer


@pytest.mark.parametrize("operation", POSTS[:1] + POSTS[-1:], ids=lambda operation: operation.path)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(body=st.binary(max_size=60))
async def test_bodies_of_any_bytes(operation: Operation, body: bytes) -> None:
    status, _ = await answer_of(operation, body)
    assert status == 400


@given(text=st.text(max_size=80))
def test_names_are_taken_or_refused(text: str) -> None:
    checks: list[Callable[[str], str]] = [
        lambda name: model_name("model", name),
        instance_id,
        request_id,
    ]
    for check in checks:
        with suppress(ParameterError):
            taken = check(text)
            assert ".." not in taken
            assert "\0" not in taken
            assert taken in text


async def test_the_server_answers_all_the_same_after_nonsense(http: httpx2.AsyncClient) -> None:
    headers = {"content-type": "application/json"}
    for content in (b"\0" * 100, b'"\\ud800"', b"1e999", b'{"a":' * 5000):
        answer = await http.post("/v1/chat/completions", content=content, headers=headers)
        assert answer.status_code == 400
    assert (await http.get("/health")).status_code == 200
