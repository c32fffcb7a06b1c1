"""Every method of the handle, over HTTP and back."""

import socket
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from node.api.server import ApiServer
from node.client import RemoteHandle, connect
from node.handle import Lagged, LogLine, NodeHandle
from node.model.command import Accepted, PlaceInstance, Refused, StopInstance, Wish
from node.model.errors import (
    BusyError,
    Failure,
    NoFitError,
    NotFoundError,
    RefusedError,
    TimeoutExpiredError,
    UnreachableError,
)
from node.model.event import NodeCordoned, NodeLost
from node.model.ids import CommandId, InstanceId, ModelId, RequestId
from node.model.instance import RunnerPhase
from node.model.machine import Address
from node.model.request import Delta, Failed, Finished, GenerationRequest, Message, Prefilled
from node.model.session import Entry, EventId, Rewind, Session, SessionStarted
from node.model.state import Snapshot
from node.model.topology import Plan
from tests.api.conftest import RunningServer, make_config
from tests.fakes.eventually import eventually
from tests.fakes.fake_handle import (
    ALPHA,
    BETA,
    INSTANCE,
    MODEL,
    FakeHandle,
    make_machine_figures,
    make_script,
    make_state,
)

SESSION = Session(term=3, master=ALPHA, incarnation=1)


def entry(index: int, event: object, session: Session = SESSION) -> Entry:
    return Entry(session, index, EventId(ALPHA, 1, index), msgspec.msgpack.encode(event))


def cordon(index: int, *, cordoned: bool = True) -> Entry:
    return entry(index, NodeCordoned(node=BETA, cordoned=cordoned))


def ask(**changes: object) -> GenerationRequest:
    request = GenerationRequest(
        id=RequestId("q-0123456789abcdef"),
        model=MODEL,
        messages=(Message(role="user", content="Hi"),),
    )
    return msgspec.structs.replace(request, **changes)


async def until_index(remote: RemoteHandle, index: int) -> None:
    await eventually(lambda: remote.state.index == index, 5)


async def test_state_and_registers_are_loaded_once_without_following(
    handle: FakeHandle, server: ApiServer
) -> None:
    handle.set_register(ALPHA, make_machine_figures())
    async with connect(server.address, follow=False) as remote:
        surface: NodeHandle = remote
        assert surface.state == handle.state
        assert surface.registers == handle.registers
        assert handle.subscriber_count == 0
        handle.state = make_state(index=30)
        await remote.reload()
        assert remote.state.index == 30


async def test_entries_and_registers_are_followed(handle: FakeHandle, server: ApiServer) -> None:
    async with connect(server.address) as remote, remote.subscribe() as items:
        assert await items.receive() == Snapshot(state=handle.state)
        handle.push(cordon(21))
        assert await items.receive() == cordon(21)
        assert remote.state.nodes[BETA].cordoned
        assert remote.state.index == 21
        register = handle.set_register(BETA, make_machine_figures())
        assert await items.receive() == register
        assert remote.registers == handle.registers
        handle.push(SessionStarted(Session(term=4, master=BETA, incarnation=1)))
        assert isinstance(await items.receive(), SessionStarted)


async def test_registers_of_a_lost_node_are_forgotten(
    handle: FakeHandle, server: ApiServer
) -> None:
    handle.set_register(BETA, make_machine_figures())
    async with connect(server.address) as remote:
        assert remote.registers
        handle.push(entry(21, NodeLost(node=BETA, reason="silent for 3 s")))
        await until_index(remote, 21)
        assert not remote.registers


async def test_a_rewind_and_a_lag_start_from_the_snapshot_that_follows(
    handle: FakeHandle, server: ApiServer
) -> None:
    async with connect(server.address) as remote, remote.subscribe() as items:
        await items.receive()
        handle.state = make_state(index=15)
        handle.push(Rewind(16))
        handle.push(Snapshot(state=handle.state))
        assert await items.receive() == Rewind(16)
        assert await items.receive() == Snapshot(state=handle.state)
        assert remote.state.index == 15
        handle.state = make_state(index=40)
        handle.push_lagged(24)
        assert await items.receive() == Lagged(24)
        assert await items.receive() == Snapshot(state=handle.state)
        assert remote.state == handle.state


async def test_a_gap_in_the_stream_is_healed_by_a_snapshot(
    handle: FakeHandle, server: ApiServer
) -> None:
    async with connect(server.address) as remote:
        handle.state = make_state(index=50)
        handle.push(cordon(30))
        await until_index(remote, 50)
        assert not remote.state.nodes[BETA].cordoned


