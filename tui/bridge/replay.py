"""A recording played as if it were a node: the same screen over what happened before."""

import itertools
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from node.core.apply import apply
from node.core.facts import facts_from
from node.core.placement.plan import plan
from node.handle import Invite, LocalView, LogLine, NodeHandle, Rotation, StreamItem
from node.model.card import ModelCard
from node.model.command import Accepted, Command, Refused, Wish
from node.model.download import HubModel, ModelOrder, OrderDone
from node.model.errors import (
    ExoctlError,
    NotFoundError,
    RefusedError,
    TimeoutExpiredError,
    UsageError,
)
from node.model.ids import CommandId, InstanceId, ModelId, NodeId, RequestId
from node.model.machine import Address
from node.model.register import JoinRequest, LinkRecord, Register
from node.model.request import GenerationItem, GenerationRequest
from node.model.session import Entry
from node.model.state import Snapshot, State
from node.model.topology import Plan
from tui.bridge.node_thread import Connector
from tui.bridge.recording import Recorded, read_recording

ITEMS_AHEAD_MAX = 1024
"""Items that were played and not yet taken; playing waits beyond it."""


class ReplayClock:
    """The wall clock of a recording; it stands still once the recording has ended."""

    def __init__(self, monotonic: Callable[[], float], speed: float) -> None:
        self._monotonic = monotonic
        self._speed = speed
        self._at = 0.0
        self._begun = 0.0
        self._end: float | None = None

    def begin(self, at: float) -> None:
        """Go on from this time of the recording."""
        self._at, self._begun = at, self._monotonic()

    def end(self, at: float) -> None:
        """Nothing comes after this time."""
        self._end = at

    def wall(self) -> float:
        """Seconds since 1970 in the recording."""
        now = self._at + (self._monotonic() - self._begun) * self._speed if self._at else 0.0
        return now if self._end is None else min(now, self._end)

    def seconds_until(self, at: float) -> float:
        """Real seconds until that time of the recording."""
        return max(0.0, at - self.wall()) / self._speed


