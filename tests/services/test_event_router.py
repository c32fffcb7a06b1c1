"""The router on the real replica and the real log file, two and three nodes in one loop."""

from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest

from node.core.replica.durable import SnapshotImage
from node.core.replica.replica import Replica
from node.core.replica.timing import Limits
from node.io import clock
from node.io.log_file import open_log
from node.log import logger
from node.model.errors import ConflictError, Failure
from node.model.event import ProposalRejected
from node.model.session import Entry, Position, Session
from node.model.state import State
from node.services import event_router as module
from node.services.event_router import EventRouter
from node.services.state_store import StateStore, encode_state
from tests.fakes.routers import Lan, cordon, form_cluster, running, until


async def test_a_fresh_node_is_a_cluster_of_one_and_remembers_it(tmp_path: Path) -> None:
    async with running(Lan(), tmp_path, "a") as (a,):
        await until(lambda: a.state.cluster != "")
        settled: list[Entry | None] = []
        a.router.publish(cordon(a.node, on=True), settled.append)
        await until(lambda: bool(settled))
        assert a.state.nodes[a.node].cordoned
        now = clock.wall()
        assert all(now - 60 < entry.written_at <= now for entry in a.store.recent())
        cluster, index = a.state.cluster, a.state.index
    async with running(Lan(), tmp_path, "a") as (a,):
        await until(lambda: a.state.index > index)
        assert a.state.cluster == cluster
        assert a.state.nodes[a.node].cordoned


async def test_events_of_every_node_reach_every_state_in_their_writers_order(
    tmp_path: Path,
) -> None:
    async with running(Lan(), tmp_path, "a", "b", "c") as members:
        await form_cluster(members)
        for turn in range(20):
            for member in members:
                member.router.publish(cordon(member.node, on=turn % 2 == 0))
        await until(
            lambda: (
                all(m.router.figures().unacknowledged == 0 for m in members)
                and len({m.state.index for m in members}) == 1
            )
        )
        logs = [[(e.index, e.id, e.payload) for e in member.store.recent()] for member in members]
        assert logs[0][-60:] == logs[1][-60:] == logs[2][-60:]
        for member in members:
            own = [e.id.sequence for e in members[0].store.recent() if e.id.origin == member.node]
            assert [s for s in own if s > 0] == sorted(s for s in own if s > 0)


async def test_a_lost_master_is_replaced_and_nothing_that_was_acknowledged_is_gone(
    tmp_path: Path,
) -> None:
    lan = Lan()
    async with running(lan, tmp_path, "a", "b", "c") as members:
        await form_cluster(members)
        a, b, c = members
        settled: list[Entry | None] = []
        b.router.publish(cordon(b.node, on=True), settled.append)
        await until(lambda: bool(settled))
        lan.cut.update(frozenset((a.node, other.node)) for other in (b, c))
        for other in (b, c):
            other.router.peer_down(a.node, refused=True)
        waiting: list[Entry | None] = []
        c.router.publish(cordon(c.node, on=True), waiting.append)
        await until(lambda: bool(waiting))
        assert b.router.is_master or c.router.is_master
        assert b.state.nodes[b.node].cordoned
        assert c.state.nodes[c.node].cordoned
        assert c.state.session.master in (b.node, c.node)


async def test_a_planned_stop_hands_mastership_over(tmp_path: Path) -> None:
    async with running(Lan(), tmp_path, "a", "b") as members:
        await form_cluster(members)
        a, b = members
        await a.router.step_down()
        assert not a.router.is_master
        await until(lambda: b.router.is_master)
        assert a.desk.lost


