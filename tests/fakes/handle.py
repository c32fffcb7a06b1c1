"""A `NodeHandle` over fixed values: it answers at once and remembers what it was asked."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream

from node.handle import Invite, LocalView, LogLine, Rotation, StreamItem
from node.model.card import ModelCard
from node.model.command import Accepted, Command, Refused, Wish
from node.model.download import HubModel, ModelOrder, OrderDone
from node.model.errors import ExoctlError, NotFoundError
from node.model.ids import CommandId, InstanceId, ModelId, NodeId, RequestId
from node.model.machine import Address
from node.model.register import JoinRequest, LinkRecord, Register
from node.model.request import (
    Delta,
    Finished,
    FinishReason,
    GenerationItem,
    GenerationRequest,
    Prefilled,
    Usage,
)
from node.model.session import Entry
from node.model.state import Snapshot, State
from node.model.topology import Plan
from tests.fakes.cluster import NOW, Cluster
from tests.fakes.fake_handle import make_join_request, make_link
from tests.fakes.plans import plan_for

STREAM_ITEMS_MAX = 4096

ANSWER = """Each node holds a run of layers; a token crosses **every link once**:

| node | layers | memory |
|---|---|---|
| studio-a | 0-47 | 24 GB |
| mbp-max | 48-69 | 11 GB |

So the split by weight is:

```python
def split(layers: int, weights: list[float]) -> list[int]:
    total = sum(weights)
    return [round(layers * w / total) for w in weights]
```

