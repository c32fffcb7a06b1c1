"""A few replicas on a perfect network that tests cut and mend by hand: no chance in it at all."""

import heapq
import math
from collections.abc import Callable

from node.core.event_order import EventOrder, Published, Released
from node.core.replica.effects import (
    BecameMaster,
    Deliver,
    Effect,
    HistoryDropped,
    LostMastership,
    Revalidate,
    Rewound,
    Send,
    SessionBegan,
    SnapshotInstalled,
    SnapshotNeeded,
    TipAppended,
    Write,
)
from node.core.replica.messages import ReplicaMessage, Role
from node.core.replica.replica import Replica
from node.core.replica.timing import Limits, Timing
from node.model.ids import ClusterId, NodeId
from node.model.session import Entry, EventId, Position
from tests.simulation.disk import SimulatedDisk

CLUSTER = ClusterId("f" * 32)
LINK_SECONDS = 0.002
SYNC_SECONDS = 0.004
SEPARATOR = b"\n"
CONTROL = b"(control)"
"""Stands in a state for an entry that the log wrote itself."""


class FakeNode:
    """The shell of one replica; its state is the list of payloads it folded."""

    def __init__(self, cluster: "ReplicaCluster", name: str) -> None:
        self.cluster = cluster
        self.id = NodeId(name)
        self.disk = SimulatedDisk(cluster.limits.tail_entries)
        self.is_running = False
        self.disk_stalled = False
        self.start()

    def start(self) -> None:
        """Start its process on what its disk holds."""
        now = self.cluster.now
        recovered = self.disk.boot()
        image = recovered.snapshot
        index = image.position.index if image else -1
        timing, limits = self.cluster.timing, self.cluster.limits
        self.replica = Replica(self.id, recovered, timing, now, limits=limits)
        self.order = EventOrder(self.id, recovered.incarnation, timing, index)
        self.state = self._unpack(image.state if image else b"")
        self.tip: list[bytes] = []
        self.seen: list[Effect] = []
        """Every effect but Send, Write and Deliver, in order."""
        self.acknowledged: list[EventId] = []
        self.reject: set[bytes] = set()
        """Payloads that no longer hold when they are offered again."""
        self.is_running = True

    def text(self) -> list[str]:
        """What people wrote, as this node's state holds it."""
        return [payload.decode() for payload in self.state if payload != CONTROL]

    def call(self, effects: tuple[Effect, ...]) -> None:
        """Perform effects in order; those that come meanwhile come after."""
        queue = list(effects)
        for effect in queue:
            match effect:
                case Send(peer, message):
                    self.cluster.carry(self, peer, message)
                case Write():
                    self.cluster.keep(self, effect)
                case Deliver(entries):
                    self._deliver(entries)
                case _:
                    self.seen.append(effect)
                    queue.extend(self.act(effect))

    def act(self, effect: Effect) -> tuple[Effect, ...]:
        """Perform one of the seldom effects."""
        now = self.cluster.now
        match effect:
            case SessionBegan():
                return self.replica.propose(now, self.order.session_began(now))
            case BecameMaster(_, tip):
                self.tip = [*self.state, *map(_payload, tip)]
            case TipAppended(entries):
                self.tip.extend(map(_payload, entries))
            case Rewound(index):
                self._rewind(index)
            case SnapshotInstalled(image):
                self.state = self._unpack(image.state)
                settled = self.order.install(now, image.position.index, image.known)
                self.acknowledged.extend(settled)
            case SnapshotNeeded():
                return self.snapshot()
            case Revalidate(proposal):
                if proposal.payload in self.reject:
                    refusal = b"rejected " + proposal.payload
                    return self.replica.reject_resubmission(now, proposal.id, refusal)
                return self.replica.accept_resubmission(now, proposal.id)
            case LostMastership() | HistoryDropped():
                pass
            case _:
                raise AssertionError(effect)
        return ()

    def _deliver(self, entries: tuple[Entry, ...]) -> None:
        outcome = self.order.receive(self.cluster.now, entries)
        assert isinstance(outcome, Released), outcome
        self.state.extend(_payload(entry) for entry in outcome.entries)
        self.acknowledged.extend(outcome.acknowledged)

    def _rewind(self, index: int) -> None:
        self.order.rewind(index)
        image = self.replica.snapshot
        first = image.position.index + 1 if image else 0
        self.state = self._unpack(image.state if image else b"")
        self.state.extend(_payload(entry) for entry in self.replica.entries(first, index))

    def snapshot(self) -> tuple[Effect, ...]:
        """Take a snapshot of the state as folded."""
        index = self.order.index
        (entry,) = self.replica.entries(index, index + 1)
        position = Position(entry.session, index)
        return self.replica.compact(self.cluster.now, position, SEPARATOR.join(self.state))

    @staticmethod
    def _unpack(state: bytes) -> list[bytes]:
        return state.split(SEPARATOR) if state else []


