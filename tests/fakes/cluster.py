"""Whole clusters as values: a `State` with the registers that belong to it, for anyone's tests."""

import base64
import hashlib
from collections.abc import Mapping

import msgspec

from node.model.card import LayerBytes, ModelCard
from node.model.errors import Failure
from node.model.ids import ClusterId, InstanceId, ModelId, NodeId, RequestId, RunnerId
from node.model.instance import Instance, RunnerPhase, RunnerRecord, Shard
from node.model.machine import Address, Machine, NodeRecord
from node.model.register import (
    DownloadFigures,
    DownloadRecord,
    HeldModel,
    LinkFigures,
    LinkRecord,
    MachineFigures,
    ModelFigures,
    Register,
    RegisterValue,
    RequestFigures,
    RouterFigures,
    RunnerFigures,
    RunnerProgress,
)
from node.model.request import RequestPhase, RequestRecord
from node.model.session import Session
from node.model.state import State

GIB = 1024**3
NOW = 1_790_000_000.0
"""Wall clock of every fixture."""

Registers = Mapping[tuple[NodeId, str], Register]
Cluster = tuple[State, Registers]


class Mac(msgspec.Struct, frozen=True):
    """What a fixture says of one machine."""

    name: str
    chip: str
    memory_gib: int
    memory_used: float
    gpu: float
    celsius: float
    watts: float
    disk_free: int


class Progress(msgspec.Struct, frozen=True):
    """How far a fixture's download is."""

    phase: str
    fraction: float
    speed: float = 0.0
    source: str = ""
    failure: Failure | None = None


MACS = {
    mac.name: mac
    for mac in (
        Mac("studio-a", "Apple M3 Ultra", 192, 0.51, 0.62, 51, 96, 1_200_000_000_000),
        Mac("studio-b", "Apple M3 Ultra", 192, 0.83, 0.58, 57, 101, 900_000_000_000),
        Mac("mbp-max", "Apple M4 Max", 64, 0.89, 0.71, 45, 61, 210_000_000_000),
        Mac("mini-1", "Apple M4 Pro", 32, 0.57, 0.44, 75, 38, 88_000_000_000),
        Mac("mini-2", "Apple M4", 16, 0.34, 0.41, 54, 35, 41_000_000_000),
    )
}


def node_id(name: str) -> NodeId:
    """The id of the fixture node of that name."""
    digest = hashlib.sha256(name.encode()).digest()
    return NodeId(base64.b32encode(digest).decode().rstrip("=").lower())


def card(name: str, layers: int, gigabytes: float, parameters: float) -> ModelCard:
    """A model card of about the given size."""
    each = int(gigabytes * 1e9 / (layers + 2))
    return ModelCard(
        model=ModelId(name),
        architecture=name.split("-", maxsplit=1)[0],
        source="local",
        layers=(LayerBytes(each, 4096),) * layers,
        embedding_bytes=2 * each,
        hidden_size=4096,
        activation_bytes_per_token=8192,
        context_tokens_max=32_768,
        parameters=int(parameters * 1e9),
        quantisation_bits=4,
        attention_heads=32,
        kv_heads=8,
    )


CARDS = {
    item.model: item
    for item in (
        card("qwen3-235b-a22b-4bit", 94, 132.0, 235),
        card("llama-3.3-70b-4bit", 80, 40.1, 70),
        card("gpt-oss-120b", 36, 62.1, 117),
        card("phi-4-4bit", 40, 8.2, 14.7),
        card("smollm2-135m-instruct", 30, 0.27, 0.135),
    )
}