1. Faster links first.
2. The last stage returns only *token ids*.
"""


class FakeHandle:
    """Implements `node.handle.NodeHandle`."""

    def __init__(self, cluster: Cluster, entries: Sequence[Entry] = (), node: str = "") -> None:
        self.fixed_state, self.fixed_registers = cluster
        self.entries = list(entries)
        here = node or next(iter(self.fixed_state.nodes.values())).name
        identity = next(n.node for n in self.fixed_state.nodes.values() if n.name == here)
        self.view = LocalView(
            node=identity,
            name=here,
            version="0.1.0",
            process_id=4711,
            started_at=NOW - 22_860,
            state_directory="~/.local/state/exoctl",
            api=Address("127.0.0.1", 52415),
            cluster_address=Address("10.0.0.11", 52416),
        )
        self.submitted: list[Command] = []
        self.orders: list[tuple[NodeId, ModelOrder]] = []
        self.found: list[HubModel] = []
        self.hub_card: ModelCard | None = None
        self.cancelled: list[RequestId] = []
        self.joined: list[tuple[str, Address | None]] = []
        self.finished: list[tuple[str, bool]] = []
        self.judged: list[tuple[str, bool]] = []
        self.wishes: list[Wish] = []
        self.requests: list[GenerationRequest] = []
        self.refusal: Refused | None = None
        self.failure: ExoctlError | None = None
        self.ended = False
        self.answer = ANSWER
        self._live, self._receive = anyio.create_memory_object_stream[StreamItem](STREAM_ITEMS_MAX)

    @property
    def state(self) -> State:
        return self.fixed_state

    @property
    def registers(self) -> Mapping[tuple[NodeId, str], Register]:
        return self.fixed_registers

    def publish(self, item: StreamItem) -> None:
        """Have the subscriber receive an item."""
        if isinstance(item, Register):
            kind = type(item.value).__name__
            self.fixed_registers = {**self.fixed_registers, (item.node, kind): item}
        elif isinstance(item, Snapshot):
            self.fixed_state = item.state
        elif isinstance(item, Entry):
            self.fixed_state = msgspec.structs.replace(self.fixed_state, index=item.index)
        self._live.send_nowait(item)

    def end(self) -> None:
        """End the stream, as a node that ends does."""
        self._live.close()

    def close(self) -> None:
        """Let go of both ends of the stream."""
        self._live.close()
        self._receive.close()

    async def local(self) -> LocalView:
        return self.view

    @asynccontextmanager
    async def subscribe(
        self, since: int | None = None
    ) -> AsyncGenerator[MemoryObjectReceiveStream[StreamItem]]:
        if since is not None:
            for item in self.entries:
                if item.index >= since:
                    self._live.send_nowait(item)
        else:
            self._live.send_nowait(Snapshot(state=self.fixed_state))
        yield self._receive

    def _raise(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def submit(
        self, command: Command, timeout_seconds: float = 30.0, command_id: CommandId | None = None
    ) -> Accepted | Refused:
        self._raise()
        self.submitted.append(command)
        if self.refusal is not None:
            return self.refusal
        return Accepted(
            id=command_id or CommandId("c-0000000000000001"),
            index=self.fixed_state.index,
            subject="i-5a11c0de",
        )

    async def plan(self, model: ModelId, wish: Wish) -> Plan:
        self._raise()
        self.wishes.append(wish)
        return plan_for(self.fixed_state, model, wish)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationItem, None]:
        self._raise()
        self.requests.append(request)
        yield Prefilled(done=12, total=12)
        pieces = [self.answer[i : i + 7] for i in range(0, len(self.answer), 7)]
        for place, piece in enumerate(pieces):
            yield Delta(index=place, text=piece, tokens=(place,))
        usage = Usage(
            prompt_tokens=12, output_tokens=len(pieces), prefill_seconds=0.42, decode_seconds=2.5
        )
        yield Finished(reason=FinishReason.STOP, usage=usage)

    async def order(
        self, node: NodeId, order: ModelOrder, timeout_seconds: float = 30.0
    ) -> OrderDone:
        self.orders.append((node, order))
        if self.failure is not None:
            raise self.failure
        return OrderDone(words="done")

    async def search_models(self, text: str) -> list[HubModel]:
        return [each for each in self.found if text in each.model]

    async def describe_model(self, model: ModelId, revision: str = "main") -> ModelCard:
        if self.hub_card is None:
            raise NotFoundError.because("hub_not_found", f"{model} is not on the hub", "look again")
        return msgspec.structs.replace(self.hub_card, model=model)

    async def cancel(self, request: RequestId) -> bool:
        self.cancelled.append(request)
        return True

    async def invite(self, lifetime_seconds: float = 600.0) -> Invite:
        self._raise()
        return Invite(
            code="7KQ2M-XW4DA-P3RTE-9HBNC",
            expires_at=NOW + lifetime_seconds,
            addresses=(Address("10.0.0.11", 52416), Address("192.168.1.8", 52416)),
        )

    async def join(self, code: str, peer: Address | None = None) -> None:
        self._raise()
        self.joined.append((code, peer))

    async def ask_to_join(self, peer: Address | None = None) -> JoinRequest:
        self._raise()
        return make_join_request()

    async def finish_join(
        self, request: str, *, matches: bool, timeout_seconds: float = 600.0
    ) -> None:
        self._raise()
        self.finished.append((request, matches))

    async def judge_join(self, request: str, *, approve: bool) -> JoinRequest:
        self._raise()
        self.judged.append((request, approve))
        return make_join_request()

    async def rotate(self) -> Rotation:
        """Always the same."""
        return Rotation(withdrawn=2, members_told=1, secret_file="/etc/exoctl/secret")

    async def ping(self, peer: NodeId, *, bandwidth: bool = False) -> LinkRecord:
        self._raise()
        return make_link(peer, bandwidth=bandwidth)

    async def leave(self) -> None:
        self._raise()

    async def logs(self, source: str = "", lines_max: int = 1000) -> list[LogLine]:
        self._raise()
        lines = [line for line in LOG if source in ("", line.source)]
        return lines[-lines_max:]

    async def log_sources(self) -> list[str]:
        return sorted({line.source for line in LOG})

    async def wait_instance(self, instance: InstanceId, timeout_seconds: float) -> None:
        if instance not in self.fixed_state.instances:
            raise NotFoundError.because("instance_not_found", f"no instance {instance}")

    async def shutdown(self) -> None:
        self.ended = True


def _line(second: float, level: str, source: str, text: str) -> LogLine:
    return LogLine(at=NOW - 60 + second, level=level, source=source, text=text)


LOG = [
    _line(0.1, "info", "election", "term 12: studio-a masters, 3 of 3 nodes agree"),
    _line(0.9, "info", "router", "session 12/studio-a adopted, replay from 181,990"),
    _line(1.2, "info", "worker", "runner r-5a11c000 started, process 5000"),
    _line(2.0, "warning", "router", "gap 182,403 to 182,414 from mini-1, replay asked, attempt 1"),
    _line(2.5, "info", "router", "gap closed after 0.5 s"),
    _line(3.6, "error", "runner r-0b1d9e00", "killed: out of memory"),
    _line(3.7, "output", "runner r-0b1d9e00", "RuntimeError: 14.2 GB asked, 13.9 GB there"),
    _line(4.0, "debug", "membership", "heartbeat from mbp-max, 0.06 ms"),
]