def _payload(entry: Entry) -> bytes:
    return entry.payload if entry.id.sequence > 0 else CONTROL


class ReplicaCluster:
    """Moves time on; carries messages in 2 ms, syncs writes in 4 ms."""

    def __init__(
        self, *names: str, timing: Timing | None = None, limits: Limits | None = None
    ) -> None:
        self.now = 100.0
        self.timing = timing or Timing()
        self.limits = limits or Limits()
        self.tick_seconds = self.timing.tick_seconds
        """How often ticks come; more than the timing says makes every node's loop lag."""
        self.cut: set[tuple[str, str]] = set()
        self.dropping: Callable[[str, str, ReplicaMessage], bool] = deliver_all
        self.sent: list[tuple[str, str, ReplicaMessage]] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._next_tick = self.now
        self.nodes = {name: FakeNode(self, name) for name in names}
        first, *others = self.nodes.values()
        first.call(first.replica.found_cluster(self.now, CLUSTER, b"founded"))
        for node in others:
            node.call(node.replica.join_cluster(self.now, CLUSTER))
        for node in self.nodes.values():
            node.call(node.replica.set_peers(self.now, [NodeId(name) for name in names]))
        for name in names:
            self._link(name)

    # -- time --------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while True:
            due = self._queue[0][0] if self._queue else math.inf
            if min(due, self._next_tick) > end:
                break
            if due <= self._next_tick:
                self.now = due
                heapq.heappop(self._queue)[2]()
            else:
                self.now = self._next_tick
                self._next_tick += self.tick_seconds
                self._tick()
        self.now = end

    def run_until(self, condition: Callable[[], bool], seconds_max: float) -> float:
        """Let time pass until the condition holds; returns how long that took."""
        started = self.now
        while not condition():
            assert self.now - started < seconds_max, f"not within {seconds_max} s"
            self.run(0.005)
        return self.now - started

    def _tick(self) -> None:
        for node in self.running():
            node.call(node.replica.tick(self.now))
            node.call(node.replica.propose(self.now, node.order.tick(self.now)))

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now + seconds, self._count, call))

    # -- network and disk ----------------------------------------------------------------------

    def carry(self, node: FakeNode, peer: NodeId, message: ReplicaMessage) -> None:
        """Bring a message over, unless the way is cut."""
        target = self.nodes[peer]
        self.sent.append((node.id, peer, message))
        if (node.id, peer) in self.cut or self.dropping(node.id, peer, message):
            return
        replica = target.replica

        def arrive() -> None:
            if target.is_running and target.replica is replica and node.is_running:
                target.call(replica.receive(self.now, node.id, message))

        self._later(LINK_SECONDS, arrive)

    def keep(self, node: FakeNode, write: Write) -> None:
        """Write to a node's disk."""
        if node.disk.write(write):
            self._sync(node)

    def _sync(self, node: FakeNode) -> None:
        replica = node.replica

        def synced() -> None:
            if not node.is_running or node.replica is not replica:
                return
            if node.disk_stalled:
                self._later(SYNC_SECONDS, synced)
                return
            token = node.disk.finish()
            if node.disk.begin():
                self._sync(node)
            node.call(replica.synced(self.now, token))

        self._later(SYNC_SECONDS, synced)

    def _link(self, name: str) -> None:
        """Make the links of a node that came up."""
        node = self.nodes[name]
        for other in self.running():
            if other is node or (name, other.id) in self.cut:
                continue
            node.call(node.replica.peer_up(self.now, other.id))
            other.call(other.replica.peer_up(self.now, node.id))

    # -- faults --------------------------------------------------------------------------------

    def part(self, *groups: str) -> None:
        """Cut the network into groups of names separated by spaces, silently."""
        of = {name: number for number, group in enumerate(groups) for name in group.split()}
        self.cut = {(a, b) for a in of for b in of if of[a] != of[b]}

    def mend(self) -> None:
        """The network is whole again."""
        self.cut = set()

    def kill(self, name: str) -> None:
        """End a process: its peers see the links end and are refused when they dial."""
        self.power_off(name)
        for other in self.running():
            if (name, other.id) not in self.cut:
                other.call(other.replica.peer_down(self.now, NodeId(name), refused=True))

    def power_off(self, name: str) -> None:
        """End a process, unseen by its peers."""
        self.nodes[name].is_running = False

    def start(self, name: str) -> None:
        """Start an ended process; it meets its peers at once."""
        node = self.nodes[name]
        node.start()
        peers = [NodeId(other) for other in self.nodes]
        node.call(node.replica.set_peers(self.now, peers))
        if not node.replica.cluster:
            node.call(node.replica.join_cluster(self.now, CLUSTER))
            node.call(node.replica.set_peers(self.now, peers))
        self._link(name)
        for other in self.nodes.values():
            if not other.is_running and (name, other.id) not in self.cut:
                node.call(node.replica.peer_down(self.now, other.id, refused=True))

    # -- what to do and to see -----------------------------------------------------------------

    def publish(self, name: str, text: str) -> EventId:
        """Have a node write an event."""
        node = self.nodes[name]
        published = node.order.publish(self.now, text.encode(), 0.0)
        assert isinstance(published, Published)
        node.call(node.replica.propose(self.now, (published.proposal,)))
        return published.proposal.id

    def running(self) -> list[FakeNode]:
        """Nodes that run."""
        return [node for node in self.nodes.values() if node.is_running]

    def masters(self) -> list[str]:
        """Names of nodes that master."""
        return [node.id for node in self.running() if node.replica.role == Role.MASTERING]

    def is_settled(self) -> bool:
        """Whether one node masters, the others follow it, and all logs and states are equal."""
        nodes = self.running()
        ends = {
            (node.replica.master, node.replica.session, node.replica.last_position)
            for node in nodes
        }
        return (
            len(self.masters()) == 1
            and len(ends) == 1
            and all(node.state == nodes[0].state for node in nodes)
            and all(node.replica.commit_index == node.replica.last_index for node in nodes)
            and not any(node.order.unacknowledged or node.replica.figures.orphans for node in nodes)
        )

    def settle(self, seconds_max: float = 10.0) -> float:
        """Let time pass until settled; returns how long that took."""
        return self.run_until(self.is_settled, seconds_max)


def settled(*names: str, limits: Limits | None = None) -> ReplicaCluster:
    """A cluster at rest."""
    cluster = ReplicaCluster(*names, limits=limits)
    cluster.settle()
    return cluster


def publish_many(cluster: ReplicaCluster, name: str, count: int) -> list[str]:
    """Have a node write events; returns their texts."""
    texts = [f"{name}{number}" for number in range(count)]
    for text in texts:
        cluster.publish(name, text)
    return texts


def deliver_all(source: str, target: str, message: ReplicaMessage) -> bool:
    """Drop no message."""
    return False


def kinds(node: FakeNode, kind: type) -> int:
    """How many effects of a kind a node was given."""
    return sum(isinstance(effect, kind) for effect in node.seen)
