"""Small fleets for tests of decisions: nodes with memory and links, and models that lie on them."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import msgspec

from node.core.apply import apply
from node.core.facts import Facts
from node.model.card import LayerBytes, ModelCard
from node.model.command import Command, CommandRequest
from node.model.event import CommandDecided, Event
from node.model.ids import CommandId, InstanceId, ModelId, NodeId, RunnerId
from node.model.instance import Instance, RunnerPhase, RunnerRecord, Shard
from node.model.machine import Address, Machine, NodeRecord
from node.model.register import HeldModel, LinkRecord, MachineFigures, RunnerProgress
from node.model.session import Entry, EventId, Session
from node.model.state import State

MIB = 1024**2
GIB = 1024**3
SESSION = Session(term=1, master=NodeId("a"), incarnation=1)
HERE = Address("10.0.0.1", 52416)

MAC = Machine(
    hostname="mac",
    system="darwin",
    release="26.3",
    architecture="arm64",
    chip="Apple M4",
    cores=10,
    memory_bytes=16 * GIB,
    unified_memory=True,
)
BOX = Machine(
    hostname="box",
    system="linux",
    release="6.1",
    architecture="x86_64",
    chip="Xeon",
    cores=2,
    memory_bytes=16 * GIB,
)


def card(layers: Sequence[int] = (GIB,) * 8, model: str = "m", **fields: object) -> ModelCard:
    """A card with the given bytes for each layer; no cache, no embedding unless asked."""
    kv_per_token = fields.pop("kv_per_token", 0)
    dense = fields.pop("dense", 0)
    assert isinstance(kv_per_token, int)
    assert isinstance(dense, int)
    made = ModelCard(
        model=ModelId(model),
        architecture="llama",
        source="local",
        layers=tuple(LayerBytes(size, kv_per_token, size * dense) for size in layers),
        embedding_bytes=0,
        hidden_size=64,
        activation_bytes_per_token=128,
        context_tokens_max=8192,
        parameters=1_000_000_000,
        attention_heads=4,
        kv_heads=4,
    )
    return msgspec.structs.replace(made, **fields)


def record(key: str, machine: Machine | None = MAC, **fields: object) -> NodeRecord:
    """A node whose name is its id."""
    node = NodeRecord(
        node=NodeId(key), name=key, admitted_by=NodeId("a"), admitted_index=0, machine=machine
    )
    return msgspec.structs.replace(node, **fields)


def figures(available_bytes: int, total_bytes: int = 16 * GIB) -> MachineFigures:
    """How a machine is doing, by its memory alone."""
    return MachineFigures(
        memory_bytes_total=total_bytes,
        memory_bytes_available=available_bytes,
        disk_bytes_free=0,
        disk_bytes_total=0,
        processor_fraction=0.0,
        load_average=0.0,
        node_rss_bytes=0,
    )


def link(peer: str, **fields: object) -> LinkRecord:
    """A good link to a peer."""
    made = LinkRecord(
        peer=NodeId(peer),
        address=HERE,
        up=True,
        medium="ethernet",
        rtt_seconds=0.0004,
        bits_per_second=1e9,
    )
    return msgspec.structs.replace(made, **fields)


def meshed(names: Sequence[str], **fields: object) -> dict[NodeId, dict[NodeId, LinkRecord]]:
    """Links from every node to every other."""
    return linked(list(combinations(names, 2)), **fields)


def linked(
    pairs: Sequence[tuple[str, str]], **fields: object
) -> dict[NodeId, dict[NodeId, LinkRecord]]:
    """Links between the given pairs, as both ends report them."""
    links: dict[NodeId, dict[NodeId, LinkRecord]] = {}
    for one, other in pairs:
        for near, far in ((one, other), (other, one)):
            links.setdefault(NodeId(near), {})[NodeId(far)] = link(far, **fields)
    return links


def fleet(
    available_bytes: Mapping[str, int],
    model: ModelCard,
    machine: Machine = MAC,
    total_bytes: int = 16 * GIB,
) -> tuple[State, Facts]:
    """Linked nodes, each with so much memory available, that all hold the model."""
    names = list(available_bytes)
    held = HeldModel(card=model, complete=True, bytes_on_disk=model.weight_bytes)
    state = State(session=SESSION, nodes={NodeId(name): record(name, machine) for name in names})
    facts = Facts(
        now_wall=1000.0,
        machines={
            NodeId(name): figures(available, total_bytes)
            for name, available in available_bytes.items()
        },
        held={NodeId(name): {model.model: held} for name in names},
        links=meshed(names) or {NodeId(name): {} for name in names},
    )
    return state, facts


def amend(state: State, key: str, **fields: object) -> State:
    """The state with other fields in one node's record."""
    node = msgspec.structs.replace(state.nodes[NodeId(key)], **fields)
    return msgspec.structs.replace(state, nodes={**state.nodes, node.node: node})


def entry(event: Event, index: int = 0, **fields: object) -> Entry:
    """An entry that holds the event."""
    made = Entry(
        session=SESSION,
        index=index,
        id=EventId(NodeId("a"), 1, index + 1),
        payload=msgspec.msgpack.encode(event),
    )
    return msgspec.structs.replace(made, **fields)


def fold(state: State, *events: Event) -> State:
    """The state after the events."""
    for event in events:
        state = apply(state, entry(event, state.index + 1))
    return state


def instance(names: Sequence[str] = ("a",), key: str = "i-00000001", **fields: object) -> Instance:
    """An instance with ten layers and 1 GiB on each node, its runners called `r-<node>`."""
    shards = tuple(
        Shard(
            runner=RunnerId(f"r-{name}"),
            node=NodeId(name),
            rank=rank,
            first_layer=rank * 10,
            end_layer=rank * 10 + 10,
            weight_bytes=GIB,
            cache_bytes=0,
        )
        for rank, name in enumerate(names)
    )
    made = Instance(
        instance=InstanceId(key),
        model=ModelId("m"),
        shards=shards,
        layer_count=10 * len(shards),
        context_tokens=4096,
        requested_by=NodeId("a"),
    )
    return msgspec.structs.replace(made, **fields)


def runner(
    name: str, phase: RunnerPhase, key: str = "i-00000001", **fields: object
) -> RunnerRecord:
    """What the node reports of its runner."""
    made = RunnerRecord(
        runner=RunnerId(f"r-{name}"),
        instance=InstanceId(key),
        node=NodeId(name),
        phase=phase,
    )
    return msgspec.structs.replace(made, **fields)


def progress(name: str, **fields: object) -> RunnerProgress:
    """What a runner does within its phase."""
    return msgspec.structs.replace(RunnerProgress(runner=RunnerId(f"r-{name}")), **fields)


def request(command: Command, key: str = "c-1", asked_by: str = "a") -> CommandRequest:
    """A command as it reaches the master."""
    return CommandRequest(id=CommandId(key), asked_by=NodeId(asked_by), command=command)


def decided(events: Sequence[Event], key: str = "c-1", subject: str = "") -> CommandDecided:
    """A decision with the given events."""
    return CommandDecided(
        command=CommandId(key), asked_by=NodeId("a"), events=tuple(events), subject=subject
    )


def counted() -> Callable[[int], str]:
    """Ids that count up: 00000001, 00000002, …"""
    count = 0

    def draw(characters: int) -> str:
        nonlocal count
        count += 1
        return f"{count:0{characters}x}"

    return draw