async def test_a_stream_of_its_own_begins_where_it_is_asked(
    handle: FakeHandle, server: ApiServer
) -> None:
    handle.entries = [cordon(18), cordon(19), cordon(20)]
    async with connect(server.address, follow=False) as remote:
        async with remote.subscribe(19) as items:
            assert [await items.receive() for _ in range(2)] == handle.entries[1:]
        async with remote.subscribe() as items:
            assert await items.receive() == Snapshot(state=handle.state)
    await eventually(lambda: not handle.subscriber_count)


async def test_an_accepted_command_shows_in_the_state(
    handle: FakeHandle, server: ApiServer
) -> None:
    command = PlaceInstance(model=ModelId("owner/name"), wish=Wish(nodes_min=2, force=True))
    async with connect(server.address) as remote, anyio.create_task_group() as tasks:

        async def bring_about() -> None:
            await eventually(lambda: handle.commands)
            handle.push(cordon(21))

        tasks.start_soon(bring_about)
        answer = await remote.submit(command)
        assert answer == Accepted(
            id=CommandId("c-0000000000000001"), index=21, subject="i-00000001"
        )
        assert handle.commands == [command]
        assert remote.state.index == 21


async def test_a_refusal_comes_back_with_its_numbers(handle: FakeHandle, server: ApiServer) -> None:
    failure = Failure(code="no_fit", message="needs 9 GiB, 4 GiB free", remedy="free 5 GiB")
    refused = Refused(id=CommandId("c-1"), kind="NoFitError", failure=failure)
    handle.answers.append(refused)
    async with connect(server.address, follow=False) as remote:
        assert await remote.submit(StopInstance(instance=INSTANCE)) == refused


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError.because("a", "b", "c", "alpha"),
        BusyError(Failure(code="queue_full", message="8 wait", retry_seconds=7.5)),
        TimeoutExpiredError.because("late", "no answer"),
        NoFitError.because("no_fit", "9 > 4"),
        RefusedError.because("no", "never"),
    ],
)
async def test_errors_keep_class_and_words(
    handle: FakeHandle, server: ApiServer, error: Exception
) -> None:
    handle.answers.append(error)  # type: ignore[arg-type]
    async with connect(server.address, follow=False) as remote:
        with pytest.raises(type(error)) as caught:
            await remote.submit(StopInstance(instance=INSTANCE))
    assert caught.type is type(error)
    assert caught.value.failure == error.failure  # type: ignore[attr-defined]


async def test_plans_round_trip(handle: FakeHandle, server: ApiServer) -> None:
    handle.plans[MODEL] = Plan(model=MODEL, candidates=())
    wish = Wish(nodes=(ALPHA,), context_tokens=100)
    async with connect(server.address, follow=False) as remote:
        assert await remote.plan(MODEL, wish) == handle.plans[MODEL]
        assert handle.planned == [(MODEL, wish)]
        with pytest.raises(NotFoundError):
            await remote.plan(ModelId("other"), Wish())


async def test_generations_round_trip(handle: FakeHandle, server: ApiServer) -> None:
    handle.script = [Prefilled(done=1, total=5), *make_script()]
    request = ask()
    async with connect(server.address, follow=False) as remote:
        items = [item async for item in remote.generate(request)]
    assert items == handle.script
    assert handle.generations == [request]


async def test_a_generation_that_can_not_begin_raises(
    handle: FakeHandle, server: ApiServer
) -> None:
    async with connect(server.address, follow=False) as remote:
        with pytest.raises(NotFoundError):
            await anext(remote.generate(ask(model=ModelId("nothing"))))
        handle.script = [Delta(index=0, text="a"), BusyError.because("gone", "runner died")]
        last = [item async for item in remote.generate(ask())][-1]
        assert last == Failed(kind="BusyError", failure=Failure(code="gone", message="runner died"))


async def test_closing_a_generation_cancels_it(handle: FakeHandle, server: ApiServer) -> None:
    handle.script = [Delta(index=0, text="a"), 60.0, *make_script()]
    async with connect(server.address, follow=False) as remote:
        items = remote.generate(ask())
        assert await anext(items) == Delta(index=0, text="a")
        assert handle.running
        await items.aclose()
        await eventually(lambda: not handle.running, 1)


async def test_a_generation_can_be_cancelled_by_its_id(
    handle: FakeHandle, server: ApiServer
) -> None:
    handle.script = [Delta(index=0, text="a"), 0.2, Delta(index=1, text="b")]
    async with connect(server.address, follow=False) as remote:
        items = remote.generate(ask())
        await anext(items)
        assert await remote.cancel(ask().id)
        rest = [item async for item in items]
        assert isinstance(rest[-1], Finished)
        assert rest[-1].reason.value == "cancelled"
        assert not await remote.cancel(ask().id)


