"""A seeded discrete-event simulation of a cluster: one thread, one heap, one source of chance."""

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from node.core.replica.effects import Send, Write
from node.core.replica.messages import ReplicaMessage
from node.core.replica.timing import Limits, Timing
from node.model.ids import ClusterId
from node.model.session import Entry, EventId, Session
from tests.simulation.checker import Checker, ViolationError
from tests.simulation.disk import SimulatedDisk
from tests.simulation.faults import Faults, Mode
from tests.simulation.node import SimulatedNode, held_of, known_of, node_ids
from tests.simulation.world import Counts

CLUSTER = ClusterId("c" * 32)
QUIET_SECONDS = 15.0
WORK_AFTER_SECONDS = 3.0
"""Events are written on for so long after the faults stop."""
STORM_ELECTIONS = 12
BURST_CHANCE = 0.003
BURST_EVENTS_MAX = 200
_MASK = (1 << 64) - 1


class Result(msgspec.Struct, frozen=True):
    """What one run was like."""

    trace: str
    seconds: float
    steps: int
    messages: int
    published: int
    acknowledged: int
    log_length: int
    sessions: int
    rewinds: int
    moved: int
    resubmissions: int
    snapshots_installed: int
    history_dropped: int
    failovers: tuple[float, ...]


def limits_of(mode: Mode, random: Random) -> Limits:
    """The bounds of a run: in half of the wildest so low that they are met all the time."""
    tail_entries = 30 if mode in (Mode.JOIN, Mode.SHORT_TAIL) else 4000
    limits = Limits(tail_entries=tail_entries, snapshot_chunk_bytes=100)
    if mode != Mode.WILD or random.random() >= 0.5:
        return limits
    return msgspec.structs.replace(
        limits,
        entries_per_append=5,
        bytes_per_append=60,
        entries_in_flight=12,
        proposals_per_submit=16,
        held_per_writer=40,
        revalidations=20,
        snapshot_chunks_in_flight=1,
        held_messages=20,
    )


