"""`NodeHandle` over HTTP."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar
from urllib.parse import quote

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from node.client.event_stream import LOAD_SECONDS, Follower, load, read_records, time_to_load
from node.client.mirror import Mirror, to_items
from node.client.transport import CALL_SECONDS, Transport
from node.handle import Invite, LocalView, LogLine, Rotation, StreamItem
from node.model.card import ModelCard
from node.model.command import Accepted, Answer, Command, Refused, Wish
from node.model.download import HubModel, ModelOrder, OrderDone
from node.model.errors import ExoctlError, InternalError
from node.model.ids import CommandId, InstanceId, ModelId, NodeId, RequestId
from node.model.machine import Address
from node.model.register import JoinRequest, LinkRecord, Register
from node.model.request import Failed, Finished, GenerationItem, GenerationRequest
from node.model.state import Snapshot, State
from node.model.topology import Plan
from node.services.background import background_tasks
from node.wire.surface import (
    AskOrder,
    Cancellation,
    FinishOrder,
    InviteOrder,
    JoinOrder,
    JudgeOrder,
    NodeOrder,
    Page,
    PingOrder,
    PlaceOrder,
)

GRACE_SECONDS = 10.0
"""What an answer may take longer than the deadline that the node was given."""
PATIENT_GRACE_SECONDS = 1.0
"""The same where the person said how long to wait."""
JOIN_SECONDS = 70.0
SEARCH_SECONDS = 70.0
DESCRIBE_SECONDS = 200.0
PING_SECONDS = 30.0
CATCH_UP_SECONDS = 5.0
"""For the mirrored state to reach what a command brought about."""
BACKLOG_ITEMS_MAX = 1000
"""Items of an own event stream that wait for its reader; then the node is let wait."""

Item = TypeVar("Item")

_item_decoder: msgspec.json.Decoder[GenerationItem] = msgspec.json.Decoder(GenerationItem)


@asynccontextmanager
async def connect(
    address: Address,
    token: str = "",
    follow: bool = True,  # noqa: FBT001, FBT002 -- callers hand it through in this order
    patience_seconds: float | None = None,
) -> AsyncGenerator["RemoteHandle"]:
    """Attach to the node whose API listens there.

    `follow` keeps state and registers up to date over the event stream, for the screen; without it
    they are loaded once, which is all that most commands need. `patience_seconds` is what a person
    allows for an answer, in place of what each has by itself.

    Raises:
        UnreachableError: no node answers there. RefusedError: it wants a token.
    """
    load_seconds = LOAD_SECONDS if patience_seconds is None else patience_seconds
    call_seconds = CALL_SECONDS if patience_seconds is None else patience_seconds
    grace_seconds = GRACE_SECONDS if patience_seconds is None else PATIENT_GRACE_SECONDS
    async with Transport(address, token, call_seconds) as transport:
        mirror = Mirror()
        if not follow:
            await load(transport, mirror, load_seconds)
            yield RemoteHandle(transport, mirror, None, grace_seconds)
            return
        async with background_tasks() as tasks:
            follower = Follower(transport, mirror)
            with time_to_load(transport, load_seconds):
                await tasks.start(follower.run)
            yield RemoteHandle(transport, mirror, follower, grace_seconds)


class RemoteHandle:
    """A node behind its API. Made by `connect`."""

    def __init__(
        self,
        transport: Transport,
        mirror: Mirror,
        follower: Follower | None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._grace_seconds = grace_seconds
        self._transport = transport
        self._mirror = mirror
        self._follower = follower

    @property
    def address(self) -> Address:
        """Where the node's API listens."""
        return self._transport.address

    @property
    def fault(self) -> ExoctlError | None:
        """Why state and registers are out of date; None while they are followed."""
        return None if self._follower is None else self._follower.fault

    @property
    def state(self) -> State:
        """The last committed state that was heard of."""
        return self._mirror.state

    @property
    def registers(self) -> Mapping[tuple[NodeId, str], Register]:
        """The latest registers that were heard of."""
        return self._mirror.registers

    async def reload(self) -> None:
        """Take state and registers anew, where they are not followed."""
        if self._follower is None:
            await load(self._transport, self._mirror)

    async def local(self) -> LocalView:
        """Facts of the node itself."""
        return _only(await self._transport.call("GET", "/v1/cluster/local", LocalView))

    @asynccontextmanager
    async def subscribe(
        self, since: int | None = None
    ) -> AsyncGenerator[MemoryObjectReceiveStream[StreamItem]]:
        """Stream what happens, over lost connections where the handle follows and `since` is not
        in the past; else over a connection of its own, and the stream ends with that.
        """
        upcoming = since is not None and since == self.state.index + 1
        if self._follower is not None and (since is None or upcoming):
            first: list[StreamItem] = [] if upcoming else [Snapshot(state=self.state)]
            with self._mirror.feed.reader(first) as items:
                yield items
            return
        send, receive = anyio.create_memory_object_stream[StreamItem](BACKLOG_ITEMS_MAX)
        async with background_tasks() as tasks:
            tasks.start_soon(self._forward, since, send)
            with receive:
                yield receive

    async def _forward(self, since: int | None, send: MemoryObjectSendStream[StreamItem]) -> None:
        with send:
            try:
                async with aclosing(read_records(self._transport, since, follow=True)) as records:
                    async for record in records:
                        for item in to_items(record):
                            await send.send(item)
            except (ExoctlError, anyio.BrokenResourceError):
                return  # the end of the stream is what its reader sees of either

    async def submit(
        self, command: Command, timeout_seconds: float = 30.0, command_id: CommandId | None = None
    ) -> Accepted | Refused:
        """Have the master decide a command; returns once its outcome shows in `state`."""
        query: dict[str, str | float] = {"timeout": timeout_seconds}
        if command_id is not None:
            query["id"] = command_id
        answers = await self._transport.call_for(
            "POST",
            "/v1/cluster/commands",
            Page[Answer],
            body=command,
            query=query,
            seconds=timeout_seconds + self._grace_seconds,
        )
        answer = _only(answers)
        if isinstance(answer, Accepted):
            await self._catch_up(answer.index)
        return answer

    async def _catch_up(self, index: int) -> None:
        if self._follower is None:
            await load(self._transport, self._mirror)
            return
        with anyio.move_on_after(CATCH_UP_SECONDS), self._mirror.feed.reader([]) as items:
            while self.state.index < index:
                await items.receive()

    async def plan(self, model: ModelId, wish: Wish) -> Plan:
        """Every way to place the model now, with numbers."""
        order = PlaceOrder(model=model, wish=wish)
        return _only(await self._transport.call("POST", "/v1/cluster/plan", Plan, body=order))

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationItem, None]:
        """Generate; closing the generator cancels."""
        lines = self._transport.stream("POST", "/v1/cluster/generate", body=request)
        async with aclosing(lines):
            async for line in lines:
                item = self._read_item(request, line)
                yield item
                if isinstance(item, Finished | Failed):
                    return
        raise InternalError.because(
            "stream_cut", f"the node ended {request.id} without a last item"
        )

    def _read_item(self, request: GenerationRequest, line: bytes) -> GenerationItem:
        try:
            return _item_decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise InternalError.because(
                "answer_unreadable", f"an item of {request.id} can't be read: {error}"
            ) from error

    async def order(
        self, node: NodeId, order: ModelOrder, timeout_seconds: float = 30.0
    ) -> OrderDone:
        """Have a node do something with its models or downloads."""
        body = NodeOrder(node=node, order=order)
        done = await self._transport.call(
            "POST",
            "/v1/cluster/orders",
            OrderDone,
            body=body,
            query={"timeout": timeout_seconds},
            seconds=timeout_seconds + self._grace_seconds,
        )
        return _only(done)

    async def search_models(self, text: str) -> list[HubModel]:
        """Models on the hub that match."""
        return await self._transport.call(
            "GET", "/v1/cluster/search", HubModel, query={"text": text}, seconds=SEARCH_SECONDS
        )

    async def describe_model(self, model: ModelId, revision: str = "main") -> ModelCard:
        """The card of a model on the hub."""
        query = {"model": model, "revision": revision}
        cards = await self._transport.call(
            "GET", "/v1/cluster/hub_card", ModelCard, query=query, seconds=DESCRIBE_SECONDS
        )
        return _only(cards)

    async def cancel(self, request: RequestId) -> bool:
        """End a generation anywhere in the cluster; False where it is not running."""
        answers = await self._transport.call(
            "POST", f"/v1/cancel/{quote(request, safe='')}", Cancellation
        )
        return _only(answers).cancelled

    async def invite(self, lifetime_seconds: float = 600.0) -> Invite:
        """Make a one-time code for another machine."""
        order = InviteOrder(lifetime_seconds=lifetime_seconds)
        return _only(await self._transport.call("POST", "/v1/cluster/invite", Invite, body=order))

    async def join(self, code: str, peer: Address | None = None) -> None:
        """Join the cluster that the code came from."""
        order = JoinOrder(code=code, peer="" if peer is None else str(peer))
        await self._transport.call(
            "POST", "/v1/cluster/join", object, body=order, seconds=JOIN_SECONDS
        )

    async def ask_to_join(self, peer: Address | None = None) -> JoinRequest:
        """Ask a node of another cluster to be let in by a person."""
        order = AskOrder(peer="" if peer is None else str(peer))
        return _only(
            await self._transport.call(
                "POST", "/v1/cluster/asks", JoinRequest, body=order, seconds=JOIN_SECONDS
            )
        )

    async def finish_join(
        self, request: str, *, matches: bool, timeout_seconds: float = 600.0
    ) -> None:
        """Wait for the member's owner and become a member, or withdraw."""
        await self._transport.call(
            "POST",
            f"/v1/cluster/asks/{quote(request, safe='')}",
            object,
            body=FinishOrder(matches=matches),
            query={"timeout": timeout_seconds},
            seconds=timeout_seconds + JOIN_SECONDS,
        )

    async def judge_join(self, request: str, *, approve: bool) -> JoinRequest:
        """Decide on a machine that asks to be let in."""
        answers = await self._transport.call(
            "POST",
            f"/v1/cluster/joins/{quote(request, safe='')}",
            JoinRequest,
            body=JudgeOrder(approve=approve),
        )
        return _only(answers)

    async def rotate(self) -> Rotation:
        """Withdraw what lets machines in, and change the secret."""
        return _only(await self._transport.call("POST", "/v1/cluster/rotate", Rotation))

    async def ping(self, peer: NodeId, *, bandwidth: bool = False) -> LinkRecord:
        """The link with another node, measured now."""
        answers = await self._transport.call(
            "POST",
            f"/v1/cluster/nodes/{quote(peer, safe='')}/ping",
            LinkRecord,
            body=PingOrder(bandwidth=bandwidth),
            seconds=PING_SECONDS,
        )
        return _only(answers)

    async def leave(self) -> None:
        """Leave the cluster and become a cluster of one again."""
        await self._transport.call("POST", "/v1/cluster/leave", object, seconds=JOIN_SECONDS)

    async def logs(self, source: str = "", lines_max: int = 1000) -> list[LogLine]:
        """The last lines of the node's log and its runners' output."""
        query = {"source": source, "lines": lines_max}
        return await self._transport.call("GET", "/v1/cluster/logs", LogLine, query=query)

    async def log_sources(self) -> list[str]:
        """Names that `logs` takes."""
        return await self._transport.call("GET", "/v1/cluster/log_sources", str)

    async def wait_instance(self, instance: InstanceId, timeout_seconds: float) -> None:
        """Return once the instance is ready."""
        await self._transport.call(
            "GET",
            f"/v1/cluster/instances/{quote(instance, safe='')}/wait",
            object,
            query={"timeout": timeout_seconds},
            seconds=timeout_seconds + self._grace_seconds,
        )

    async def shutdown(self) -> None:
        """Begin the clean end of the node."""
        await self._transport.call("POST", "/v1/cluster/shutdown", object)


def _only(items: list[Item]) -> Item:
    if len(items) != 1:
        raise InternalError.because("answer_unreadable", f"{len(items)} items where one was due")
    return items[0]
