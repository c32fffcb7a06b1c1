"""The asker's side of commands: sent to the master again and again until answered."""

import contextlib
from collections.abc import Callable

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectSendStream

from node.io import clock
from node.io.identity import is_node_id
from node.io.wakeup import Wakeup
from node.log import logger
from node.model.command import Accepted, AdmitNode, Answer, Command, CommandRequest, Refused, Wish
from node.model.errors import (
    BusyError,
    ConflictError,
    Failure,
    TimeoutExpiredError,
    UsageError,
)
from node.model.ids import ClusterId, CommandId, ModelId, NodeId
from node.model.topology import Plan
from node.services.state_store import StateStore
from node.wire.message import CommandSent, PlanAnswered, PlanAsked, ServiceMessage

RESEND_SECONDS = 0.5
RESEND_SECONDS_MAX = 5.0
PENDING_MAX = 256
"""Commands of this node that wait for an answer; further ones are refused."""

COMMAND_BYTES_MAX = 64 * 1024
"""A quarter of what an event may have: a decision holds the command's words and more."""
CLUSTER_CHANGED = "cluster_changed"

_log = logger("commands")


class _Pending(msgspec.Struct):
    message: CommandSent | PlanAsked
    due: float
    wait_seconds: float = RESEND_SECONDS
    waiting: list[MemoryObjectSendStream[Answer | Plan]] = []
    """One for each that asks; more than one only where they chose the same id."""

    def settle(self, answer: Answer | Plan) -> None:
        """Tell everyone who waits; a second answer comes too late."""
        for each in self.waiting:
            with contextlib.suppress(
                anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError
            ):
                each.send_nowait(answer)


