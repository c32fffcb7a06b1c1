"""A node in memory only: what a test says it is, and a record of what was asked of it."""

from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from node.handle import Invite, Lagged, LocalView, LogLine, Rotation, StreamItem
from node.model.card import LayerBytes, ModelCard
from node.model.command import Accepted, Command, PlaceInstance, Refused, Wish
from node.model.download import HubModel, ModelOrder, OrderDone
from node.model.errors import ExoctlError, NotFoundError, TimeoutExpiredError
from node.model.ids import CommandId, InstanceId, ModelId, NodeId, RequestId, RunnerId
from node.model.instance import Instance, RunnerPhase, RunnerRecord, Shard
from node.model.machine import Address, Machine, NodeRecord
from node.model.register import JoinRequest, LinkRecord, MachineFigures, Register, RegisterValue
from node.model.request import (
    Delta,
    Finished,
    FinishReason,
    GenerationItem,
    GenerationRequest,
    Usage,
)
from node.model.session import Entry, Session
from node.model.state import Snapshot, State
from node.model.topology import Plan

QUEUE_ITEMS_MAX = 1000
ALPHA = NodeId("a" * 52)
BETA = NodeId("b" * 52)
MODEL = ModelId("smollm2-135m-instruct")
INSTANCE = InstanceId("i-00000001")

GIB = 1024**3

Step = GenerationItem | ExoctlError | float
"""One step of a scripted generation: an item to yield, an error to raise, seconds to wait."""


def make_node(node: NodeId, name: str, index: int = 0) -> NodeRecord:
    """A described node that is up."""
    return NodeRecord(
        node=node,
        name=name,
        admitted_by=node,
        admitted_index=index,
        version="0.1.0",
        incarnation=1,
        addresses=(Address("127.0.0.1", 52416),),
        machine=Machine(
            hostname=name,
            system="darwin",
            release="25.0",
            architecture="arm64",
            chip="Apple M3 Ultra",
            cores=28,
            memory_bytes=96 * GIB,
            unified_memory=True,
            python="3.11",
            mlx="0.32.4",
        ),
    )


