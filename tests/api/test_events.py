"""The event stream for people."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import msgspec

from node.model.event import NodeCordoned, NodeLost
from node.model.session import Entry, EventId, Rewind, Session, SessionStarted
from node.model.state import Snapshot
from tests.fakes.eventually import eventually
from tests.fakes.fake_handle import ALPHA, BETA, FakeHandle, make_machine_figures

SESSION = Session(term=3, master=ALPHA, incarnation=1)
PATH = "/v1/cluster/events"


def entry(index: int, event: object) -> Entry:
    payload = event if isinstance(event, bytes) else msgspec.msgpack.encode(event)
    return Entry(SESSION, index, EventId(ALPHA, 1, index), payload, written_at=1_700_000_000.0)


@asynccontextmanager
async def records(
    http: httpx2.AsyncClient, query: str = ""
) -> AsyncGenerator[AsyncGenerator[Any, None]]:
    async with http.stream("GET", PATH + query) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"

        async def read() -> AsyncGenerator[Any, None]:
            async for line in answer.aiter_lines():
                yield json.loads(line)

        yield read()


async def next_of(stream: AsyncGenerator[Any, None], *kinds: str) -> Any:
    with anyio.fail_after(3):
        async for record in stream:
            if record["type"] in kinds:
                return record
    raise AssertionError("the stream ended")


async def test_a_snapshot_comes_first_then_registers_then_what_happens(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.set_register(BETA, make_machine_figures())
    async with records(http) as stream:
        snapshot = await anext(stream)
        assert (snapshot["type"], snapshot["index"]) == ("snapshot", 20)
        assert snapshot["apiVersion"] == "exoctl/v1"
        assert snapshot["state"]["nodes"][ALPHA]["name"] == "alpha"
        register = await anext(stream)
        assert (register["type"], register["kind"]) == ("register", "MachineFigures")
        handle.push(entry(21, NodeLost(node=BETA, reason="silent", at=1_700_000_000.0)))
        event = await next_of(stream, "event")
        assert event["index"] == 21
        assert event["time"] == "2023-11-14T22:13:20.000Z"
        assert event["origin"]["origin"] == ALPHA
        assert event["event"] == {
            "type": "NodeLost",
            "node": BETA,
            "reason": "silent",
            "at": "2023-11-14T22:13:20.000Z",
            "stopped": False,
        }
        handle.push(SessionStarted(Session(term=4, master=BETA, incarnation=2)))
        session = await next_of(stream, "session")
        assert (session["index"], session["session"]["term"]) == (21, 4)
        handle.push(Rewind(19))
        assert (await next_of(stream, "rewind"))["index"] == 19
        handle.push_lagged(5)
        assert (await next_of(stream, "lagged"))["skipped"] == 5
        assert (await next_of(stream, "snapshot"))["index"] == 20
    await eventually(lambda: not handle.subscriber_count, 1)


async def test_an_event_of_a_later_version_is_shown_as_unknown(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    async with records(http) as stream:
        await anext(stream)
        handle.push(entry(21, msgspec.msgpack.encode({"type": "FromTheFuture"})))
        assert (await next_of(stream, "event"))["event"] is None


async def test_heartbeats_come_where_nothing_happens(http: httpx2.AsyncClient) -> None:
    async with records(http) as stream:
        first = await next_of(stream, "heartbeat")
        assert first["index"] == 20
        assert first["at"].endswith("Z")
        await next_of(stream, "heartbeat")


async def test_since_resumes_and_without_following_it_ends(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.entries = [entry(n, NodeCordoned(node=BETA, cordoned=True)) for n in (18, 19, 20)]
    lines = (await http.get(f"{PATH}?since=19&follow=0")).text.splitlines()
    assert [json.loads(line)["index"] for line in lines] == [19, 20]
    old = (await http.get(f"{PATH}?since=3&follow=0")).text.splitlines()
    assert [json.loads(line)["type"] for line in old] == ["snapshot"]
    for query in ("since=-1", "since=x", "follow=2", "since=" + "9" * 30):
        assert (await http.get(f"{PATH}?{query}")).status_code == 400


async def test_events_are_chosen_by_type_and_node(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    handle.set_register(ALPHA, make_machine_figures())
    handle.entries = [
        entry(19, NodeCordoned(node=BETA, cordoned=True)),
        entry(20, NodeLost(node=BETA, reason="silent")),
    ]

    async def chosen(query: str) -> list[Any]:
        text = (await http.get(f"{PATH}?since=19&follow=0&{query}")).text
        return [json.loads(line) for line in text.splitlines()]

    (only,) = await chosen("type=NodeLost")
    assert only["event"]["type"] == "NodeLost"
    assert [each["type"] for each in await chosen("type=register")] == ["register"]
    assert [each["type"] for each in await chosen(f"node={BETA[:8]}")] == ["event", "event"]


async def test_browsers_and_curl_may_have_server_sent_events(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    headers = {"accept": "text/event-stream"}
    async with http.stream("GET", f"{PATH}?follow=0", headers=headers) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        text = "".join([part async for part in answer.aiter_text()])
    assert text.startswith("event: snapshot\nid: 20\ndata: {")
    assert text.endswith("\n\n")


async def test_a_flood_of_events_arrives_whole_and_in_order(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    async with records(http) as stream:
        await anext(stream)
        for index in range(21, 821):
            handle.push(entry(index, NodeCordoned(node=BETA, cordoned=bool(index % 2))))
        got = [(await next_of(stream, "event"))["index"] for _ in range(800)]
    assert got == list(range(21, 821))


async def test_the_end_of_the_node_s_stream_is_the_end(
    handle: FakeHandle, http: httpx2.AsyncClient
) -> None:
    async with records(http) as stream:
        await anext(stream)
        handle.push(Snapshot(state=handle.state))
        await next_of(stream, "snapshot")
        handle.end_streams()
        with anyio.fail_after(2):
            assert [each async for each in stream if each["type"] != "heartbeat"] == []