class ReplayHandle:
    """Implements `node.handle.NodeHandle` over the items of a recording; it changes nothing."""

    def __init__(self, items: Iterator[Recorded], clock: ReplayClock, skip_seconds: float) -> None:
        self._items = items
        self._clock = clock
        self._skip_seconds = skip_seconds
        self._registers: dict[tuple[NodeId, str], Register] = {}
        self._local: LocalView | None = None
        self.state = State()
        """As it was at this time of the recording."""

    @property
    def registers(self) -> Mapping[tuple[NodeId, str], Register]:
        """The latest registers at this time of the recording."""
        return self._registers

    async def play(self, sink: MemoryObjectSendStream[StreamItem]) -> None:
        """Send every item when it is due; then wait, as a node does on which nothing happens."""
        first = next(self._items, None)
        if first is None:
            raise UsageError.because("recording_empty", "the recording holds nothing")
        self._clock.begin(first.at + self._skip_seconds)
        last = first.at
        for recorded in itertools.chain((first,), self._items):
            last = recorded.at
            wait = self._clock.seconds_until(recorded.at)
            if wait > 0:
                await anyio.sleep(wait)
            self._take(recorded.item)
            if not isinstance(recorded.item, LocalView):
                await sink.send(recorded.item)
        self._clock.begin(last)
        self._clock.end(last)
        await anyio.sleep_forever()

    def _take(self, item: StreamItem | LocalView) -> None:
        if isinstance(item, Snapshot):
            self.state = item.state
        elif isinstance(item, Entry):
            self.state = apply(self.state, item)
        elif isinstance(item, Register):
            self._registers[item.node, type(item.value).__name__] = item
        elif isinstance(item, LocalView):
            self._local = item

    @asynccontextmanager
    async def subscribe(
        self, since: int | None = None
    ) -> AsyncGenerator[MemoryObjectReceiveStream[StreamItem]]:
        """The recording from its beginning; `since` has no meaning here."""
        del since
        sink, stream = anyio.create_memory_object_stream[StreamItem](ITEMS_AHEAD_MAX)
        async with sink, stream, anyio.create_task_group() as tasks:
            tasks.start_soon(self.play, sink)
            yield stream
            tasks.cancel_scope.cancel()

    async def local(self) -> LocalView:
        """The node that was recorded."""
        if self._local is None:
            raise NotFoundError.because("no_local_view", "the recording does not say whose it is")
        return self._local

    async def plan(self, model: ModelId, wish: Wish) -> Plan:
        """Every way to place the model at this time of the recording."""
        facts = facts_from(self._registers, 0.0)
        card = facts.card(model)
        if card is None:
            raise NotFoundError.because("no_model", f"no node had {model} then")
        return plan(self.state, card, wish, facts)

    async def submit(
        self, command: Command, timeout_seconds: float = 30.0, command_id: CommandId | None = None
    ) -> Accepted | Refused:
        """Nothing can be changed."""
        del command, timeout_seconds, command_id
        raise _past()

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationItem, None]:
        """Nobody answers."""
        del request
        raise _past()

    async def cancel(self, request: RequestId) -> bool:
        """Nothing can be changed."""
        del request
        raise _past()

    async def invite(self, lifetime_seconds: float = 600.0) -> Invite:
        """Nobody can join."""
        del lifetime_seconds
        raise _past()

    async def join(self, code: str, peer: Address | None = None) -> None:
        """Nothing can be changed."""
        del code, peer
        raise _past()

    async def ask_to_join(self, peer: Address | None = None) -> JoinRequest:
        """Nothing can be changed."""
        del peer
        raise _past()

    async def finish_join(
        self, request: str, *, matches: bool, timeout_seconds: float = 600.0
    ) -> None:
        """Nothing can be changed."""
        del request, matches, timeout_seconds
        raise _past()

    async def judge_join(self, request: str, *, approve: bool) -> JoinRequest:
        """Nothing can be changed."""
        del request, approve
        raise _past()

    async def rotate(self) -> Rotation:
        """Nothing can be changed."""
        raise _past()

    async def order(
        self, node: NodeId, order: ModelOrder, timeout_seconds: float = 30.0
    ) -> OrderDone:
        """Nothing can be changed."""
        del node, order, timeout_seconds
        raise _past()

    async def search_models(self, text: str) -> list[HubModel]:
        """A recording knows no hub."""
        del text
        raise _past()

    async def describe_model(self, model: ModelId, revision: str = "main") -> ModelCard:
        """A recording knows no hub."""
        del model, revision
        raise _past()

    async def ping(self, peer: NodeId, *, bandwidth: bool = False) -> LinkRecord:
        """Nothing can be measured."""
        del peer, bandwidth
        raise _past()

    async def leave(self) -> None:
        """Nothing can be changed."""
        raise _past()

    async def logs(self, source: str = "", lines_max: int = 1000) -> list[LogLine]:
        """A recording holds no logs."""
        del source, lines_max
        return []

    async def log_sources(self) -> list[str]:
        """A recording holds no logs."""
        return []

    async def wait_instance(self, instance: InstanceId, timeout_seconds: float) -> None:
        """Nothing comes of waiting."""
        raise TimeoutExpiredError.because("wait_expired", f"{instance}: {timeout_seconds:g} s")

    async def shutdown(self) -> None:
        """There is nothing to end."""


def _past() -> ExoctlError:
    return RefusedError.because(
        "replay", "this is a recording: nothing in it can be changed", "`exoctl` opens the live app"
    )


def replaying(path: Path, clock: ReplayClock, skip_seconds: float) -> Connector:
    """A connector that plays a recording."""

    @asynccontextmanager
    async def connect() -> AsyncGenerator[NodeHandle]:
        yield ReplayHandle(read_recording(path), clock, skip_seconds)

    return connect