def make_instance(
    instance: InstanceId = INSTANCE, model: ModelId = MODEL, nodes: tuple[NodeId, ...] = (ALPHA,)
) -> Instance:
    """An instance of 30 layers, cut evenly over the nodes."""
    cuts = [30 * rank // len(nodes) for rank in range(len(nodes) + 1)]
    shards = tuple(
        Shard(
            runner=RunnerId(f"r-{instance[-4:]}000{rank}"),
            node=node,
            rank=rank,
            first_layer=cuts[rank],
            end_layer=cuts[rank + 1],
            weight_bytes=GIB,
            cache_bytes=GIB // 4,
        )
        for rank, node in enumerate(nodes)
    )
    return Instance(
        instance=instance,
        model=model,
        shards=shards,
        layer_count=30,
        context_tokens=4096,
        requested_by=nodes[0],
        placed_index=10,
        placed_at=1_700_000_000.0,
        predicted_tokens_per_second=100.0,
    )


def make_runners(
    instance: Instance, phase: RunnerPhase = RunnerPhase.READY
) -> dict[RunnerId, RunnerRecord]:
    """A record for each of the instance's runners, all in one phase."""
    return {
        shard.runner: RunnerRecord(
            runner=shard.runner,
            instance=instance.instance,
            node=shard.node,
            phase=phase,
            process_id=4000 + shard.rank,
            changed_at=1_700_000_001.0,
        )
        for shard in instance.shards
    }


def make_state(phase: RunnerPhase = RunnerPhase.READY, *, index: int = 20) -> State:
    """Two nodes, `alpha` masters, and one instance of `MODEL` on `alpha`."""
    instance = make_instance()
    return State(
        cluster_name="fake",
        session=Session(term=3, master=ALPHA, incarnation=1),
        index=index,
        nodes={ALPHA: make_node(ALPHA, "alpha"), BETA: make_node(BETA, "beta", 1)},
        in_sync=(ALPHA, BETA),
        instances={INSTANCE: instance},
        runners=make_runners(instance, phase),
        attempts={INSTANCE: 1},
    )


def make_join_request() -> JoinRequest:
    """A machine that asks to be let in, or the member that was asked."""
    return JoinRequest(
        id="j-0badc0",
        node=NodeId("m" * 52),
        name="mini",
        address=Address("10.0.0.31", 52416),
        code="281604",
        since=1_700_000_000.0,
        expires_at=1_700_000_600.0,
    )


def make_link(peer: NodeId, *, bandwidth: bool = False) -> LinkRecord:
    """A quick link."""
    return LinkRecord(
        peer=peer,
        address=Address("10.0.0.12", 52416),
        up=True,
        medium="ethernet",
        rtt_seconds=0.00025,
        bits_per_second=9.4e8 if bandwidth else None,
    )


def make_machine_figures() -> MachineFigures:
    """Figures of an idle machine."""
    return MachineFigures(
        memory_bytes_total=96 * GIB,
        memory_bytes_available=64 * GIB,
        disk_bytes_free=500 * GIB,
        disk_bytes_total=1000 * GIB,
        processor_fraction=0.25,
        load_average=1.5,
        node_rss_bytes=100 * 1024**2,
    )


def make_card(model: ModelId = MODEL) -> ModelCard:
    """A small model without tools."""
    return ModelCard(
        model=model,
        architecture="llama",
        source="embedded",
        layers=(LayerBytes(4_000_000, 1536),) * 30,
        embedding_bytes=56_000_000,
        hidden_size=576,
        activation_bytes_per_token=1152,
        context_tokens_max=8192,
        parameters=134_515_008,
        attention_heads=9,
        kv_heads=3,
    )


def make_script(text: str = "Hello there", prompt_tokens: int = 5) -> list[Step]:
    """A generation of one delta for each word."""
    words = [word if at == 0 else f" {word}" for at, word in enumerate(text.split(" "))]
    deltas: list[Step] = [Delta(index=at, text=word, tokens=(at,)) for at, word in enumerate(words)]
    usage = Usage(prompt_tokens=prompt_tokens, output_tokens=len(words))
    return [*deltas, Finished(reason=FinishReason.STOP, usage=usage)]


class FakeHandle:
    """A `NodeHandle` in memory. Everything public may be set by the test and read back."""

    def __init__(self, state: State | None = None) -> None:
        self.state: State = make_state() if state is None else state
        self.registers: dict[tuple[NodeId, str], Register] = {}
        self.entries: list[Entry] = []
        """What `subscribe(since)` may replay; `push` adds to it."""
        self.local_view = LocalView(
            node=ALPHA,
            name="alpha",
            version="0.1.0",
            process_id=4242,
            started_at=1_700_000_000.0,
            state_directory="/nowhere",
            api=None,
            cluster_address=Address("127.0.0.1", 52416),
        )
        self.orders: list[tuple[NodeId, ModelOrder]] = []
        self.found: list[HubModel] = []
        self.hub_card: ModelCard | None = None
        self.order_failure: ExoctlError | None = None
        self.commands: list[Command] = []
        """What was submitted, in order."""
        self.answers: deque[Accepted | Refused | ExoctlError] = deque()
        """What the next submits answer or raise; Accepted where it is empty."""
        self.script: list[Step] = make_script()
        """What every generation does, unless its model has an own one in `scripts`."""
        self.scripts: dict[ModelId, list[Step]] = {}
        self.generations: list[GenerationRequest] = []
        self.running: set[RequestId] = set()
        self.closed: list[RequestId] = []
        """Generations that ended, however they did."""
        self.cancelled: list[RequestId] = []
        self.plans: dict[ModelId, Plan] = {}
        self.planned: list[tuple[ModelId, Wish]] = []
        self.log_lines: list[LogLine] = []
        self.invites: list[float] = []
        self.joined: list[tuple[str, Address | None]] = []
        self.asked: list[Address | None] = []
        self.finished: list[tuple[str, bool]] = []
        self.judged: list[tuple[str, bool]] = []
        self.left = 0
        self.shut_down = 0
        self.failing: dict[str, ExoctlError] = {}
        """Method name -> what it raises from now on."""
        self.instance_failures: dict[InstanceId, ExoctlError] = {}
        self._subscribers: dict[
            MemoryObjectSendStream[StreamItem], MemoryObjectReceiveStream[StreamItem]
        ] = {}

    @property
    def subscriber_count(self) -> int:
        """Streams that are open now."""
        return len(self._subscribers)

    def set_register(self, node: NodeId, value: RegisterValue, sequence: int = 0) -> Register:
        """Put a register in place and tell subscribers; the sequence rises by itself."""
        key = (node, type(value).__name__)
        before = self.registers.get(key)
        number = sequence or (before.sequence + 1 if before else 1)
        register = Register(node=node, incarnation=1, sequence=number, value=value)
        self.registers[key] = register
        self.push(register)
        return register

    def push(self, item: StreamItem) -> None:
        """Give subscribers an item; a full one gets `Lagged` and a `Snapshot`, as a node does it.

        The state is not folded: set `state` first where it should agree.
        """
        if isinstance(item, Entry):
            self.entries.append(item)
        for send, receive in list(self._subscribers.items()):
            try:
                send.send_nowait(item)
            except anyio.WouldBlock:
                skipped = 1
                while receive.statistics().current_buffer_used:
                    receive.receive_nowait()
                    skipped += 1
                send.send_nowait(Lagged(skipped))
                send.send_nowait(Snapshot(state=self.state))

    def push_lagged(self, skipped: int) -> None:
        """Tell subscribers that they fell behind, and give them the state anew."""
        self.push(Lagged(skipped))
        self.push(Snapshot(state=self.state))

    def end_streams(self) -> None:
        """End every subscription, as a node does that stops."""
        for send in self._subscribers:
            send.close()

    def _check(self, method: str) -> None:
        failure = self.failing.get(method)
        if failure is not None:
            raise failure

    async def local(self) -> LocalView:
        """What `local_view` says."""
        self._check("local")
        return self.local_view

    @asynccontextmanager
    async def subscribe(
        self, since: int | None = None
    ) -> AsyncGenerator[MemoryObjectReceiveStream[StreamItem]]:
        """A `Snapshot`, or the kept entries from `since` on; then whatever is pushed."""
        self._check("subscribe")
        send, receive = anyio.create_memory_object_stream[StreamItem](QUEUE_ITEMS_MAX)
        for item in self._first_items(since):
            send.send_nowait(item)
        self._subscribers[send] = receive
        try:
            with receive:
                yield receive
        finally:
            del self._subscribers[send]
            send.close()

    def _first_items(self, since: int | None) -> Iterable[StreamItem]:
        kept = since is not None and (
            since == self.state.index + 1 or any(entry.index == since for entry in self.entries)
        )
        if since is None or not kept:
            return [Snapshot(state=self.state)]
        return [entry for entry in self.entries if entry.index >= since]

    async def submit(
        self, command: Command, timeout_seconds: float = 30.0, command_id: CommandId | None = None
    ) -> Accepted | Refused:
        """Record the command; answer what `answers` says next, else accept it."""
        self._check("submit")
        self.commands.append(command)
        if self.answers:
            answer = self.answers.popleft()
            if isinstance(answer, ExoctlError):
                raise answer
            return answer
        subject = getattr(command, "instance", "") or getattr(command, "node", "")
        if isinstance(command, PlaceInstance):
            subject = f"i-{len(self.commands):08x}"
        return Accepted(
            id=command_id or CommandId(f"c-{len(self.commands):016x}"),
            index=self.state.index + 1,
            subject=subject,
        )

    async def plan(self, model: ModelId, wish: Wish) -> Plan:
        """What `plans` has for the model."""
        self._check("plan")
        self.planned.append((model, wish))
        if model not in self.plans:
            raise NotFoundError.because("model_not_found", f"no node knows the model {model!r}")
        return self.plans[model]

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationItem, None]:
        """Play the model's script."""
        self.generations.append(request)
        self._check("generate")
        if all(instance.model != request.model for instance in self.state.instances.values()):
            raise NotFoundError.because("model_not_loaded", f"{request.model} has no instance")
        self.running.add(request.id)
        try:
            for step in self.scripts.get(request.model, self.script):
                if isinstance(step, (int, float)):
                    await anyio.sleep(step)
                elif isinstance(step, ExoctlError):
                    raise step
                elif request.id in self.cancelled:
                    usage = Usage(prompt_tokens=0, output_tokens=0)
                    yield Finished(reason=FinishReason.CANCELLED, usage=usage)
                    return
                else:
                    yield step
        finally:
            self.running.discard(request.id)
            self.closed.append(request.id)

    async def order(
        self, node: NodeId, order: ModelOrder, timeout_seconds: float = 30.0
    ) -> OrderDone:
        self.orders.append((node, order))
        if self.order_failure is not None:
            raise self.order_failure
        return OrderDone(words="done")

    async def search_models(self, text: str) -> list[HubModel]:
        return [each for each in self.found if text in each.model]

    async def describe_model(self, model: ModelId, revision: str = "main") -> ModelCard:
        if self.hub_card is None:
            raise NotFoundError.because("hub_not_found", f"{model} is not on the hub", "look again")
        return msgspec.structs.replace(self.hub_card, model=model)

    async def cancel(self, request: RequestId) -> bool:
        """Make a running generation end at its next step."""
        self._check("cancel")
        self.cancelled.append(request)
        return request in self.running

    async def invite(self, lifetime_seconds: float = 600.0) -> Invite:
        """Always the same code."""
        self._check("invite")
        self.invites.append(lifetime_seconds)
        return Invite(
            code="AAAAA-BBBBB-CCCCC-DDDDD",
            expires_at=1_700_000_000.0 + lifetime_seconds,
            addresses=(Address("127.0.0.1", 52416),),
        )

    async def join(self, code: str, peer: Address | None = None) -> None:
        """Record the code."""
        self._check("join")
        self.joined.append((code, peer))

    async def ask_to_join(self, peer: Address | None = None) -> JoinRequest:
        """Always the same request."""
        self._check("ask_to_join")
        self.asked.append(peer)
        return make_join_request()

    async def finish_join(
        self, request: str, *, matches: bool, timeout_seconds: float = 600.0
    ) -> None:
        """Record what came of it."""
        self._check("finish_join")
        self.finished.append((request, matches))

    async def judge_join(self, request: str, *, approve: bool) -> JoinRequest:
        """Record the decision."""
        self._check("judge_join")
        self.judged.append((request, approve))
        return make_join_request()

    async def rotate(self) -> Rotation:
        """Always the same."""
        return Rotation(withdrawn=2, members_told=1, secret_file="/etc/exoctl/secret")

    async def ping(self, peer: NodeId, *, bandwidth: bool = False) -> LinkRecord:
        """Always the same figures."""
        self._check("ping")
        return make_link(peer, bandwidth=bandwidth)

    async def leave(self) -> None:
        """Count the call."""
        self._check("leave")
        self.left += 1

    async def logs(self, source: str = "", lines_max: int = 1000) -> list[LogLine]:
        """The last of `log_lines`."""
        self._check("logs")
        chosen = [line for line in self.log_lines if source in ("", line.source)]
        return chosen[-lines_max:]

    async def log_sources(self) -> list[str]:
        """The sources that `log_lines` has."""
        self._check("log_sources")
        return sorted({line.source for line in self.log_lines})

    async def wait_instance(self, instance: InstanceId, timeout_seconds: float) -> None:
        """Wait until the state's runners of the instance are all ready."""
        self._check("wait_instance")
        with anyio.move_on_after(timeout_seconds):
            while True:
                if instance in self.instance_failures:
                    raise self.instance_failures[instance]
                if instance not in self.state.instances:
                    raise NotFoundError.because("instance_not_found", f"no instance {instance}")
                if self._is_ready(instance):
                    return
                await anyio.sleep(0.01)
        raise TimeoutExpiredError.because(
            "instance_not_ready", f"{instance} was not ready within {timeout_seconds:g} s"
        )

    def _is_ready(self, instance: InstanceId) -> bool:
        runners = [r for r in self.state.runners.values() if r.instance == instance]
        return bool(runners) and all(r.phase is RunnerPhase.READY for r in runners)

    async def shutdown(self) -> None:
        """Count the call."""
        self._check("shutdown")
        self.shut_down += 1


def without_instances(state: State) -> State:
    """The same state with nothing placed."""
    return msgspec.structs.replace(state, instances={}, runners={}, attempts={})