class Builder:
    """Collects nodes, instances and registers into one cluster."""

    def __init__(self, names: tuple[str, ...], term: int = 12, index: int = 182_441) -> None:
        self.names = names
        self.ids = {name: node_id(name) for name in names}
        session = Session(term=term, master=self.ids[names[0]], incarnation=3)
        nodes = {self.ids[n]: self._record(n, place) for place, n in enumerate(names)}
        self.state = State(
            cluster=ClusterId("5f" * 16),
            cluster_name="lab",
            session=session,
            index=index,
            nodes=nodes,
            in_sync=tuple(nodes),
        )
        self.registers: dict[tuple[NodeId, str], Register] = {}
        for name in names:
            self.put(name, _figures(MACS[name]))
            self.put(name, self._router(name))

    def _record(self, name: str, place: int) -> NodeRecord:
        mac = MACS[name]
        machine = Machine(
            hostname=name,
            system="darwin",
            release="26.3",
            architecture="arm64",
            chip=mac.chip,
            cores=32,
            memory_bytes=mac.memory_gib * GIB,
            unified_memory=True,
            python="3.11.14",
            mlx="0.32.4",
        )
        return NodeRecord(
            node=self.ids[name],
            name=name,
            admitted_by=self.ids[self.names[0]],
            admitted_index=place * 3,
            machine=machine,
            version="0.1.0",
            addresses=(Address(f"10.0.0.{11 + place}", 52416),),
            incarnation=1,
        )

    def _router(self, name: str) -> RouterFigures:
        index = self.state.index
        return RouterFigures(
            role="mastering" if name == self.names[0] else "following",
            session=self.state.session,
            index_last=index,
            index_committed=index,
            index_applied=index,
            log_bytes=48_200_000,
            written=20_114 if name == self.names[0] else 8_000 + 97 * len(name),
            elections=2,
        )

    def put(self, name: str, value: RegisterValue) -> None:
        """Set one of a node's registers."""
        node = self.ids[name]
        kind = type(value).__name__
        self.registers[node, kind] = Register(node=node, incarnation=1, sequence=1, value=value)

    def amend(self, **changes: object) -> None:
        """Replace fields of the state."""
        self.state = msgspec.structs.replace(self.state, **changes)

    def amend_node(self, name: str, **changes: object) -> None:
        """Replace fields of one node's record."""
        node = self.ids[name]
        record = msgspec.structs.replace(self.state.nodes[node], **changes)
        self.amend(nodes={**self.state.nodes, node: record})

    def link(self, a: str, b: str, medium: str, gigabits: float, milliseconds: float) -> None:
        """A link that both ends measured alike."""
        for near, far in ((a, b), (b, a)):
            record = LinkRecord(
                peer=self.ids[far],
                address=self.state.nodes[self.ids[far]].addresses[0],
                up=True,
                medium=medium,
                rtt_seconds=milliseconds / 1000,
                bits_per_second=gigabits * 1e9,
                since=NOW - 3600,
            )
            held = self.registers.get((self.ids[near], "LinkFigures"))
            links = held.value.links if held and isinstance(held.value, LinkFigures) else ()
            self.put(near, LinkFigures(links=(*links, record), discovery="on"))

    def place(
        self, tag: str, model: str, split: dict[str, int], phase: RunnerPhase, **extra: object
    ) -> InstanceId:
        """An instance over nodes with their layer counts, all runners in one phase."""
        identity = InstanceId(f"i-{tag}")
        shards: list[Shard] = []
        runners = dict(self.state.runners)
        first = 0
        each = CARDS[ModelId(model)].layers[0].weights
        for rank, (name, count) in enumerate(split.items()):
            runner = RunnerId(f"r-{tag[:6]}{rank:02d}")
            shards.append(
                Shard(
                    runner=runner,
                    node=self.ids[name],
                    rank=rank,
                    first_layer=first,
                    end_layer=first + count,
                    weight_bytes=count * each,
                    cache_bytes=count * 16 * 1024**2,
                )
            )
            runners[runner] = RunnerRecord(
                runner=runner,
                instance=identity,
                node=self.ids[name],
                phase=phase,
                process_id=5000 + rank,
                changed_at=NOW - 11_520,
            )
            first += count
        instance = Instance(
            instance=identity,
            model=ModelId(model),
            shards=tuple(shards),
            layer_count=first,
            context_tokens=8192,
            requested_by=self.ids[self.names[0]],
            placed_index=self.state.index - 40,
            placed_at=NOW - 11_600,
            predicted_tokens_per_second=29.0,
        )
        instance = msgspec.structs.replace(instance, **extra)
        self.amend(
            instances={**self.state.instances, identity: instance},
            runners=runners,
            attempts={**self.state.attempts, identity: 1},
        )
        return identity

    def progress(self, instance: InstanceId, **figures: float) -> None:
        """Say how the runners of an instance get on."""
        for shard in self.state.instances[instance].shards:
            name = self.state.nodes[shard.node].name
            held = self.registers.get((shard.node, "RunnerFigures"))
            runners = held.value.runners if held and isinstance(held.value, RunnerFigures) else ()
            total = shard.end_layer - shard.first_layer
            loaded = int(total * figures.get("loaded", 1.0))
            new = RunnerProgress(
                runner=shard.runner,
                layers_loaded=loaded,
                layers_total=total,
                requests_running=int(figures.get("running", 0)) if shard.rank == 0 else 0,
                requests_queued=int(figures.get("queued", 0)) if shard.rank == 0 else 0,
                tokens_per_second=figures.get("speed", 0.0),
                steps=1000,
                memory_bytes=shard.weight_bytes + shard.cache_bytes,
                cache_bytes=shard.cache_bytes,
            )
            self.put(name, RunnerFigures(runners=(*runners, new)))

    def fail(self, instance: InstanceId, failure: Failure) -> None:
        """Fail the first runner of an instance."""
        shard = self.state.instances[instance].shards[0]
        record = msgspec.structs.replace(
            self.state.runners[shard.runner], phase=RunnerPhase.FAILED, failure=failure
        )
        self.amend(runners={**self.state.runners, shard.runner: record})

    def hold(self, name: str, *models: str) -> None:
        """Put whole models on a node's disk."""
        held = tuple(
            HeldModel(
                card=CARDS[ModelId(m)],
                complete=True,
                bytes_on_disk=CARDS[ModelId(m)].weight_bytes,
            )
            for m in models
        )
        self.put(name, ModelFigures(held=held))

    def build(self) -> Cluster:
        """The cluster so far."""
        return self.state, dict(self.registers)


