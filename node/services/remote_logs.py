"""Logs of other members, asked of them: a runner's last lines are read wherever it ran."""

from collections.abc import Awaitable, Callable

import anyio
import msgspec
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from node.handle import LogLine
from node.io import clock
from node.model.errors import (
    BusyError,
    ExoctlError,
    TimeoutExpiredError,
    UnreachableError,
)
from node.model.ids import CommandId, NodeId
from node.wire.message import LogAnswered, LogAsked, LogRow
from node.wire.surface import error_of_kind, kind_of

ANSWER_SECONDS = 5.0
ASKED_MAX = 32
"""Questions that wait here, and that are being answered here; further ones are refused."""
ANSWER_BYTES_MAX = 64 * 1024
"""The oldest lines go, so that one answer never holds up what else goes over the link."""
LINES_MAX = 2000

Read = Callable[[str, int], Awaitable[list[LogLine]]]


class RemoteLogs:
    """Both sides: asks members for lines, and answers theirs."""

    def __init__(
        self, send: Callable[[NodeId, LogAsked | LogAnswered], bool], tasks: TaskGroup
    ) -> None:
        self._send = send
        self._tasks = tasks
        self._waiting: dict[CommandId, tuple[NodeId, MemoryObjectSendStream[LogAnswered]]] = {}
        self._answering = 0
        self.read: Read | None = None
        """Reads this node's own lines."""

    async def ask(self, node: NodeId, source: str, lines_max: int) -> list[LogLine]:
        """The last lines of a source on another member.

        Raises:
            UnreachableError: there is no link. TimeoutExpiredError: no answer. BusyError.
            ExoctlError: as the member says.
        """
        if len(self._waiting) >= ASKED_MAX:
            raise BusyError.because("too_many_logs", f"{ASKED_MAX} logs are being read already")
        id_ = CommandId("c-" + clock.random_hex(16))
        put, take = anyio.create_memory_object_stream[LogAnswered](1)
        self._waiting[id_] = (node, put)
        try:
            asked = LogAsked(id=id_, source=source, lines_max=min(lines_max, LINES_MAX))
            if not self._send(node, asked):
                raise UnreachableError.because(
                    "no_link",
                    "there is no link with the node that has this log",
                    "`exoctl node ls`",
                )
            with anyio.move_on_after(ANSWER_SECONDS):
                return _lines_of(await take.receive())
        finally:
            del self._waiting[id_]
            put.close()
            take.close()
        raise TimeoutExpiredError.because(
            "no_answer", f"the node with this log did not answer within {ANSWER_SECONDS:g} s"
        )

    def on_message(self, peer: NodeId, message: LogAsked | LogAnswered) -> None:
        """Take a question or an answer of a member."""
        if isinstance(message, LogAsked):
            self.asked(peer, message)
        else:
            self.answered(peer, message)

    def answered(self, sender: NodeId, message: LogAnswered) -> None:
        """Take an answer; one that nobody waits for is ignored."""
        node, put = self._waiting.get(message.id, (None, None))
        if put is not None and node == sender:
            try:
                put.send_nowait(message)
            except anyio.WouldBlock:
                return

    def asked(self, asker: NodeId, message: LogAsked) -> None:
        """Answer a member, beside what else is done."""
        if self._answering >= ASKED_MAX:
            failure = BusyError.because("too_many_logs", "too many logs are asked for").failure
            self._send(asker, LogAnswered(id=message.id, kind="BusyError", failure=failure))
            return
        self._answering += 1
        self._tasks.start_soon(self._answer, asker, message)

    async def _answer(self, asker: NodeId, message: LogAsked) -> None:
        try:
            assert self.read is not None
            lines = await self.read(message.source, max(1, min(message.lines_max, LINES_MAX)))
            self._send(asker, LogAnswered(id=message.id, rows=_rows(lines)))
        except ExoctlError as error:
            self._send(
                asker, LogAnswered(id=message.id, kind=kind_of(error), failure=error.failure)
            )
        finally:
            self._answering -= 1


def _rows(lines: list[LogLine]) -> tuple[LogRow, ...]:
    kept: list[LogRow] = []
    size = 0
    for line in reversed(lines):
        row = LogRow(at=line.at, level=line.level, source=line.source, text=line.text)
        size += len(msgspec.msgpack.encode(row))
        if size > ANSWER_BYTES_MAX:
            break
        kept.append(row)
    return tuple(reversed(kept))


def _lines_of(answer: LogAnswered) -> list[LogLine]:
    if answer.failure is not None:
        raise error_of_kind(answer.kind, answer.failure)
    return [
        LogLine(at=row.at, level=row.level, source=row.source, text=row.text) for row in answer.rows
    ]
