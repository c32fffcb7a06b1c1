"""Instances: one model placed on nodes, shard by shard, and where their runners are in life."""

import enum

import msgspec

from node.model.command import Wish
from node.model.errors import Failure
from node.model.ids import InstanceId, ModelId, NodeId, RunnerId


class WeightFormat(enum.Enum):
    """How a runner holds the weights in memory."""

    AS_STORED = "as_stored"
    DENSE = "dense"
    """Unpacked to float32: faster on a Linux processor, at several times the memory."""


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """One node's part of an instance: layers [first_layer, end_layer)."""

    runner: RunnerId
    node: NodeId
    rank: int
    """Rank 0 embeds, decides and samples; others hold layers only."""
    first_layer: int
    end_layer: int
    weight_bytes: int
    """Memory promised for weights in the chosen format."""
    cache_bytes: int
    """Memory promised for key/value cache at the placed context."""


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One model placed on nodes. Ranks are the order of `shards`."""

    instance: InstanceId
    model: ModelId
    shards: tuple[Shard, ...]
    layer_count: int
    context_tokens: int
    weight_format: WeightFormat = WeightFormat.AS_STORED
    transport: str = "tcp"
    transport_reason: str = ""
    requested_by: NodeId
    placed_index: int = 0
    placed_at: float = 0.0
    """Wall clock, seconds since 1970."""
    predicted_tokens_per_second: float = 0.0
    removing: bool = False
    """Stop was accepted; it goes once its runners are stopped."""
    wish: Wish = Wish()
    """What was asked for, by which it is placed anew where a node of it is lost."""
    replaces: InstanceId | None = None
    """The instance in whose place it was put."""
    replacements: int = 0
    """How many times in a row that has happened, up to this one."""
    stranded: Failure | None = None
    """Why it is not placed anew, though a node of it is lost."""
    predicted_prompt_tokens_per_second: float = 0.0
    """How fast a prompt is read; as the prediction above, from what was measured where it was."""
    table_tokens_per_second: float = 0.0
    """What the table of chips alone says: measurements are held against it."""
    table_prompt_tokens_per_second: float = 0.0
    tensor: bool = False
    """Each shard is a part of every layer, and all compute each step together."""

    @property
    def strategy(self) -> str:
        """`single`, `pipeline` or `tensor`."""
        if len(self.shards) == 1:
            return "single"
        return "tensor" if self.tensor else "pipeline"

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """Nodes in rank order."""
        return tuple(shard.node for shard in self.shards)


class RunnerPhase(enum.Enum):
    """Where a runner is in its life; each phase but READY and the last two has a deadline."""

    STARTING = "starting"
    """The child process is being started and imports mlx."""
    CONNECTING = "connecting"
    """It listens for its neighbours and waits for their addresses."""
    LOADING = "loading"
    WARMING_UP = "warming_up"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class StageAddress(msgspec.Struct, frozen=True):
    """Where a runner listens for the stage before it in the pipeline."""

    host: str
    port: int
    certificate: bytes = b""
    """DER of the runner's throw-away certificate, pinned by its neighbours; empty on loopback."""


class RunnerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The last transition that a runner's node reported."""

    runner: RunnerId
    instance: InstanceId
    node: NodeId
    phase: RunnerPhase
    attempt: int = 1
    """Which start of this runner's process, from 1; rises at every restart."""
    address: StageAddress | None = None
    process_id: int = 0
    failure: Failure | None = None
    changed_at: float = 0.0
    """Wall clock, seconds since 1970."""