async def test_two_halves_go_on_and_their_events_are_judged_again_after_healing(
    tmp_path: Path,
) -> None:
    lan = Lan()
    async with running(lan, tmp_path, "a", "b") as members:
        await form_cluster(members)
        a, b = members
        lan.cut.add(frozenset((a.node, b.node)))
        a.router.peer_down(b.node, refused=True)
        b.router.peer_down(a.node, refused=True)
        await until(lambda: a.router.is_master and b.router.is_master)
        done: list[Entry | None] = []
        a.router.publish(cordon(a.node, on=True), done.append)
        b.router.publish(cordon(b.node, on=True), done.append)
        await until(lambda: len(done) == 2)
        assert a.router.figures().state_hash != b.router.figures().state_hash
        rejection = ProposalRejected(
            id=a.store.recent()[-1].id,
            asked_by=a.node,
            failure=Failure(code="out_of_date", message="judged"),
        )
        for member in members:
            member.desk.verdict = rejection
        lan.cut.clear()
        a.router.peer_up(b.node)
        b.router.peer_up(a.node)
        await until(
            lambda: (
                a.router.is_master != b.router.is_master
                and a.state.index == b.state.index
                and len(a.state.rejections) == len(b.state.rejections) == 1
            )
        )
        assert a.state == b.state
        assert a.router.figures().state_hash == b.router.figures().state_hash != ""
        assert len(a.desk.judged + b.desk.judged) >= 1


def keep_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot at every 50 entries, and a tail of 10."""
    monkeypatch.setattr(module, "SNAPSHOT_EVERY_ENTRIES", 50)
    monkeypatch.setattr(module, "Replica", partial(Replica, limits=Limits(tail_entries=10)))


async def test_a_joiner_far_behind_gets_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep_little(monkeypatch)
    monkeypatch.setattr(logger("router"), "propagate", True)
    caplog.set_level("INFO")
    async with running(Lan(), tmp_path, "a", "b") as (a, b):
        await until(lambda: a.router.is_master)
        for turn in range(200):
            a.router.publish(cordon(a.node, on=turn % 2 == 0))
        await until(lambda: any((tmp_path / "a").glob("snapshot-*")))
        await form_cluster([a, b])
        assert "snapshot of index" in caplog.text
        assert b.state.index >= 200
        assert b.state.nodes == a.state.nodes


async def test_a_mistake_in_what_listens_ends_the_router_with_that_very_error(
    tmp_path: Path,
) -> None:
    def mistaken(_: State, __: State) -> None:
        raise ZeroDivisionError("a listener's mistake")

    async def live() -> None:
        async with running(Lan(), tmp_path, "a") as (a,):
            await until(lambda: a.state.cluster != "")
            a.store.on_change(mistaken)
            a.router.publish(cordon(a.node, on=True))
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await live()
    assert caught.group_contains(ZeroDivisionError, match="a listener's mistake")


def of_a_newer_version(_: State) -> bytes:
    return b"\xc1"


async def test_a_masters_snapshot_that_can_not_be_read_harms_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep_little(monkeypatch)
    monkeypatch.setattr(logger("router"), "propagate", True)
    async with running(Lan(), tmp_path, "a", "b") as members:
        a, b = members
        await until(lambda: a.router.is_master)
        monkeypatch.setattr(module, "encode_state", of_a_newer_version)
        for turn in range(60):
            a.router.publish(cordon(a.node, on=turn % 2 == 0))
        await until(lambda: any((tmp_path / "a").glob("snapshot-*")))
        monkeypatch.setattr(module, "encode_state", encode_state)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(form_cluster, members)
            await until(lambda: "can't be read here" in caplog.text)
            assert b.state.index == -1
            for turn in range(60):
                a.router.publish(cordon(a.node, on=turn % 2 == 0))
        assert b.state == a.state


async def test_a_snapshot_on_disk_that_can_not_be_read_is_a_named_error(tmp_path: Path) -> None:
    async with running(Lan(), tmp_path, "a") as (a,):
        await until(lambda: a.state.cluster != "")
        recovered = a.recovered
    position = Position(Session(1, a.node, 1), 3)
    image = SnapshotImage(cluster=a.router.cluster, position=position, state=b"\xc1", known=())
    log, _ = open_log(tmp_path / "a")
    with pytest.raises(ConflictError, match="can't be read by this version"):
        EventRouter(
            a.node,
            log,
            msgspec.structs.replace(recovered, snapshot=image),
            StateStore(),
            lambda _peer, _message: True,
        )
    log.close()
