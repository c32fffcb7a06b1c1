"""Logs of other members: asked, answered within bounds, refused in words."""

import anyio
import anyio.abc
import msgspec
import pytest

from node.handle import LogLine
from node.model.errors import NotFoundError, UnreachableError
from node.model.ids import NodeId
from node.services import remote_logs
from node.services.background import background_tasks
from node.services.remote_logs import RemoteLogs
from node.wire.message import LogAnswered, LogAsked, ServiceMessage

NEAR, FAR = NodeId("near"), NodeId("far")


def line(number: int, size: int = 10) -> LogLine:
    return LogLine(at=float(number), level="info", source="worker", text="x" * size)


class Pair:
    """Two members with a link; each message goes through the codec."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.is_up = True
        self.near = RemoteLogs(lambda _, message: self._carry(NEAR, message), tasks)
        self.far = RemoteLogs(lambda _, message: self._carry(FAR, message), tasks)

    def _carry(self, sender: NodeId, message: LogAsked | LogAnswered) -> bool:
        if not self.is_up:
            return False
        other = self.far if sender == NEAR else self.near
        read = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=ServiceMessage)
        if isinstance(read, LogAsked):
            other.asked(sender, read)
        elif isinstance(read, LogAnswered):
            other.answered(sender, read)
        return True


async def test_lines_of_another_member_come_with_the_newest_kept() -> None:
    asked: list[tuple[str, int]] = []

    async def read(source: str, lines_max: int) -> list[LogLine]:
        asked.append((source, lines_max))
        return [line(number, 1000) for number in range(300)]

    async with background_tasks() as tasks:
        pair = Pair(tasks)
        pair.far.read = read
        found = await pair.near.ask(FAR, "runner r-1", 9999)
    assert asked == [("runner r-1", remote_logs.LINES_MAX)]
    assert found[-1] == line(299, 1000)
    assert 50 < len(found) < 70  # 64 KiB of them


async def test_what_fails_there_is_said_here() -> None:
    async def read(source: str, lines_max: int) -> list[LogLine]:
        raise NotFoundError.because("no_such_log", f"no log is called {source!r}")

    async with background_tasks() as tasks:
        pair = Pair(tasks)
        pair.far.read = read
        with pytest.raises(NotFoundError, match="runner r-9"):
            await pair.near.ask(FAR, "runner r-9", 10)
        pair.is_up = False
        with pytest.raises(UnreachableError, match="no link"):
            await pair.near.ask(FAR, "", 10)


async def test_only_the_member_that_was_asked_can_answer() -> None:
    got: list[list[LogLine]] = []

    async with background_tasks() as tasks:
        sent: list[LogAsked | LogAnswered] = []
        near = RemoteLogs(lambda _, message: sent.append(message) is None, tasks)

        async def ask() -> None:
            got.append(await near.ask(FAR, "", 10))

        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        asked = sent[0]
        near.answered(NodeId("stranger"), LogAnswered(id=asked.id))
        await anyio.wait_all_tasks_blocked()
        assert got == []
        near.answered(FAR, LogAnswered(id=asked.id))
        await anyio.wait_all_tasks_blocked()
        assert got == [[]]