async def test_the_small_methods_round_trip(handle: FakeHandle, server: ApiServer) -> None:
    handle.log_lines = [
        LogLine(at=1_700_000_000.25, level="info", source="election", text="won"),
        LogLine(at=0.0, level="output", source="runner r-1", text="loading"),
    ]
    async with connect(server.address, follow=False) as remote:
        assert await remote.local() == handle.local_view
        assert await remote.logs() == handle.log_lines
        assert await remote.logs("election") == handle.log_lines[:1]
        assert await remote.logs(lines_max=1) == handle.log_lines[1:]
        assert await remote.log_sources() == ["election", "runner r-1"]
        assert await remote.invite(60.5) == await handle.invite(60.5)
        await remote.join("AAAAA", Address("fe80::1", 52416))
        await remote.join("BBBBB")
        assert handle.joined == [("AAAAA", Address("fe80::1", 52416)), ("BBBBB", None)]
        await remote.leave()
        assert handle.left == 1
        await remote.shutdown()
        await eventually(lambda: handle.shut_down, 1)


async def test_waiting_for_an_instance(handle: FakeHandle, server: ApiServer) -> None:
    async with connect(server.address, follow=False) as remote:
        await remote.wait_instance(INSTANCE, 1)
        with pytest.raises(NotFoundError):
            await remote.wait_instance(InstanceId("i-ffffffff"), 1)
        handle.state = make_state(RunnerPhase.LOADING)
        with pytest.raises(TimeoutExpiredError):
            await remote.wait_instance(INSTANCE, 0.05)


async def test_nobody_there_says_where_and_what_to_do() -> None:
    with pytest.raises(UnreachableError) as caught:
        async with connect(Address("127.0.0.1", 9)):
            pass
    assert "127.0.0.1:9" in caught.value.failure.message
    assert "exoctl up" in caught.value.failure.remedy


@pytest.mark.parametrize("follow", [False, True])
async def test_a_node_that_says_nothing_is_given_the_time_that_was_named(*, follow: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system accepts for it
        address = Address(*silent.getsockname())
        with anyio.fail_after(5), pytest.raises(UnreachableError) as caught:
            async with connect(address, "", follow, 0.2):
                pass
    assert "within 0.2 s" in caught.value.failure.message
    assert "suspended" in caught.value.failure.message
    assert "kill -CONT" in caught.value.failure.remedy


async def test_a_call_on_its_way_is_given_up_at_the_time_that_was_named(
    handle: FakeHandle, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        await anyio.sleep_forever()

    async with connect(server.address, "", False, 0.3) as remote:
        monkeypatch.setattr(handle, "local", never)
        monkeypatch.setattr(handle, "submit", never)
        with anyio.fail_after(5):
            with pytest.raises(TimeoutExpiredError):
                await remote.local()
            with pytest.raises(TimeoutExpiredError):
                await remote.submit(StopInstance(instance=INSTANCE), 0.3)


async def test_what_the_block_raises_comes_out_as_it_is(server: ApiServer) -> None:
    with pytest.raises(NotFoundError):
        async with connect(server.address):
            raise NotFoundError.because("a", "b")


async def test_a_restarted_node_is_followed_again(handle: FakeHandle, tmp_path: Path) -> None:
    config = make_config(tmp_path)
    async with anyio.create_task_group() as tasks:
        first, second = RunningServer(), RunningServer()
        address = (await first.start(tasks, handle, config)).address
        async with connect(address) as remote, remote.subscribe() as items:
            await items.receive()
            handle.push(cordon(21))
            assert await items.receive() == cordon(21)
            await first.stop()
            await eventually(lambda: remote.fault)
            assert remote.fault is not None
            assert remote.fault.failure.code in ("node_stopping", "node_unreachable")
            handle.entries.append(cordon(22, cordoned=False))
            await second.start(tasks, handle, replace(config, api_port=address.port))
            with anyio.fail_after(5):
                assert await items.receive() == cordon(22, cordoned=False)
            assert not remote.state.nodes[BETA].cordoned
            await eventually(lambda: remote.fault is None)
        await second.stop()


async def test_a_node_whose_log_went_another_way_meanwhile_is_taken_anew(
    handle: FakeHandle, tmp_path: Path
) -> None:
    config = make_config(tmp_path)
    async with anyio.create_task_group() as tasks:
        first, second = RunningServer(), RunningServer()
        address = (await first.start(tasks, handle, config)).address
        async with connect(address) as remote:
            handle.push(cordon(21))
            await until_index(remote, 21)
            await first.stop()
            other = Session(term=4, master=BETA, incarnation=1)
            event = NodeCordoned(node=ALPHA, cordoned=True)
            handle.entries = [entry(index, event, other) for index in (21, 22)]
            handle.state = make_state(index=22)
            await second.start(tasks, handle, replace(config, api_port=address.port))
            await until_index(remote, 22)
            assert remote.state == handle.state
        await second.stop()
