"""Registers: the latest value per (node, kind), never logged, gone when the node is lost."""

import msgspec

from node.model.card import ModelCard
from node.model.errors import Failure
from node.model.ids import ModelId, NodeId, RunnerId
from node.model.machine import Address
from node.model.request import RequestRecord
from node.model.session import NO_SESSION, Session


class MachineFigures(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """How a machine is doing now."""

    memory_bytes_total: int
    memory_bytes_available: int
    disk_bytes_free: int
    disk_bytes_total: int
    processor_fraction: float
    load_average: float
    node_rss_bytes: int
    gpu_fraction: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None


class RouterFigures(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Where a node is in the ordered log."""

    role: str
    """`looking`, `following`, `mastering`."""
    session: Session = NO_SESSION
    index_last: int = -1
    """Last index in its log, committed or not."""
    index_committed: int = -1
    index_applied: int = -1
    buffered: int = 0
    gap_first: int = -1
    gap_last: int = -1
    unacknowledged: int = 0
    oldest_seconds: float = 0.0
    replay_attempts: int = 0
    log_bytes: int = 0
    written: int = 0
    """Events this node has written in this life."""
    elections: int = 0
    disk_full: bool = False
    disk_trouble: str = ""
    """What is wrong with the disk of its log; empty while all is well."""
    state_hash: str = ""
    """Of the whole state at `index_applied`: nodes at the same index have the same."""


class HeldModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that lies on a node, whole or on its way."""

    card: ModelCard
    complete: bool
    bytes_on_disk: int
    fraction: float = 1.0
    """How far it is fetched or converted, 0 to 1."""
    failure: Failure | None = None


class ModelFigures(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The models on a node."""

    held: tuple[HeldModel, ...] = ()


class DownloadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A model on its way to a node: fetched, or made ready out of its package."""

    model: ModelId
    phase: str
    """`queued`, `resolving`, `downloading`, `converting`, `paused`, `verifying`, `complete` or
    `failed`."""
    bytes_done: int
    bytes_total: int
    """0 while it is not known."""
    bytes_per_second: float = 0.0
    source: str = ""
    failure: Failure | None = None
    revision: str = ""
    commit: str = ""
    priority: int = 0
    attempts: int = 0
    """Failures in a row without a byte of progress between them."""
    retry_at: float = 0.0
    """Wall clock, seconds since 1970: when a failed one is tried again; 0: not by itself."""
    queued_at: float = 0.0
    bytes_from_hub: int = 0
    bytes_from_peers: int = 0
    files_done: int = 0
    files_total: int = 0


class DownloadFigures(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Downloads on a node, in the order of its queue; finished ones stay for a while."""

    downloads: tuple[DownloadRecord, ...] = ()


class RunnerProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner does within its phase."""

    runner: RunnerId
    layers_loaded: int = 0
    layers_total: int = 0
    requests_running: int = 0
    requests_queued: int = 0
    tokens_per_second: float = 0.0
    """Over the last seconds; 0 when idle."""
    steps: int = 0
    """Grows with every step of the engine: busy without growth means stuck."""
    memory_bytes: int = 0
    cache_bytes: int = 0


class RunnerFigures(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The runners of a node."""

    runners: tuple[RunnerProgress, ...] = ()


class RequestFigures(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Generations that this node took: the running ones, and the last that ended."""

    requests: tuple[RequestRecord, ...] = ()
    ended_total: int = 0
    failed_total: int = 0


class LinkRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A link of this node to a peer, as this node sees it."""

    peer: NodeId
    address: Address
    up: bool
    medium: str = ""
    """`loopback`, `ethernet`, `wifi`, `thunderbolt`, `vpn`; empty where unknown."""
    rtt_seconds: float | None = None
    bits_per_second: float | None = None
    since: float = 0.0
    failure: Failure | None = None
    """Why it is down."""
    clock_skew_seconds: float | None = None
    """How far the peer's clock was ahead of this node's at the greeting."""
    via: NodeId = NodeId("")
    """The member that passes everything on, where the two can't reach each other."""


class LinkFigures(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The links of a node, and what it hears but has no link with."""

    links: tuple[LinkRecord, ...] = ()
    heard: tuple[LinkRecord, ...] = ()
    """Nodes heard on the network but not of this cluster, each with the reason in `failure`."""
    discovery: str = ""
    """`on`, `off`, or why it does not work."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that asks to be let in, until people on both sides have compared the code."""

    id: str
    node: NodeId
    """The other side: who asks, or (in `asking`) who was asked."""
    name: str
    address: Address
    code: str
    """Six digits that both screens show."""
    since: float
    """Wall clock, seconds since 1970."""
    expires_at: float
    version: str = ""
    is_confirmed: bool = False
    """The codes were found equal on the side that asks."""


class JoinFigures(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Who asks this node to be let in, and whom it asks itself."""

    requests: tuple[JoinRequest, ...] = ()
    asking: JoinRequest | None = None


RegisterValue = (
    MachineFigures
    | RouterFigures
    | ModelFigures
    | DownloadFigures
    | RunnerFigures
    | RequestFigures
    | LinkFigures
    | JoinFigures
)


class Register(msgspec.Struct, frozen=True, kw_only=True):
    """A register's value with its version: a later (incarnation, sequence) wins."""

    node: NodeId
    incarnation: int
    sequence: int
    value: RegisterValue
