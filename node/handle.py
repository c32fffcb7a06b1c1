"""The one outer surface of a node: what the TUI, the CLI and the HTTP API see of it.

Two things implement it: the embedded node (`node.runtime`) and `node.client`, the same over HTTP.
Its coroutines belong to the loop of the thread that made it.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream

from node.model.card import ModelCard
from node.model.command import Accepted, Command, Refused, Wish
from node.model.download import HubModel, ModelOrder, OrderDone
from node.model.ids import CommandId, InstanceId, ModelId, NodeId, RequestId
from node.model.machine import Address
from node.model.register import JoinRequest, LinkRecord, Register
from node.model.request import GenerationItem, GenerationRequest
from node.model.session import Entry, Rewind, SessionStarted
from node.model.state import Snapshot, State
from node.model.topology import Plan


class Lagged(msgspec.Struct, frozen=True, tag=True):
    """Stream item: the reader fell behind, `skipped` items were dropped; a `Snapshot` follows."""

    skipped: int


StreamItem = Snapshot | SessionStarted | Entry | Rewind | Lagged | Register


class LocalView(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of the node behind this handle that are its own business alone."""

    node: NodeId
    name: str
    version: str
    process_id: int
    started_at: float
    """Wall clock, seconds since 1970."""
    state_directory: str
    api: Address | None
    """Where its HTTP API listens; None where it has none."""
    cluster_address: Address | None
    trust: str = "invite"
    """`invite`; `secret`: whoever has the file is admitted; `lan`: anyone on the network."""
    waiting: tuple[str, ...] = ()
    """What is being waited for, in words: `no master: electing for 0.3 s`."""
    commands_pending: int = 0


class Invite(msgspec.Struct, frozen=True, kw_only=True):
    """A code that lets another machine join."""

    code: str
    expires_at: float
    """Wall clock, seconds since 1970."""
    addresses: tuple[Address, ...]
    """Where this node can be dialled."""


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """What `rotate` did."""

    withdrawn: int
    """Codes and waiting machines of this node."""
    members_told: int
    secret_file: str = ""
    """Where the new secret is; empty where there is none."""


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a log."""

    at: float
    """Wall clock, seconds since 1970; 0 where the line carries none."""
    level: str
    """`debug`, `info`, `warning`, `error`; `output` for a runner's own lines."""
    source: str
    """Part of the node (`election`, `router`, `worker` …) or `runner r-…`."""
    text: str


class NodeHandle(Protocol):
    """A node, from outside. Every coroutine has a deadline and raises only `ExoctlError`s."""

    @property
    def state(self) -> State:
        """The last committed state this node has; immutable, read at will."""
        ...

    @property
    def registers(self) -> Mapping[tuple[NodeId, str], Register]:
        """Latest registers by (node, kind); a kind is the class name of its value."""
        ...

    async def local(self) -> LocalView:
        """Facts of the node itself."""
        ...

    def subscribe(
        self, since: int | None = None
    ) -> AbstractAsyncContextManager[MemoryObjectReceiveStream[StreamItem]]:
        """Stream: a `Snapshot` first (or the entries from `since` on where the node still has
        them), then what happens. A reader that falls behind gets `Lagged` and a new `Snapshot`.
        """
        ...

    async def submit(
        self, command: Command, timeout_seconds: float = 30.0, command_id: CommandId | None = None
    ) -> Accepted | Refused:
        """Have the master decide a command; returns after its decision is committed and applied
        here. Safe over a change of master: the command keeps its id and never runs twice. An asker
        that may have to ask again, of this node or another, chooses the id itself.

        Raises:
            TimeoutExpiredError: no answer in time; it may still be carried out.
        """
        ...

    async def plan(self, model: ModelId, wish: Wish) -> Plan:
        """Every way to place the model now, with numbers.

        Raises:
            NotFoundError: no node knows the model.
        """
        ...

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationItem, None]:
        """Generate; the last item is `Finished` or `Failed`. Closing the generator cancels.

        Raises:
            NotFoundError: the model is unknown or has no instance.
            BusyError: no instance of it is ready yet, or its queue is full.
            UsageError: the prompt is longer than the context, with both numbers.
        """
        ...

    async def order(
        self, node: NodeId, order: ModelOrder, timeout_seconds: float = 30.0
    ) -> OrderDone:
        """Have a node do something with its models or downloads; needs a link to it, no master.

        Raises:
            UnreachableError: there is no link to it. TimeoutExpiredError: no answer in time.
            ExoctlError: what the node says.
        """
        ...

    async def search_models(self, text: str) -> list[HubModel]:
        """Models on the hub that match, as this node is told.

        Raises:
            ExoctlError: the hub can't be asked, with the reason.
        """
        ...

    async def describe_model(self, model: ModelId, revision: str = "main") -> ModelCard:
        """The card of a model on the hub, of whose weights only the headers are fetched.

        Raises:
            ExoctlError: the hub can't be asked, or mlx-lm can't run the model.
        """
        ...

    async def cancel(self, request: RequestId) -> bool:
        """End a generation anywhere in the cluster; False where it is not running."""
        ...

    async def invite(self, lifetime_seconds: float = 600.0) -> Invite:
        """Make a one-time code for another machine."""
        ...

    async def join(self, code: str, peer: Address | None = None) -> None:
        """Join the cluster that the code came from; this node's own log is archived.

        Raises:
            RefusedError: wrong or used code. UnreachableError: nobody answers there.
        """
        ...

    async def ask_to_join(self, peer: Address | None = None) -> JoinRequest:
        """Ask a node of another cluster to be let in by a person, without a code: both screens show
        the digits of the request, and `finish_join` says whether they are equal.

        Raises:
            ConflictError: this node is in a cluster with others. UnreachableError: nobody answers.
            RefusedError: nobody may ask there now.
        """
        ...

    async def finish_join(
        self, request: str, *, matches: bool, timeout_seconds: float = 600.0
    ) -> None:
        """Go on with a request of `ask_to_join`: wait until it is approved and this node is a
        member, or withdraw it where the digits differ.

        Raises:
            RefusedError: denied, or expired. NotFoundError: it is withdrawn already.
            UnreachableError: the member is gone. TimeoutExpiredError: nobody decided.
        """
        ...

    async def judge_join(self, request: str, *, approve: bool) -> JoinRequest:
        """Let a machine in that asks any member, or send it away.

        Raises:
            NotFoundError: nobody asks by that id.
        """
        ...

    async def rotate(self) -> Rotation:
        """Withdraw every open code and waiting machine of the cluster; secret files, here and of
        the linked members, get a new secret.

        Raises:
            RefusedError: the file can't be written; nothing has changed.
        """
        ...

    async def ping(self, peer: NodeId, *, bandwidth: bool = False) -> LinkRecord:
        """The link of this node with another, measured now.

        Raises:
            UnreachableError: there is none, with the reason.
        """
        ...

    async def leave(self) -> None:
        """Leave the cluster and become a cluster of one again."""
        ...

    async def logs(self, source: str = "", lines_max: int = 1000) -> list[LogLine]:
        """The last lines of this node's log and its runners' output; all sources where empty."""
        ...

    async def log_sources(self) -> list[str]:
        """Names that `logs` takes."""
        ...

    async def wait_instance(self, instance: InstanceId, timeout_seconds: float) -> None:
        """Return once the instance is ready.

        Raises:
            NotFoundError: it is gone. ExoctlError: it failed, with the cause. TimeoutExpiredError.
        """
        ...

    async def shutdown(self) -> None:
        """End the node cleanly, as `exoctl down` and `q` do."""
        ...