class Simulation:
    """`fault_seconds` of faults, then quiet, then every invariant is checked."""

    def __init__(
        self, seed: int, count: int, mode: Mode = Mode.ALL, fault_seconds: float = 60.0
    ) -> None:
        self.random = Random(seed * 1_000_003 + count * 31 + list(Mode).index(mode))
        self.mode = mode
        self.fault_seconds = fault_seconds
        self.time = 0.0
        self.faulty = True
        self.ids = node_ids(count)
        self.places = {node: place for place, node in enumerate(self.ids)}
        self.timing = Timing()
        self.snapshot_every = self.random.choice((20, 100, 1 << 40))
        if mode in (Mode.JOIN, Mode.SHORT_TAIL):
            self.snapshot_every = 20
        self.limits = limits_of(mode, self.random)
        self.clock_rates = [self.random.uniform(0.98, 1.02) for _ in self.ids]
        self.clock_offsets = [self.random.uniform(0, 1000) for _ in self.ids]
        self.disks = [SimulatedDisk(self.limits.tail_entries) for _ in self.ids]
        self.disk_slow_until = [0.0] * count
        self.nodes: list[SimulatedNode | None] = [None] * count
        self.checker = Checker()
        self.groups = [0] * count
        self.cut: set[tuple[int, int]] = set()
        self.loss, self.duplicates, self.spikes = 0.02, 0.02, 0.02
        if mode in (Mode.HAND_OVER, Mode.IDLE):
            self.loss = self.duplicates = self.spikes = 0.0
        self.counts = Counts()
        self._elected_at: list[float] = []
        self.powerless: set[int] = set()
        """Machines that are off: nobody even refuses there."""
        self.lost: set[int] = set()
        """Nodes lost for good, with their disks."""
        self.failovers: list[float] = []
        self.master_lost: tuple[float, Session] | None = None
        self.crash_after_acknowledgement = False
        self.crash_after_election = False
        self._queue: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._counter = 0
        self._trace = seed & _MASK
        self.faults = Faults(self, mode)
        for place in range(count):
            self.boot(place)

    # -- time --------------------------------------------------------------------------------

    def later(self, seconds: float, call: Callable[[Any], None], argument: Any) -> None:
        """Have something happen later."""
        self._counter += 1
        heapq.heappush(self._queue, (self.time + seconds, self._counter, call, argument))

    def run(self) -> Result:
        """Run to the end and check."""
        queue = self._queue
        pop = heapq.heappop
        end = self.fault_seconds + QUIET_SECONDS
        trace = self._trace
        while queue and queue[0][0] < end:
            self.time, counter, call, argument = pop(queue)
            trace = (trace * 1000003 ^ hash(self.time) ^ counter) & _MASK
            call(argument)
        self._trace = trace
        return self._check()

    # -- nodes -------------------------------------------------------------------------------

    def boot(self, place: int) -> None:
        """Start a node's process."""
        if self.nodes[place] is not None:
            return
        recovered = self.disks[place].boot()
        node = self.nodes[place] = SimulatedNode(self, place, recovered)
        if not recovered.cluster:
            self._enter(node)
        node.perform(node.replica.set_peers(node.now(), self.ids))
        random = self.random
        self.later(random.uniform(0, 0.05), self._tick, node)
        if self.mode != Mode.IDLE:
            self.later(random.uniform(0.1, 0.5), self._work, node)
        for other in range(len(self.ids)):
            if other != place:
                self.later(random.uniform(0.01, 0.08), self._dial, (node, other))

    def _enter(self, node: SimulatedNode) -> None:
        """A blank node: the first founds the cluster, the others join it."""
        if self.time == 0 and node.place == 0:
            node.perform(node.replica.found_cluster(node.now(), CLUSTER, b"founded"))
        else:
            node.perform(node.replica.join_cluster(node.now(), CLUSTER))

    def replace_disk(self, place: int) -> None:
        """A node ends, and starts again as a newcomer."""
        self.crash(place, power=False)
        self.disks[place].wipe()
        self.later(self.random.uniform(0.3, 2), self.boot, place)

    def crash(self, place: int, *, power: bool) -> None:
        """End a node's process; with `power` off, nobody is told."""
        node = self.nodes[place]
        if node is None:
            return
        if node.is_mastering() and self.master_lost is None and self.faulty:
            self.master_lost = (self.time, node.replica.session)
        self.nodes[place] = None
        self.disks[place].tear(self.random)
        node.muted = power and self.random.random() < 0.5
        if not power:
            for other in range(len(self.ids)):
                if other != place:
                    self.later(0.05, self._ended, (other, place, node.life))

    def is_current(self, place: int, life: int) -> bool:
        """Whether that life of a node still runs."""
        node = self.nodes[place]
        return node is not None and node.life == life

    def running(self) -> list[int]:
        """Places of nodes that run."""
        return [node.place for node in self.nodes if node is not None]

    def is_all_in_sync(self) -> bool:
        """Whether one master has every node in sync."""
        in_sync = [node.replica.in_sync for node in self.nodes if node is not None]
        return sum(len(nodes) == len(self.ids) for nodes in in_sync) == 1

    def freeze(self, place: int, seconds: float) -> None:
        """Stop a process for a while; what comes meanwhile waits."""
        node = self.nodes[place]
        if node is not None:
            node.frozen_until = self.time + seconds

    def sleep(self, place: int, seconds: float) -> None:
        """Stop a machine for a while: its clock stands still, as a Mac's does."""
        node = self.nodes[place]
        if node is not None and node.frozen_until <= self.time:
            node.frozen_until = self.time + seconds
            node.stop_clock()
            self.later(seconds, self._wake, (node, seconds))

    def _wake(self, argument: tuple[SimulatedNode, float]) -> None:
        node, seconds = argument
        if self.nodes[node.place] is node:
            node.wake(seconds)

    def step_down(self, place: int) -> None:
        """Have a master hand over."""
        node = self.nodes[place]
        if node is not None:
            if self.master_lost is None and node.is_mastering():
                self.master_lost = (self.time, node.replica.session)
            node.perform(node.replica.step_down(node.now()))

    def masters(self) -> list[int]:
        """Places of nodes that master now."""
        return [node.place for node in self.nodes if node is not None and node.is_mastering()]

    def is_reachable(self, source: int, target: int) -> bool:
        """Whether messages pass in this direction."""
        return self.groups[source] == self.groups[target] and (source, target) not in self.cut

    def link_down(self, place: int, other: int) -> None:
        """The link between two running nodes ends; both see it, and dial again."""
        for here, there in ((place, other), (other, place)):
            node, peer = self.nodes[here], self.nodes[there]
            if node is not None and peer is not None:
                node.perform(node.replica.peer_down(node.now(), self.ids[there], refused=False))
                self.later(self.random.uniform(0.02, 0.5), self._dial, (node, there))

    def _dial(self, argument: tuple[SimulatedNode, int]) -> None:
        node, other = argument
        if self.nodes[node.place] is not node:
            return
        peer = self.nodes[other]
        there_and_back = self.is_reachable(node.place, other) and self.is_reachable(
            other, node.place
        )
        if not there_and_back:
            return
        if peer is None:
            if other not in self.powerless:
                node.perform(node.replica.peer_down(node.now(), self.ids[other], refused=True))
            return
        for here, there in ((node, peer), (peer, node)):
            here.perform(here.replica.peer_up(here.now(), there.id))

    def _ended(self, argument: tuple[int, int, int]) -> None:
        """A link's end is seen: what its dead process sent and has not arrived never will."""
        place, other, life = argument
        node = self.nodes[place]
        if node is None or not self.is_reachable(other, place):
            return
        node.closed[other] = life
        peer = self.nodes[other]
        if peer is None:
            node.perform(node.replica.peer_down(node.now(), self.ids[other], refused=True))

    def _tick(self, node: SimulatedNode) -> None:
        if self.nodes[node.place] is not node:
            return
        if node.frozen_until > self.time:
            self.later(node.frozen_until - self.time, self._tick, node)
            return
        node.tick()
        self.later(self.timing.tick_seconds, self._tick, node)

    def _work(self, node: SimulatedNode) -> None:
        if self.nodes[node.place] is not node or (
            self.time >= self.fault_seconds + WORK_AFTER_SECONDS
        ):
            return
        if node.frozen_until <= self.time:
            burst = self.mode == Mode.WILD and self.random.random() < BURST_CHANCE
            for _ in range(self.random.randint(2, BURST_EVENTS_MAX) if burst else 1):
                self.counts.published += 1
                node.publish()
        self.later(0.05 + 0.25 * self.random.random(), self._work, node)

    def acknowledged(self, ids: tuple[EventId, ...], entries: tuple[Entry, ...]) -> None:
        """A writer saw its events committed."""
        self.checker.acknowledge(ids, entries)
        if self.crash_after_acknowledgement:
            self.crash_after_acknowledgement = False
            self.later(0.01 * self.random.random(), self.faults.crash_a_master, None)

    def committed(self, session: Session) -> None:
        """An entry of that session was committed somewhere."""
        if self.master_lost is not None:
            lost_at, lost_session = self.master_lost
            if session > lost_session:
                self.failovers.append(self.time - lost_at)
                self.master_lost = None

    def became_master(self, place: int) -> None:
        """A node masters now. Elections end: they don't go on at the pace of the network."""
        lately = [moment for moment in self._elected_at if self.time - moment < 1.0]
        self._elected_at = [*lately, self.time]
        if len(self._elected_at) > STORM_ELECTIONS:
            raise ViolationError(f"I9: {len(self._elected_at)} elections within a second")
        if self.crash_after_election and self.faulty:
            self.crash_after_election = False
            self.later(0.01 * self.random.random(), self.faults.crash_a_master, None)

    # -- disk --------------------------------------------------------------------------------

    def write(self, place: int, effect: Write) -> None:
        """A node writes."""
        self.checker.wrote(self.ids[place], effect)
        node = self.nodes[place]
        if self.disks[place].write(effect) and node is not None:
            self._sync(node)

    def _sync(self, node: SimulatedNode) -> None:
        random = self.random
        seconds = 0.0005 + 0.0115 * random.random()
        if random.random() < 0.01:
            seconds = random.uniform(0.05, 0.2)
        if self.time < self.disk_slow_until[node.place]:
            # Where a machine is lost for good, slow but not so slow that it leaves the in-sync set.
            seconds += random.uniform(0.1, 0.4 if self.mode == Mode.POWER_CUT else 1.0)
        self.later(seconds, self._synced, node)

    def _synced(self, node: SimulatedNode) -> None:
        if self.nodes[node.place] is not node:
            return
        if node.frozen_until > self.time:
            self.later(node.frozen_until - self.time, self._synced, node)
            return
        disk = self.disks[node.place]
        token = disk.finish()
        if disk.begin():
            self._sync(node)
        effects = node.replica.synced(node.now(), token)
        if effects:
            node.perform(effects)

    # -- network -----------------------------------------------------------------------------

    def send(self, place: int, effect: Send) -> None:
        """A message may be lost, late, doubled, or arrive."""
        self.counts.messages += 1
        self.checker.sent(effect.message, self.limits)
        target = self.places[effect.peer]
        node = self.nodes[place]
        if self.groups[place] != self.groups[target] or (self.cut and (place, target) in self.cut):
            return
        random = self.random.random
        chance = random() if self.loss else 1.0
        if chance < self.loss:
            return
        chance -= self.loss
        seconds = 0.0005 + 0.0195 * random()
        letter = (node, target, effect.message)
        if chance < self.duplicates:
            self.later(seconds + 0.5 * random(), self._arrive, letter)
        elif chance < self.duplicates + self.spikes:
            seconds += 0.05 + 0.55 * random()
        self.later(seconds, self._arrive, letter)

    def _arrive(self, letter: tuple[SimulatedNode, int, ReplicaMessage]) -> None:
        sender, target, message = letter
        node = self.nodes[target]
        if node is None or sender.muted or node.closed.get(sender.place, 0) >= sender.life:
            return
        if node.frozen_until > self.time:
            self.later(node.frozen_until - self.time + 0.0001, self._arrive, letter)
            return
        effects = node.replica.receive(
            self.time * node.clock_rate + node.clock_offset, sender.id, message
        )
        if effects:
            node.perform(effects)

    # -- the end -----------------------------------------------------------------------------

    def heal(self) -> None:
        """No more faults; every node whose disk lives is started."""
        self.faulty = False
        self.groups = [0] * len(self.ids)
        self.cut = set()
        self.loss = self.duplicates = self.spikes = 0.0
        self.disk_slow_until = [0.0] * len(self.ids)
        for place in range(len(self.ids)):
            if place not in self.lost:
                self.boot(place)

    def _check(self) -> Result:
        nodes = [node for node in self.nodes if node is not None]
        self._check_converged(nodes)
        log = self.checker.whole_log(nodes[0].replica.last_position)
        reported = self.counts.history_dropped if self.mode == Mode.SHORT_TAIL else 0
        state, digest = self.checker.check_log(log, losses_reported=reported)
        for node in nodes:
            if node.state != state:
                raise ViolationError(
                    f"I10: {node.id} folded to {node.state:x}, the log to {state:x}"
                )
            node.check_bounds()
        single = (Mode.PERMANENT, Mode.KILLED, Mode.CUT, Mode.ONE_AT_A_TIME)
        if self.mode in single and self.checker.moved:
            raise ViolationError(f"I5: {self.checker.moved} acknowledged events moved")
        sessions = self.checker.sessions_declared()
        if self.mode in (Mode.CUT, Mode.JOIN, Mode.RESTART, Mode.IDLE) and sessions != 1:
            raise ViolationError(f"sticky master: {sessions} sessions where one would do")
        return Result(
            trace=f"{self._trace:016x}{digest}",
            seconds=self.time,
            steps=self._counter,
            messages=self.counts.messages,
            published=self.counts.published,
            acknowledged=len(self.checker.acknowledged),
            log_length=len(log),
            sessions=sessions,
            rewinds=self.counts.rewinds,
            moved=self.checker.moved,
            resubmissions=self.counts.resubmissions,
            snapshots_installed=self.counts.snapshots_installed,
            history_dropped=self.counts.history_dropped,
            failovers=tuple(self.failovers),
        )

    def _check_converged(self, nodes: list[SimulatedNode]) -> None:
        """I9."""
        masters = [node.id for node in nodes if node.is_mastering()]
        if len(masters) != 1:
            where = [(node.id, node.replica.role.name, node.replica.session) for node in nodes]
            raise ViolationError(f"I9: masters {masters} at the end: {where}")
        ends = {
            (
                node.replica.master,
                node.replica.session,
                node.replica.last_position,
                node.replica.commit_index,
                known_of(node.replica),
            )
            for node in nodes
        }
        if len(ends) != 1:
            shown = [
                (
                    node.id,
                    node.replica.session,
                    node.replica.last_position,
                    node.replica.commit_index,
                )
                for node in nodes
            ]
            raise ViolationError(f"I9: nodes differ at the end: {shown}")
        for node in nodes:
            # What a writer lost for good never saw committed may wait for its predecessor for ever.
            held = held_of(node.replica, [each.id for each in nodes])
            waiting = (node.order.unacknowledged, node.replica.figures.orphans, held)
            if waiting != (0, 0, 0) or node.replica.commit_index != node.replica.last_index:
                raise ViolationError(
                    f"I9: {node.id} is left with outbox, orphans, held = {waiting}"
                )