class Commands:
    """Made once; a change of master only makes it ask the new one."""

    def __init__(
        self,
        node: NodeId,
        store: StateStore,
        cluster: Callable[[], ClusterId],
        master: Callable[[], NodeId | None],
        send: Callable[[NodeId, ServiceMessage], bool],
        decide_here: Callable[[CommandSent | PlanAsked], None],
    ) -> None:
        self._node = node
        self._store = store
        self._cluster = cluster
        self._master = master
        self._send = send
        self._decide_here = decide_here
        self._pending: dict[CommandId, _Pending] = {}
        self._wakeup = Wakeup()
        self._wakes_at: float | None = None

    @property
    def pending_count(self) -> int:
        """Commands that wait for an answer."""
        return len(self._pending)

    async def submit(
        self, command: Command, timeout_seconds: float, command_id: CommandId | None = None
    ) -> Accepted | Refused:
        """Have the master decide; returns after the decision is folded into the state here.

        An id stands for its command: asked again with it, the first one's answer comes.

        Raises:
            TimeoutExpiredError: no answer in time.
            BusyError: too many commands wait already. UsageError: it is too large.
        """
        if isinstance(command, AdmitNode) and not is_node_id(command.node):
            raise UsageError.because("bad_node_id", f"{command.node[:80]!r} is no node's id")
        deadline = clock.monotonic() + timeout_seconds
        request = CommandRequest(
            id=command_id or self._new_id(), asked_by=self._node, command=command
        )
        message = CommandSent(request=request, cluster=self._cluster())
        _check_size(message)
        answer = await self._ask(request.id, message, timeout_seconds)
        if not isinstance(answer, Accepted | Refused):
            raise TypeError(f"a command was answered by {type(answer).__name__}")
        if isinstance(answer, Accepted):
            await self._store.reached(answer.index, max(0.1, deadline - clock.monotonic()))
        return answer

    async def plan(self, model: ModelId, wish: Wish, timeout_seconds: float) -> Plan:
        """Have the master say how a model could be placed.

        Raises:
            TimeoutExpiredError: no answer in time. ConflictError: this node changed its cluster.
        """
        id_ = self._new_id()
        message = PlanAsked(id=id_, model=model, wish=wish, cluster=self._cluster())
        _check_size(message)
        plan = await self._ask(id_, message, timeout_seconds)
        if isinstance(plan, Refused):
            raise ConflictError(plan.failure)
        if not isinstance(plan, Plan):
            raise TypeError(f"a plan was answered by {type(plan).__name__}")
        return plan

    def answered(self, sender: NodeId, message: Answer | PlanAnswered) -> None:
        """Take an answer from the master; one that nobody waits for is ignored."""
        pending = self._pending.get(message.id)
        if pending is None or sender not in (self._node, self._master()):
            return
        expects_plan = isinstance(pending.message, PlanAsked)
        if expects_plan != isinstance(message, PlanAnswered):
            return
        pending.settle(message.plan if isinstance(message, PlanAnswered) else message)

    def master_changed(self) -> None:
        """Ask the new master at once."""
        now = clock.monotonic()
        for pending in self._pending.values():
            pending.due, pending.wait_seconds = now, RESEND_SECONDS
        self._wakeup.ring()

    def cluster_changed(self) -> None:
        """What was asked of the cluster that this node has left is answered by nobody."""
        for id_, pending in self._pending.items():
            failure = Failure(
                code=CLUSTER_CHANGED, message="this node belongs to another cluster now"
            )
            pending.settle(Refused(id=id_, kind=ConflictError.__name__, failure=failure))

    async def run(self) -> None:
        """Send again what is due, until cancelled."""
        while True:
            due = min((pending.due for pending in self._pending.values()), default=None)
            self._wakes_at = due
            await self._wakeup.wait(None if due is None else max(0.0, due - clock.monotonic()))
            now = clock.monotonic()
            for pending in list(self._pending.values()):
                if pending.due <= now:
                    self._post(pending, now)

    async def _ask(
        self, id_: CommandId, message: CommandSent | PlanAsked, timeout_seconds: float
    ) -> Answer | Plan:
        if len(self._pending) >= PENDING_MAX:
            raise BusyError.because(
                "too_many_commands", f"{PENDING_MAX} commands of this node wait already"
            )
        send, receive = anyio.create_memory_object_stream[Answer | Plan](1)
        pending = self._pending.setdefault(id_, _Pending(message, clock.monotonic()))
        pending.waiting.append(send)
        try:
            with anyio.move_on_after(timeout_seconds):
                self._post(pending, clock.monotonic())
                if self._wakes_at is None or pending.due < self._wakes_at:
                    self._wakeup.ring()
                return await receive.receive()
        finally:
            pending.waiting.remove(send)
            if not pending.waiting:
                del self._pending[id_]
            send.close()
            receive.close()
        raise TimeoutExpiredError.because(
            "no_answer",
            f"no master answered within {timeout_seconds:g} s",
            "see `exoctl status`; the command may still be carried out",
        )

    def _post(self, pending: _Pending, now: float) -> None:
        pending.due = now + pending.wait_seconds
        pending.wait_seconds = min(2 * pending.wait_seconds, RESEND_SECONDS_MAX)
        master = self._master()
        if master == self._node:
            self._decide_here(pending.message)
        elif master is not None:
            self._send(master, pending.message)
        else:
            pending.due = now + RESEND_SECONDS / 2
            _log.debug("no master for a command yet")

    def _new_id(self) -> CommandId:
        return CommandId("c-" + clock.random_hex(16))


def _check_size(message: CommandSent | PlanAsked) -> None:
    """Refuse here what no master could take.

    Raises:
        UsageError: it can't be sent, with the sizes.
    """
    try:
        size = len(msgspec.msgpack.encode(message))
    except (OverflowError, msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise UsageError.because("bad_command", f"the command can't be sent: {error}") from error
    if size > COMMAND_BYTES_MAX:
        raise UsageError.because(
            "command_too_large", f"a command of {size} bytes; {COMMAND_BYTES_MAX} are allowed"
        )
