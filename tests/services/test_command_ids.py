"""The asker's side of commands, without a cluster: who waits, who is told."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from node.model.command import Accepted, CordonNode, Refused
from node.model.ids import ClusterId, CommandId, NodeId
from node.model.state import State
from node.services.commands import Commands
from node.services.state_store import StateStore
from node.wire.message import CommandSent, PlanAsked, ServiceMessage

HERE, THERE = NodeId("here"), NodeId("there")
COMMAND = CordonNode(node=THERE)
CHOSEN = CommandId("c-00000000000000aa")


class Asker:
    """Commands of a node whose master is another."""

    def __init__(self) -> None:
        self.sent: list[CommandSent] = []
        self.answers: list[Accepted | Refused] = []
        store = StateStore()
        store.install(State(index=9))
        self.commands = Commands(
            HERE, store, lambda: ClusterId("c"), lambda: THERE, self._send, self._decide
        )

    def _send(self, _: NodeId, message: ServiceMessage) -> bool:
        assert isinstance(message, CommandSent)
        self.sent.append(message)
        return True

    def _decide(self, _: CommandSent | PlanAsked) -> None:
        pytest.fail("this node is no master")

    async def ask(self, command_id: CommandId | None = CHOSEN) -> None:
        self.answers.append(await self.commands.submit(COMMAND, 5.0, command_id))


@asynccontextmanager
async def asking(count: int) -> AsyncGenerator[Asker]:
    """So many askers with the same id; all are answered, or the test hangs into its deadline."""
    asker = Asker()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(asker.ask)
            await anyio.wait_all_tasks_blocked()
            yield asker


@pytest.mark.parametrize("count", [1, 3])
async def test_an_id_that_the_asker_chose_is_the_command_s(count: int) -> None:
    async with asking(count) as asker:
        assert {message.request.id for message in asker.sent} == {CHOSEN}
        assert asker.commands.pending_count == 1
        asker.commands.answered(THERE, Accepted(id=CHOSEN, index=3))
    assert asker.answers == [Accepted(id=CHOSEN, index=3)] * count
    assert asker.commands.pending_count == 0


async def test_one_of_two_askers_may_give_up() -> None:
    asker = Asker()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asker.ask)
            await anyio.wait_all_tasks_blocked()
            with anyio.move_on_after(0.01):
                await asker.ask()
            assert asker.commands.pending_count == 1
            asker.commands.answered(THERE, Accepted(id=CHOSEN, index=3))
    assert len(asker.answers) == 1


async def test_without_a_choice_every_command_has_an_id_of_its_own() -> None:
    asker = Asker()
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(asker.ask, None)
        await anyio.wait_all_tasks_blocked()
        assert len({message.request.id for message in asker.sent}) == 2
        tasks.cancel_scope.cancel()
