"""Rows: what the panes draw. Values only, made by the modules beside this one."""

from typing import Literal

import msgspec

from node.model.ids import InstanceId, ModelId, NodeId, RequestId, RunnerId
from tui.viewmodel import glyphs

Level = Literal["ok", "busy", "warn", "bad", "idle"]
"""The ink of a status; a symbol and a word always go with it."""

SYMBOLS: dict[Level, str] = {
    "ok": glyphs.FULL_CIRCLE,
    "busy": glyphs.OPEN_CIRCLE,
    "warn": glyphs.UP,
    "bad": glyphs.CROSS,
    "idle": glyphs.DOT,
}


class Note(msgspec.Struct, frozen=True):
    """Something about a node that a person should know, and the next key or command."""

    text: str
    key: str


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    node: NodeId
    name: str
    hue: str
    level: Level
    word: str
    is_master: bool = False
    is_here: bool = False
    has_figures: bool = False
    memory_used: int = 0
    memory_total: int = 0
    load_label: str = "cpu"
    load: float = 0.0
    celsius: float | None = None
    watts: float | None = None
    chip: str = ""
    layers: str = ""
    layer_count: int = 0
    speed: float = 0.0
    disk_free: int = 0
    system: str = ""
    version: str = ""
    applied: int = -1
    lag: int = 0
    notes: tuple[Note, ...] = ()
    labels: str = ""
    """As `room=cellar owner=ann`."""

    @property
    def memory_fraction(self) -> float:
        """Part of the memory in use."""
        return self.memory_used / self.memory_total if self.memory_total else 0.0


class LinkRow(msgspec.Struct, frozen=True, kw_only=True):
    """A link between two nodes, both directions in one."""

    source: NodeId
    target: NodeId
    medium: str = ""
    bits_per_second: float | None = None
    rtt_seconds: float | None = None
    up: bool = True
    one_way: bool = False
    note: str = ""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A node's run of layers within an instance."""

    node: NodeId
    name: str
    hue: str
    first_layer: int
    end_layer: int
    runner: RunnerId = RunnerId("")
    word: str = ""

    @property
    def layer_count(self) -> int:
        """Number of layers."""
        return self.end_layer - self.first_layer


class PlacementRow(msgspec.Struct, frozen=True, kw_only=True):
    """One instance."""

    instance: InstanceId
    model: ModelId
    level: Level
    word: str
    detail: str = ""
    ready: bool = False
    speed: float = 0.0
    running: int = 0
    queued: int = 0
    transport: str = ""
    strategy: str = ""
    runs: tuple[Run, ...] = ()
    layer_count: int = 0
    layers_loaded: int = 0
    context_tokens: int = 0
    memory_bytes: int = 0
    up_seconds: float = 0.0
    first_token_seconds: float = 0.0
    predicted_speed: float = 0.0
    last_speed: float = 0.0
    """Of the newest request that was measured."""
    last_prompt_tokens: int = 0
    """How long the prompt before the last first token was, without what was cached."""
    predicted_first_seconds: float = 0.0
    """For a prompt of that length."""
    failure: str = ""
    remedy: str = ""
    policy: str = ""
    """What is done when a node is lost, and what it replaces; empty where nothing is special."""


class DownloadRow(msgspec.Struct, frozen=True, kw_only=True):
    """One model on its way to one node."""

    node: NodeId
    name: str
    hue: str
    model: ModelId
    phase: str
    level: Level
    fraction: float
    bytes_done: int
    bytes_total: int
    bytes_per_second: float
    source: str = ""
    failure: str = ""
    remedy: str = ""
    priority: int = 0
    retry_seconds: float = 0.0
    """Until it is tried again by itself; 0: a person must act."""

    @property
    def seconds_left(self) -> float | None:
        """Time to the end at this speed; None where it is not known."""
        if self.bytes_per_second <= 0 or self.bytes_total <= 0:
            return None
        return (self.bytes_total - self.bytes_done) / self.bytes_per_second


class IndexRow(msgspec.Struct, frozen=True, kw_only=True):
    """Where one node is in the ordered log."""

    node: NodeId
    name: str
    hue: str
    level: Level
    is_master: bool
    has_figures: bool
    role: str = ""
    written: int = -1
    applied: int = -1
    committed: int = -1
    lag: int = 0
    buffered: int = 0
    gap_first: int = -1
    gap_last: int = -1
    unacknowledged: int = 0
    oldest_seconds: float = 0.0
    replays: int = 0
    elections: int = 0
    log_bytes: int = 0


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the log."""

    index: int
    at: float
    origin: str
    hue: str
    sequence: int
    kind: str
    subject: str
    summary: str
    level: Level = "idle"
    is_resubmitted: bool = False


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """One generation."""

    request: RequestId
    model: ModelId
    instance: InstanceId
    level: Level
    word: str
    prompt_tokens: int
    prefilled_tokens: int
    output_tokens: int
    first_token_seconds: float
    speed: float
    age_seconds: float
    taken_by: str
    hue: str
    failure: str = ""


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One model that lies somewhere in the cluster."""

    model: ModelId
    architecture: str
    bytes_on_disk: int
    parameters: int
    bits: int
    layer_count: int
    context_tokens: int
    places: dict[NodeId, str]
    """By node: a symbol and how far, such as `✓` or `42%`."""
    whole: int
    instances: int
    fits: str
    """`on one node`, `across 3 nodes`, or by how much it is too large."""
    level: Level
    note: str = ""
    remedy: str = ""
    weight_bytes: int = 0
    """What of it is weights and has to go into memory; 0 where that is not known."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs the person, with the next key or command."""

    level: Level
    title: str
    text: str
    key: str = ""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The top line."""

    cluster: str
    nodes_up: int
    nodes_known: int
    master: str
    master_hue: str
    term: int
    index: int
    lag_here: int
    lag_worst: int
    buffered: int
    unacknowledged: int
    replays: int
    session_level: Level
    session_word: str
    trust_lan: bool = False
