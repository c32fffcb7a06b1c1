"""A node in this process: what it does with what lies on its disk."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import anyio
import msgspec
import pytest

from node.config import Config
from node.core.replica.durable import ClusterJoined, SessionKept
from node.handle import NodeHandle
from node.io import clock
from node.io.log_file import open_log
from node.log import logger
from node.model.command import (
    Accepted,
    AdmitNode,
    CommandRequest,
    CordonNode,
    NameNode,
    RemoveNode,
    Wish,
)
from node.model.errors import UsageError
from node.model.event import NodeLost
from node.model.ids import ClusterId, CommandId, ModelId, NodeId
from node.model.session import Session
from node.runtime import open_node
from node.services.event_router import EventRouter
from node.wire.message import CommandSent


def config(directory: Path) -> Config:
    return Config(
        state_directory=directory, model_directories=(directory / "models",), name="one",
        bind="127.0.0.1", cluster_port=0, api_port=-1, discovery=False,
    )  # fmt: skip


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not holds():  # noqa: ASYNC110 - many conditions, one deadline
            await anyio.sleep(0.01)


async def decide(handle: NodeHandle) -> None:
    node = (await handle.local()).node
    assert isinstance(await handle.submit(CordonNode(node=node), 10), Accepted)


async def test_a_first_write_that_was_cut_off_leaves_no_node_without_a_cluster(
    tmp_path: Path,
) -> None:
    log, _ = open_log(tmp_path / "log")
    done: list[int] = []
    log.start(lambda synced: done.append(synced.token))
    session = Session(1, NodeId("n"), 1)
    records = (ClusterJoined(ClusterId("c" * 32)), SessionKept(session, 1))
    assert log.submit(1, records, full_sync=True)
    await until(lambda: bool(done))
    log.close()
    async with open_node(config(tmp_path)) as handle:
        await until(lambda: bool(handle.state.cluster))
        await decide(handle)


async def test_machines_that_slept_elect_anew_and_decide_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_node(config(tmp_path / "one")) as one,
        open_node(config(tmp_path / "two")) as two,
    ):
        invite = await one.invite()
        await two.join(invite.code, invite.addresses[0])
        await until(lambda: two.state.session == one.state.session)
        term = one.state.session.term
        wall = clock.wall
        monkeypatch.setattr(clock, "wall", lambda: wall() + 3600)
        await until(lambda: one.state.session.term > term)
        await decide(one)
        await until(lambda: two.state.answers == one.state.answers)


async def test_everything_that_was_decided_is_there_after_a_restart(tmp_path: Path) -> None:
    async with open_node(config(tmp_path)) as handle:
        await until(lambda: bool(handle.state.cluster))
        await decide(handle)
        before = handle.state
    async with open_node(config(tmp_path)) as handle:
        await until(lambda: handle.state.index > before.index)
        assert handle.state.cluster == before.cluster
        assert handle.state.answers == before.answers


async def test_a_node_that_was_given_a_name_is_called_so_by_itself_and_in_the_logs(
    tmp_path: Path,
) -> None:
    first, second = config(tmp_path / "one"), config(tmp_path / "two")
    async with open_node(first) as one:
        async with open_node(second) as two:
            invite = await one.invite()
            await two.join(invite.code, invite.addresses[0])
            node = (await two.local()).node
            await until(lambda: node in one.state.nodes)
            assert isinstance(await one.submit(NameNode(node=node, name="cellar"), 10), Accepted)
            await until(lambda: two.state.nodes[node].name == "cellar")
            assert (await two.local()).name == "cellar"
        await until(lambda: one.state.nodes[node].lost)
        async with open_node(second) as two:
            await until(lambda: not one.state.nodes[node].lost)
            lines = [line.text for line in await one.logs("", 1000)]
        assert "link with cellar is up" in lines


async def test_a_restarted_follower_finds_its_master_and_changes_nothing(tmp_path: Path) -> None:
    async with open_node(config(tmp_path / "one")) as one:
        second = config(tmp_path / "two")
        async with open_node(second) as two:
            invite = await one.invite()
            await two.join(invite.code, invite.addresses[0])
            address = (await two.local()).cluster_address
            assert address is not None
        session = one.state.session
        assert session.master == (await one.local()).node
        same_port = msgspec.structs.replace(second, cluster_port=address.port)
        async with open_node(same_port) as two:
            await until(lambda: two.state.session == session and two.state.nodes == one.state.nodes)
            await decide(two)
            assert one.state.session == two.state.session == session


async def test_a_command_that_no_master_can_take_is_refused_and_ends_nobody(
    tmp_path: Path,
) -> None:
    async with (
        open_node(config(tmp_path / "one")) as one,
        open_node(config(tmp_path / "two")) as two,
    ):
        invite = await one.invite()
        await two.join(invite.code, invite.addresses[0])
        node = (await one.local()).node
        for reason in ("x" * 300_000, "x" * 70_000, "\ud800"):
            for handle in (one, two):
                with pytest.raises(UsageError):
                    await handle.submit(RemoveNode(node=node, reason=reason), 10)
        with pytest.raises(UsageError):
            await two.plan(ModelId("m"), Wish(context_tokens=10**30))
        await decide(one)
        await decide(two)


async def test_a_command_of_the_cluster_that_was_left_is_not_carried_out_in_the_next(
    tmp_path: Path,
) -> None:
    async with (
        open_node(config(tmp_path / "one")) as one,
        open_node(config(tmp_path / "two")) as two,
    ):
        invite = await one.invite()
        await until(lambda: bool(two.state.cluster))
        asked = CommandSent(
            request=CommandRequest(
                id=CommandId("c-1"), asked_by=(await two.local()).node,
                command=CordonNode(node=(await one.local()).node),
            ),
            cluster=two.state.cluster,
        )  # fmt: skip
        await two.join(invite.code, invite.addresses[0])
        master = one._commands._decide_here  # type: ignore[attr-defined]
        master(asked)
        await decide(one)
        assert CommandId("c-1") not in one.state.answers


async def test_nobody_is_admitted_whose_id_is_none(tmp_path: Path) -> None:
    async with open_node(config(tmp_path)) as handle:
        for node in ("", "x", "\x1b[31mX", "../../x", "A" * 52):
            with pytest.raises(UsageError):
                await handle.submit(AdmitNode(node=NodeId(node), name="n"), 5)


async def test_what_others_said_can_not_move_a_cursor_from_the_log(tmp_path: Path) -> None:
    async with open_node(config(tmp_path)) as handle:
        logger("test").warning("a name: %s", "\x1b[2J\x07\x9bX")
        lines = await handle.logs("test")
    assert [line.text for line in lines] == ["a name: \ufffd[2J\ufffd\ufffdX"]
    assert "\x1b" not in (tmp_path / "logs" / "node.log").read_text(encoding="utf-8")


async def test_a_member_whose_log_is_lost_goes_back_to_its_cluster(tmp_path: Path) -> None:
    async with open_node(config(tmp_path / "one")) as one:
        second = config(tmp_path / "two")
        async with open_node(second) as two:
            invite = await one.invite()
            await two.join(invite.code, invite.addresses[0])
            await anyio.sleep(2.5)  # the book is written once a second
            address = (await two.local()).cluster_address
            assert address is not None
        shutil.rmtree(tmp_path / "two" / "log")
        same_port = msgspec.structs.replace(second, cluster_port=address.port)
        async with open_node(same_port) as two:
            await until(lambda: two.state.nodes.keys() == one.state.nodes.keys() != set())
            assert two.state.cluster == one.state.cluster
            await decide(two)


async def test_a_node_that_is_back_tells_its_registers_again(tmp_path: Path) -> None:
    """Whoever had it for lost has forgotten them, and most of them do not change."""
    async with (
        open_node(config(tmp_path / "one")) as one,
        open_node(config(tmp_path / "two")) as two,
    ):
        invite = await one.invite()
        await two.join(invite.code, invite.addresses[0])
        gone = next(iter(two.state.nodes.keys() - {one.state.master}))
        kept = (gone, "ModelFigures")
        await until(lambda: kept in one.registers)
        before, index = one.registers[kept], one.state.index
        router = cast("EventRouter", one._membership._router)  # type: ignore[attr-defined]
        router.publish(NodeLost(node=gone, reason="as a frozen one is"))
        await until(lambda: one.state.index >= index + 2)  # lost, and back
        await until(lambda: one.registers.get(kept, before) is not before)
        assert not one.state.nodes[gone].lost


async def test_a_node_that_gave_up_a_longer_log_takes_others_in(tmp_path: Path) -> None:
    """What it had found on its disk says nothing about the cluster that it founds anew."""
    async with open_node(config(tmp_path / "a")) as a:
        async with open_node(config(tmp_path / "b")) as b:
            invite = await a.invite()
            await b.join(invite.code, invite.addresses[0])
            for _ in range(20):
                await decide(a)
            await until(lambda: b.state.index >= a.state.index)
            removed = (await b.local()).node
        assert isinstance(await a.submit(RemoveNode(node=removed), 10), Accepted)
        async with open_node(config(tmp_path / "b")) as b:
            await until(lambda: bool(b.state.cluster) and b.state.cluster != a.state.cluster)
            async with open_node(config(tmp_path / "c")) as c:
                invite = await b.invite()
                await c.join(invite.code, invite.addresses[0])
                await until(lambda: len(c.state.nodes) == 2 and len(b.state.in_sync) == 2)
                assert not any(record.lost for record in b.state.nodes.values())


async def test_a_machine_whose_key_is_gone_is_a_new_node_of_its_own_cluster(
    tmp_path: Path,
) -> None:
    async with open_node(config(tmp_path / "a")) as a:
        await decide(a)
        former, cluster = (await a.local()).node, a.state.cluster
    (tmp_path / "a" / "identity" / "identity.pem").unlink()
    async with open_node(config(tmp_path / "a")) as a:
        await until(lambda: bool(a.state.master))
        own = (await a.local()).node
        assert own != former
        assert a.state.cluster != cluster
        assert set(a.state.nodes) == {own}
        await decide(a)
    assert [path async for path in anyio.Path(tmp_path).glob("a/former-node-*/log/segment-*.log")]
