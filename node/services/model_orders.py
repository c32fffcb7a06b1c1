"""Orders about models and downloads: carried out by the node that they are for, asked of any.

An order is a message from node to node. It needs no master: what a node holds and fetches is its
own fact. It is sent again until it is answered; the node that is asked carries it out once.
"""

from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from node.io import clock
from node.io.model_store.embedded import EMBEDDED_MODEL
from node.io.model_store.hub_cache import SNAPSHOTS, Repository
from node.io.model_store.keeping import copy_model, import_target, prune, remove_model
from node.io.model_store.store import ModelStore
from node.io.wakeup import Wakeup
from node.log import logger
from node.model.download import (
    ImportModel,
    LimitDownloads,
    ModelOrder,
    OrderDone,
    PrioritiseDownload,
    PruneModels,
    PullModel,
    RemoveModel,
    SteerDownload,
    VerifyModel,
)
from node.model.errors import (
    BusyError,
    ConflictError,
    ExoctlError,
    NotFoundError,
    TimeoutExpiredError,
    UnreachableError,
    UsageError,
)
from node.model.ids import CommandId, ModelId, NodeId
from node.model.instance import RunnerPhase
from node.model.state import State
from node.services.downloader import Downloader
from node.wire.message import OrderAnswered, OrderSent, ServiceMessage
from node.wire.surface import error_of_kind, kind_of

RESEND_SECONDS = 1.0
PENDING_MAX = 256
CARRIED_OUT_MAX = 64
"""Orders of others that are carried out at a time; further ones are refused."""
REMEMBERED_MAX = 1000
"""Orders of others whose answers are kept, for those that are sent again."""

_log = logger("models")


