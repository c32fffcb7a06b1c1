from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from node.model.command import Refused, StopInstance, Wish
from node.model.errors import BusyError, ConflictError, Failure, TimeoutExpiredError, UsageError
from node.model.ids import ClusterId, CommandId, InstanceId, ModelId, NodeId
from node.services import commands as module
from node.services.commands import Commands
from node.services.state_store import StateStore
from node.wire.message import CommandSent, PlanAsked, ServiceMessage

HERE, FIRST, SECOND = NodeId("here"), NodeId("first"), NodeId("second")
UNLOAD = StopInstance(instance=InstanceId("i-1"))
NO = Refused(id=CommandId(""), kind="ConflictError", failure=Failure(code="no", message="no"))


class Asker:
    """`Commands` whose messages are kept, each as it is sent."""

    def __init__(self) -> None:
        self.master: NodeId | None = FIRST
        self.news, self.inbox = anyio.create_memory_object_stream[
            tuple[NodeId, CommandSent | PlanAsked]
        ](64)
        self.commands = Commands(
            HERE,
            StateStore(),
            cluster=lambda: ClusterId("c"),
            master=lambda: self.master,
            send=self._send,
            decide_here=lambda message: self.news.send_nowait((HERE, message)),
        )

    def _send(self, to: NodeId, message: ServiceMessage) -> bool:
        assert isinstance(message, CommandSent | PlanAsked)
        self.news.send_nowait((to, message))
        return True

    async def sent(self) -> tuple[NodeId, CommandId]:
        with anyio.fail_after(5):
            to, message = await self.inbox.receive()
        return to, message.request.id if isinstance(message, CommandSent) else message.id

    def refuse(self, sender: NodeId, id_: CommandId) -> None:
        self.commands.answered(sender, Refused(id=id_, kind=NO.kind, failure=NO.failure))


@asynccontextmanager
async def asking() -> AsyncGenerator[tuple[Asker, anyio.abc.TaskGroup]]:
    asker = Asker()
    with asker.news, asker.inbox:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asker.commands.run)
            yield asker, tasks
            tasks.cancel_scope.cancel()


async def test_a_command_without_an_answer_is_sent_again_under_the_same_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RESEND_SECONDS", 0.01)
    async with asking() as (asker, tasks):
        tasks.start_soon(asker.commands.submit, UNLOAD, 5.0)
        first, again = await asker.sent(), await asker.sent()
        assert first == again
        asker.refuse(FIRST, first[1])


async def test_a_new_master_is_asked_at_once() -> None:
    async with asking() as (asker, tasks):
        tasks.start_soon(asker.commands.submit, UNLOAD, 5.0)
        _, id_ = await asker.sent()
        asker.master = SECOND
        asker.commands.master_changed()
        assert await asker.sent() == (SECOND, id_)
        asker.refuse(SECOND, id_)


async def test_a_command_waits_for_a_master_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESEND_SECONDS", 0.02)
    async with asking() as (asker, tasks):
        asker.master = None
        tasks.start_soon(asker.commands.submit, UNLOAD, 5.0)
        await anyio.lowlevel.checkpoint()
        asker.master = HERE
        to, id_ = await asker.sent()
        assert to == HERE
        asker.refuse(HERE, id_)


async def test_only_the_master_answers() -> None:
    async with asking() as (asker, tasks):
        answers: list[object] = []

        async def ask() -> None:
            answers.append(await asker.commands.submit(UNLOAD, 5.0))
            asker.news.close()

        tasks.start_soon(ask)
        _, id_ = await asker.sent()
        asker.refuse(SECOND, id_)
        await anyio.lowlevel.checkpoint()
        assert not answers
        assert asker.commands.pending_count == 1
        asker.refuse(FIRST, id_)
        with pytest.raises(anyio.EndOfStream):
            await asker.sent()
        assert [type(answer) for answer in answers] == [Refused]
        assert asker.commands.pending_count == 0


async def test_no_answer_in_time_says_so_and_leaves_nothing_behind() -> None:
    async with asking() as (asker, _):
        with pytest.raises(TimeoutExpiredError, match="no master answered within"):
            await asker.commands.submit(UNLOAD, 0.01)
        assert asker.commands.pending_count == 0


async def test_a_refused_plan_is_raised_with_its_reason() -> None:
    async with asking() as (asker, tasks):
        caught: list[ConflictError] = []

        async def ask() -> None:
            try:
                await asker.commands.plan(ModelId("m"), Wish(), 5.0)
            except ConflictError as error:
                caught.append(error)

        tasks.start_soon(ask)
        _, id_ = await asker.sent()
        asker.commands.cluster_changed()
        await anyio.wait_all_tasks_blocked()
        assert caught[0].failure.code == "cluster_changed"
        assert id_


async def test_past_the_bound_further_commands_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING_MAX", 1)
    async with asking() as (asker, tasks):
        tasks.start_soon(asker.commands.submit, UNLOAD, 5.0)
        _, id_ = await asker.sent()
        with pytest.raises(BusyError, match="1 commands"):
            await asker.commands.submit(UNLOAD, 5.0)
        asker.refuse(FIRST, id_)


async def test_a_command_too_large_for_any_master_is_refused_here() -> None:
    async with asking() as (asker, _):
        huge = StopInstance(instance=InstanceId("i" * module.COMMAND_BYTES_MAX))
        with pytest.raises(UsageError, match="are allowed"):
            await asker.commands.submit(huge, 5.0)