def _figures(mac: Mac) -> MachineFigures:
    total = mac.memory_gib * GIB
    return MachineFigures(
        memory_bytes_total=total,
        memory_bytes_available=int(total * (1 - mac.memory_used)),
        disk_bytes_free=mac.disk_free,
        disk_bytes_total=2_000_000_000_000,
        processor_fraction=mac.gpu / 3,
        load_average=2.0,
        node_rss_bytes=90 * 1024**2,
        gpu_fraction=mac.gpu,
        temperature_celsius=mac.celsius,
        power_watts=mac.watts,
    )


def _request(
    builder: Builder, instance: InstanceId, tag: str, phase: RequestPhase
) -> RequestRecord:
    return RequestRecord(
        request=RequestId(f"q-{tag}"),
        model=builder.state.instances[instance].model,
        instance=instance,
        taken_by=builder.ids[builder.names[0]],
        phase=phase,
        prompt_tokens=812,
        prefilled_tokens=812 if phase is RequestPhase.DECODE else 406,
        output_tokens=421 if phase is RequestPhase.DECODE else 0,
        started_at=NOW - 14,
        first_token_seconds=0.42 if phase is RequestPhase.DECODE else 0.0,
        tokens_per_second=31.4 if phase is RequestPhase.DECODE else 0.0,
    )


def _busy(builder: Builder, instance: InstanceId, speed: float) -> None:
    builder.progress(instance, running=2, queued=1, speed=speed)
    requests = (
        _request(builder, instance, "91ab0c44d0e2f731", RequestPhase.DECODE),
        _request(builder, instance, "02fe77aa51c3b900", RequestPhase.PREFILL),
        _request(builder, instance, "7d10c3e5524fa8b6", RequestPhase.QUEUED),
    )
    builder.put(
        builder.names[0], RequestFigures(requests=requests, ended_total=318, failed_total=2)
    )


def lone_node() -> Cluster:
    """A fresh cluster of one: nothing placed, one model on disk."""
    builder = Builder(("studio-a",), term=1, index=3)
    builder.hold("studio-a", "smollm2-135m-instruct")
    builder.put("studio-a", LinkFigures(discovery="on"))
    return builder.build()


def three_node_builder() -> Builder:
    """`three_node_cluster` still open for changes."""
    builder = Builder(("studio-a", "mbp-max", "mini-1"))
    builder.link("studio-a", "mbp-max", "thunderbolt", 58.9, 0.06)
    builder.link("mbp-max", "mini-1", "ethernet", 0.94, 1.2)
    builder.link("studio-a", "mini-1", "ethernet", 9.4, 0.31)
    builder.hold("studio-a", "llama-3.3-70b-4bit", "phi-4-4bit", "smollm2-135m-instruct")
    builder.hold("mbp-max", "llama-3.3-70b-4bit", "smollm2-135m-instruct")
    builder.hold("mini-1", "llama-3.3-70b-4bit", "smollm2-135m-instruct")
    return builder


def three_node_cluster() -> Cluster:
    """Three nodes, one model that serves two requests over all of them, nothing wrong."""
    builder = three_node_builder()
    split = {"studio-a": 48, "mbp-max": 22, "mini-1": 10}
    instance = builder.place("5a11c0de", "llama-3.3-70b-4bit", split, RunnerPhase.READY)
    _busy(builder, instance, 31.4)
    return builder.build()


