"""What the screen knows of the cluster. Of the screen's thread alone; no textual here."""

import collections
from collections.abc import Callable, Mapping

from node.handle import Lagged, LocalView, StreamItem
from node.model.errors import Failure
from node.model.event import ProposalRejected
from node.model.ids import NodeId
from node.model.register import (
    DownloadFigures,
    MachineFigures,
    Register,
    RouterFigures,
    RunnerFigures,
)
from node.model.session import Entry, Rewind, SessionStarted
from node.model.state import Snapshot, State
from tui.bridge.inbox import Connected, Disconnected, InboxItem, Streamed
from tui.bridge.rates import History, Rate
from tui.viewmodel.cluster import ClusterView

EVENTS_MAX = 65_536
HISTORY_SECONDS = 240
STALE_SECONDS = 3.0
REJECTION_SECONDS = 600.0
"""So long a withdrawn command is told of, from when it was first seen here."""

NODES, LINKS, PLACEMENTS, DOWNLOADS, EVENTS, SESSION, LOCAL = (
    "nodes",
    "links",
    "placements",
    "downloads",
    "events",
    "session",
    "local",
)
ALL = frozenset((NODES, LINKS, PLACEMENTS, DOWNLOADS, EVENTS, SESSION, LOCAL))

_TOPICS: Mapping[str, frozenset[str]] = {
    "MachineFigures": frozenset((NODES,)),
    "RouterFigures": frozenset((NODES, SESSION)),
    "ModelFigures": frozenset((DOWNLOADS,)),
    "DownloadFigures": frozenset((DOWNLOADS,)),
    "RunnerFigures": frozenset((PLACEMENTS, NODES)),
    "RequestFigures": frozenset((PLACEMENTS,)),
    "LinkFigures": frozenset((LINKS,)),
    "JoinFigures": frozenset((LINKS,)),
}