class ModelOrders:
    """Made once."""

    def __init__(
        self,
        node: NodeId,
        store: ModelStore,
        downloader: Downloader,
        state: Callable[[], State],
        send: Callable[[NodeId, ServiceMessage], bool],
        tasks: TaskGroup,
    ) -> None:
        self.rescan: Callable[[], None] = lambda: None
        """Called when models came or went."""
        self._node = node
        self._root = store.root
        self._store = store
        self._downloader = downloader
        self._state = state
        self._send = send
        self._tasks = tasks
        self._pending: dict[CommandId, MemoryObjectSendStream[OrderAnswered]] = {}
        self._running: set[tuple[NodeId, CommandId]] = set()
        self._answers: dict[tuple[NodeId, CommandId], OrderAnswered] = {}

    async def order(self, node: NodeId, order: ModelOrder, timeout_seconds: float) -> OrderDone:
        """Have a node carry out an order.

        Raises:
            UnreachableError: there is no link to it. TimeoutExpiredError: no answer in time.
            ExoctlError: what it says.
        """
        if node == self._node:
            return await self._order_here(order, timeout_seconds)
        if len(self._pending) >= PENDING_MAX:
            raise BusyError.because("too_many_orders", f"{PENDING_MAX} orders wait already")
        message = OrderSent(id=CommandId("c-" + clock.random_hex(16)), order=order)
        send, receive = anyio.create_memory_object_stream[OrderAnswered](1)
        self._pending[message.id] = send
        sent = False
        try:
            with anyio.move_on_after(timeout_seconds):
                while True:
                    sent |= self._send(node, message)
                    with anyio.move_on_after(RESEND_SECONDS):
                        return _outcome(await receive.receive())
        finally:
            del self._pending[message.id]
            send.close()
            receive.close()
        record = self._state().nodes.get(node)
        name = record.name if record else node[:12]
        if not sent:
            raise UnreachableError.because(
                "node_unreachable", f"there is no link to {name}", "see `exoctl node ls`"
            )
        raise _no_answer(name, timeout_seconds)

    async def _order_here(self, order: ModelOrder, timeout_seconds: float) -> OrderDone:
        """Carry it out whether or not its asker stays, as another node would."""
        ends: list[OrderDone | Exception] = []
        over = Wakeup()

        async def work() -> None:
            try:
                ends.append(await self.carry_out(order))
            except Exception as error:  # noqa: BLE001 - the asker's, whatever it is
                ends.append(error)
            over.ring()

        self._tasks.start_soon(work)
        await over.wait(timeout_seconds)
        if not ends:
            raise _no_answer("this node", timeout_seconds)
        if isinstance(ends[0], Exception):
            raise ends[0]
        return ends[0]

    def on_message(self, peer: NodeId, message: OrderSent | OrderAnswered) -> None:
        """Take an order of another node, or its answer."""
        if isinstance(message, OrderAnswered):
            pending = self._pending.get(message.id)
            if pending is not None:
                try:
                    pending.send_nowait(message)
                except (anyio.WouldBlock, anyio.BrokenResourceError):
                    return
            return
        key = (peer, message.id)
        if key in self._running:
            return
        if key in self._answers:
            self._send(peer, self._answers[key])
        elif len(self._running) >= CARRIED_OUT_MAX:
            text = f"{CARRIED_OUT_MAX} orders are being carried out already"
            busy = BusyError.because("too_many_orders", text, "try again shortly")
            self._send(peer, _refused(message.id, busy))
        else:
            self._running.add(key)
            self._tasks.start_soon(self._answer, peer, message)

    async def carry_out(self, order: ModelOrder) -> OrderDone:
        """Do it on this node.

        Raises:
            ExoctlError: it can't be done.
        """
        try:
            return await self._carry_out(order)
        except OSError as error:
            raise ExoctlError.because(
                "disk_error",
                f"{error.filename or self._root}: {error.strerror or error}",
                "check the disk and who owns the model directory",
            ) from error

    # -- inside ------------------------------------------------------------------------------------

    async def _answer(self, peer: NodeId, message: OrderSent) -> None:
        key = (peer, message.id)
        try:
            done = await self.carry_out(message.order)
            answer = OrderAnswered(id=message.id, done=done)
        except ExoctlError as error:
            answer = _refused(message.id, error)
        finally:
            self._running.discard(key)
        self._answers[key] = answer
        while len(self._answers) > REMEMBERED_MAX:
            del self._answers[next(iter(self._answers))]
        self._send(peer, answer)

    async def _carry_out(self, order: ModelOrder) -> OrderDone:
        match order:
            case PullModel() | SteerDownload() | PrioritiseDownload() | LimitDownloads():
                return OrderDone(words=await self._downloader.order(order))
            case RemoveModel():
                return await self._remove(order.model)
            case VerifyModel():
                return await self._verify(order.model)
            case ImportModel():
                return await self._import(order)
            case PruneModels():
                busy = frozenset(self._used()) | frozenset(self._downloader.models())
                freed = await anyio.to_thread.run_sync(prune, self._root, busy)
                self.rescan()
                return OrderDone(words="pruned", bytes_freed=freed)

    def _used(self) -> dict[ModelId, str]:
        """Models that an instance on this node needs, with the instance's id."""
        state = self._state()
        used: dict[ModelId, str] = {}
        for instance in state.instances.values():
            for shard in instance.shards:
                runner = state.runners.get(shard.runner)
                is_over = runner is not None and runner.phase is RunnerPhase.STOPPED
                if shard.node == self._node and not (instance.removing and is_over):
                    used[instance.model] = instance.instance
        return used

    async def _remove(self, model: ModelId) -> OrderDone:
        used_by = self._used().get(model)
        if used_by is not None:
            raise ConflictError.because(
                "model_in_use",
                f"{model} is used by the instance {used_by}",
                f"stop it first: exoctl unload {used_by}",
            )
        is_fetched = model in self._downloader.models()
        await self._downloader.forget(model)
        place = self._store.place_of(model)
        if place is None:
            repository = Repository(self._root, model)
            if is_fetched and repository.directory.is_dir():
                freed = await anyio.to_thread.run_sync(repository.remove)
                return OrderDone(words=f"{model} removed", bytes_freed=freed)
            raise NotFoundError.because(
                "model_not_found", f"no model {model!r} lies here", "see `exoctl model ls`"
            )
        freed = await anyio.to_thread.run_sync(remove_model, self._root, model, place)
        _log.info("%s removed, %d bytes freed", model, freed)
        await self._store.scan()
        self.rescan()
        return OrderDone(words=f"{model} removed", bytes_freed=freed)

    async def _verify(self, model: ModelId) -> OrderDone:
        place = self._store.place_of(model)
        if place is None:
            raise NotFoundError.because(
                "model_not_found", f"no model {model!r} lies here", "see `exoctl model ls`"
            )
        if place.parent.name != SNAPSHOTS or not place.is_relative_to(self._root):
            raise ConflictError.because(
                "no_hashes",
                f"{place} did not come through exoctl from a hub: nothing says what its bytes"
                " should hash to; its headers and sizes were checked when it was found",
                _instead_of_hashing(model),
            )
        await self._downloader.check(model, place.name)
        return OrderDone(words=f"{model} is being hashed anew")

    async def _import(self, order: ImportModel) -> OrderDone:
        if "\0" in order.path:
            raise UsageError.because("bad_path", "a path can't hold a zero byte")
        source = Path(order.path)
        target = import_target(self._root, order.model)
        if source.suffix == ".gguf":
            await self._store.convert(source, target)
        else:
            await anyio.to_thread.run_sync(copy_model, source, self._root, target)
        self.rescan()
        return OrderDone(words=f"{order.model} imported from {source}")


def _no_answer(name: str, seconds: float) -> ExoctlError:
    return TimeoutExpiredError.because(
        "no_answer",
        f"{name} did not answer within {seconds:g} s",
        "see `exoctl download ls`; it may still be carried out",
    )


def _instead_of_hashing(model: ModelId) -> str:
    if model == EMBEDDED_MODEL:
        return f"`exoctl model rm {model}`, and the node makes it anew when it starts again"
    if "/" in model:
        return f"compare it with where it came from, or `exoctl model pull {model}`"
    return "compare it with where it came from, or bring it again: `exoctl model import PATH`"


def _refused(id_: CommandId, error: ExoctlError) -> OrderAnswered:
    return OrderAnswered(id=id_, kind=kind_of(error), failure=error.failure)


def _outcome(answer: OrderAnswered) -> OrderDone:
    if answer.done is not None:
        return answer.done
    if answer.failure is None:
        raise ExoctlError.because("answer_unreadable", "the node gave an empty answer")
    raise error_of_kind(answer.kind, msgspec.structs.replace(answer.failure))