def five_node_builder() -> Builder:
    """`five_node_cluster` still open for changes."""
    builder = Builder(tuple(MACS))
    builder.link("studio-a", "studio-b", "thunderbolt", 61.2, 0.05)
    builder.link("studio-b", "mbp-max", "thunderbolt", 58.9, 0.06)
    builder.link("mbp-max", "mini-1", "ethernet", 0.94, 1.2)
    builder.link("mini-1", "mini-2", "ethernet", 9.4, 0.31)
    builder.link("mini-2", "studio-a", "wifi", 0.71, 4.2)
    builder.link("studio-a", "mini-1", "ethernet", 9.4, 0.28)
    builder.hold("studio-a", "qwen3-235b-a22b-4bit", "llama-3.3-70b-4bit", "phi-4-4bit")
    builder.hold("studio-b", "qwen3-235b-a22b-4bit", "llama-3.3-70b-4bit")
    for name in ("mbp-max", "mini-1", "mini-2"):
        builder.hold(name, "qwen3-235b-a22b-4bit", "phi-4-4bit")
    split = {"studio-a": 28, "studio-b": 28, "mbp-max": 18, "mini-1": 11, "mini-2": 9}
    busy = builder.place("7f2c81d0", "qwen3-235b-a22b-4bit", split, RunnerPhase.READY)
    _busy(builder, busy, 31.4)
    loading = builder.place(
        "02de4411", "llama-3.3-70b-4bit", {"studio-a": 40, "studio-b": 40}, RunnerPhase.LOADING
    )
    builder.progress(loading, loaded=0.51)
    failed = builder.place("0b1d9e21", "phi-4-4bit", {"mini-2": 40}, RunnerPhase.READY)
    builder.fail(
        failed,
        Failure(
            code="runner_out_of_memory",
            message="runner r-0b1d9e00 ended: 14.2 GB asked, 13.9 GB there",
            remedy="stop another instance on mini-2, or place on more nodes",
            node="mini-2",
        ),
    )
    return builder


def five_node_cluster() -> Cluster:
    """Five nodes: one model serving, one loading, one failed; downloads in every phase."""
    builder = five_node_builder()
    gated = Failure(
        code="hub_forbidden",
        message="403: owner/gemma-3-27b is gated",
        remedy="set HF_TOKEN to a token that may read it",
        node="studio-b",
    )
    gpt = "gpt-oss-120b"
    _download(builder, "mini-1", gpt, Progress("downloading", 0.42, 118e6, "peer studio-a"))
    _download(builder, "mini-2", gpt, Progress("downloading", 0.17, 111e6, "hub"))
    _download(builder, "mbp-max", gpt, Progress("queued", 0.0))
    failed = Progress("failed", 0.61, 0.0, "hub", gated)
    _download(builder, "studio-b", "gemma-3-27b-4bit", failed)
    _download(builder, "studio-a", "llama-3.3-70b-4bit", Progress("complete", 1.0, 0.0, "hub"))
    return builder.build()


def _download(builder: Builder, name: str, model: str, progress: Progress) -> None:
    total = 62_100_000_000
    record = DownloadRecord(
        model=ModelId(model),
        phase=progress.phase,
        bytes_done=int(total * progress.fraction),
        bytes_total=total,
        bytes_per_second=progress.speed,
        source=progress.source,
        failure=progress.failure,
    )
    builder.put(name, DownloadFigures(downloads=(record,)))


def node_lost() -> Cluster:
    """Three nodes, of which mini-1 stopped answering while it held a shard."""
    builder = three_node_builder()
    split = {"studio-a": 48, "mbp-max": 22, "mini-1": 10}
    builder.place("5a11c0de", "llama-3.3-70b-4bit", split, RunnerPhase.READY)
    builder.amend_node("mini-1", lost=True, lost_reason="no heartbeat for 3.0 s", lost_at=NOW - 6.2)
    for kind in ("MachineFigures", "RouterFigures", "LinkFigures", "RunnerFigures"):
        builder.registers.pop((builder.ids["mini-1"], kind), None)
    return builder.build()


def electing() -> Cluster:
    """Three nodes that lost their master and look for a new one; seen from mbp-max."""
    builder = three_node_builder()
    split = {"studio-a": 48, "mbp-max": 22, "mini-1": 10}
    builder.place("5a11c0de", "llama-3.3-70b-4bit", split, RunnerPhase.READY)
    for kind in ("MachineFigures", "RouterFigures", "LinkFigures"):
        builder.registers.pop((builder.ids["studio-a"], kind), None)
    for name in ("mbp-max", "mini-1"):
        held = builder.registers[builder.ids[name], "RouterFigures"].value
        assert isinstance(held, RouterFigures)
        builder.put(name, msgspec.structs.replace(held, role="looking", unacknowledged=2))
    return builder.build()


def loading() -> Cluster:
    """Three nodes with an instance whose layers are being loaded."""
    builder = three_node_builder()
    split = {"studio-a": 48, "mbp-max": 22, "mini-1": 10}
    instance = builder.place("5a11c0de", "llama-3.3-70b-4bit", split, RunnerPhase.LOADING)
    builder.progress(instance, loaded=0.51)
    return builder.build()


def no_placement() -> Cluster:
    """Three nodes with models on disk and nothing placed."""
    return three_node_builder().build()