class ClusterStore:
    """State, registers, events and rates; `accept` says which topics an item touches."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self.state = State()
        self.registers: dict[tuple[NodeId, str], Register] = {}
        self.local: LocalView | None = None
        self.events: collections.deque[Entry] = collections.deque(maxlen=EVENTS_MAX)
        self.events_total = 0
        self.events_version = 0
        """Rises when entries are taken away: whoever holds some drops them."""
        self.is_connected = False
        self.failure: Failure | None = None
        self.retry_seconds = 0.0
        self.heard_at = 0.0
        self.skipped = 0
        self.event_rate = Rate()
        self.event_history = History(HISTORY_SECONDS)
        self.download_history = History(HISTORY_SECONDS)
        self.node_history: dict[tuple[NodeId, str], History] = {}
        """By node and figure: `memory`, `load`, `speed`, `watts`, `celsius`."""
        self._view: ClusterView | None = None
        self._live_from = -1
        self._nodes_seen: object = None
        self._gone: set[NodeId] = set()
        self._rejected: tuple[ProposalRejected, ...] = ()
        self._rejected_at = 0.0

    @property
    def now(self) -> float:
        """Wall clock, seconds since 1970."""
        return self._wall()

    @property
    def view(self) -> ClusterView:
        """Rows of what is known now."""
        if self._view is None:
            now = self.now
            rejected = self.state.rejections[-1:]
            if rejected != self._rejected:
                self._rejected, self._rejected_at = rejected, now
            self._view = ClusterView(
                self.state,
                self.registers,
                self.local,
                now,
                tells_rejection=now - self._rejected_at < REJECTION_SECONDS,
            )
        return self._view

    @property
    def stale_seconds(self) -> float:
        """How old the figures are, once that is worth saying; else 0."""
        if not self.heard_at:
            return 0.0
        age = self.now - self.heard_at
        return age if age > STALE_SECONDS or not self.is_connected else 0.0

    def forget_view(self) -> None:
        """Have rows with ages made anew."""
        self._view = None

    def accept(self, item: InboxItem) -> frozenset[str]:
        """Take an item; returns the topics that it touches."""
        self._view = None
        now = self.now
        match item:
            case Streamed():
                self.heard_at = now
                if item.state.cluster != self.state.cluster or isinstance(item.item, Snapshot):
                    self._begin(item.state)
                self.state = item.state
                self._forget_lost()
                return self._stream(item.item, now)
            case Connected():
                self.heard_at = now
                self.is_connected = True
                self.failure = None
                self._begin(item.state)
                self._live_from = item.state.index
                self.registers = dict(item.registers)
                self._nodes_seen, self._gone = None, set()
                self._forget_lost()
                for register in item.registers.values():
                    self._record(register, now)
                return ALL
            case Disconnected():
                self.is_connected = False
                self.failure = item.failure
                self.retry_seconds = item.retry_seconds
                return ALL
            case LocalView():
                self.local = item
                return frozenset((LOCAL, SESSION))
            case _:
                return frozenset()

    def _forget_lost(self) -> None:
        """What a lost or removed node said last is true no more: it runs and serves nothing."""
        if self.state.nodes is self._nodes_seen:
            return
        self._nodes_seen = self.state.nodes
        gone = {node for node, record in self.state.nodes.items() if record.lost}
        gone |= self.state.revoked.keys()
        for key in [key for key in self.registers if key[0] in gone - self._gone]:
            del self.registers[key]
        self._gone = gone

    def _stream(self, item: StreamItem, now: float) -> frozenset[str]:
        match item:
            case Register():
                kind = type(item.value).__name__
                self.registers[item.node, kind] = item
                self._record(item, now)
                return _TOPICS.get(kind, ALL)
            case Entry():
                self._append(item)
                if item.index > self._live_from:
                    self.event_rate.add(1, now)
                return frozenset((EVENTS, PLACEMENTS, NODES, SESSION))
            case Rewind():
                self.events_version += 1
                while self.events and self.events[-1].index >= item.index:
                    self.events.pop()
                return ALL
            case SessionStarted():
                return frozenset((SESSION, NODES))
            case Lagged():
                self.skipped += item.skipped
                return frozenset((EVENTS,))
            case Snapshot():
                return ALL

    def _begin(self, state: State) -> None:
        """Go on from a state; of another cluster, or of an earlier index, with an empty log."""
        is_other = state.cluster != self.state.cluster
        if self.events and (is_other or state.index < self.events[-1].index):
            self.events.clear()
            self.events_version += 1
        if is_other:
            self.registers = {
                key: held for key, held in self.registers.items() if key[0] in state.nodes
            }
        self.state = state

    def _append(self, entry: Entry) -> None:
        if self.events and entry.index <= self.events[-1].index:
            return
        self.events.append(entry)
        self.events_total += 1

    def _record(self, register: Register, now: float) -> None:
        value = register.value
        if isinstance(value, MachineFigures):
            self._add_machine(register.node, value, now)
        elif isinstance(value, RunnerFigures):
            speed = max((item.tokens_per_second for item in value.runners), default=0.0)
            self._add(register.node, "speed", speed, now)
        elif isinstance(value, RouterFigures):
            self.event_history.add(self.event_rate.value(now), now)
        elif isinstance(value, DownloadFigures):
            total = sum(row.bytes_per_second for row in self.view.downloads)
            self.download_history.add(total, now)

    def _add_machine(self, node: NodeId, value: MachineFigures, now: float) -> None:
        load = value.processor_fraction if value.gpu_fraction is None else value.gpu_fraction
        self._add(node, "load", load, now)
        if value.memory_bytes_total:
            used = value.memory_bytes_total - value.memory_bytes_available
            self._add(node, "memory", used / value.memory_bytes_total, now)
        if value.power_watts is not None:
            self._add(node, "watts", value.power_watts, now)
        if value.temperature_celsius is not None:
            self._add(node, "celsius", value.temperature_celsius, now)

    def _add(self, node: NodeId, name: str, value: float, now: float) -> None:
        history = self.node_history.get((node, name))
        if history is None:
            history = self.node_history[node, name] = History(HISTORY_SECONDS)
        history.add(value, now)

    def node_values(self, node: NodeId, name: str) -> tuple[float, ...]:
        """A node's figure over the last minutes, the newest last; empty where there is none."""
        history = self.node_history.get((node, name))
        return tuple(history.shown(self.now)) if history else ()
