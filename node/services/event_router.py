"""The event router: drives the replica and performs its effects, for the life of the process.

    inbound messages, ticks, syncs ──▶ Replica ──▶ effects ──▶ mesh, log file, state store, master

Nothing here is made anew at an election. Everything runs in the node's loop, one step at a time;
only the log file's writer is another thread.
"""

import collections
from collections.abc import Callable, Collection
from typing import assert_never

import anyio
import msgspec

from node.core.event_order import Duplicate, EventOrder, Gap, OutboxFull, Released
from node.core.naming import name_of, with_names
from node.core.replica.durable import Recovered, SnapshotImage
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
from node.core.replica.messages import Proposal, ReplicaMessage, Role
from node.core.replica.replica import Replica
from node.core.replica.timing import Timing
from node.io import clock
from node.io.log_file import LogFile
from node.io.wakeup import Wakeup
from node.log import logger
from node.model.errors import BusyError, InternalError
from node.model.event import ClusterFounded, Event
from node.model.ids import ClusterId, NodeId
from node.model.register import RouterFigures
from node.model.session import NO_POSITION, NO_SESSION, Entry, EventId, Position, Session
from node.model.state import State
from node.services.log_writer import LogWriter
from node.services.master_desk import MasterDesk, NoDesk
from node.services.router_figures import router_figures
from node.services.state_store import (
    StateStore,
    decode_state,
    encode_state,
    is_state,
    state_on_disk,
)

TICK_SECONDS = 0.05
LONE_TICK_SECONDS = 0.2
YIELD_AGAIN_SECONDS = 10.0
SLEEP_SECONDS = 3.0
"""The wall clock outrunning the other by more than this is taken for sleep."""
SNAPSHOT_EVERY_ENTRIES = 10_000
SNAPSHOT_EVERY_BYTES = 16 * 1024 * 1024
STEP_DOWN_SECONDS = 1.0

_log = logger("router")
_election_log = logger("election")
encode_event = msgspec.msgpack.Encoder().encode


class EventRouter:
    """Made once; the session that flows through it is a value."""

    def __init__(
        self,
        node: NodeId,
        log: LogFile,
        recovered: Recovered,
        store: StateStore,
        send: Callable[[NodeId, ReplicaMessage], bool],
    ) -> None:
        """Go on from what was on disk.

        Raises:
            ConflictError: its snapshot is of a version that this one can't read.
        """
        timing = Timing()
        now = clock.monotonic()
        snapshot = recovered.snapshot
        self._node = node
        self._disk = LogWriter(log)
        self._store = store
        self._send = send
        self._desk: MasterDesk = NoDesk()
        self._effects: collections.deque[Effect] = collections.deque()
        self._performing = False
        self._mistake: Exception | None = None
        self._wakeup = Wakeup()
        self._yield_again = now
        self._replica = Replica(node, recovered, timing, now)
        self._replica.check_states(is_state)
        self._order = EventOrder(
            node, recovered.incarnation, timing, snapshot.position.index if snapshot else -1
        )
        self._applied = snapshot.position if snapshot else NO_POSITION
        self._snapshot_index = self._applied.index
        self._bytes_since_snapshot = 0
        self._peers: frozenset[NodeId] = frozenset()
        self._replay_until = -1
        self._replay_session: Session = NO_SESSION
        self._waiting: dict[EventId, Callable[[Entry | None], None]] = {}
        self._elections = 0
        self.priority = 0
        """Among equally complete logs the greater one masters."""
        self._offset_seconds = 0.0
        self.on_wake: Callable[[], None] = lambda: None
        self.on_reset: Callable[[], None] = lambda: None
        """Called before the own log is given up for another cluster's."""
        if snapshot is not None:
            store.install(state_on_disk(snapshot.state))

    # -- at start ----------------------------------------------------------------------------------

    def attach_desk(self, desk: MasterDesk) -> None:
        """Name who decides; before `start`."""
        self._desk = desk

    def recovered_state(self, recovered: Recovered) -> State:
        """What the log on disk says, entries that may not be committed included."""
        return self._store.fold(self._store.state, recovered.entries)

    def start(self, recovered: Recovered, name: str) -> None:
        """Start the log's writer; found a cluster of one on the very first start."""
        self._adjust(clock.monotonic())
        self._disk.start(self._wakeup, lambda: self._take_synced(clock.monotonic()))
        if self._disk.damage:
            _log.error("the log was damaged, its files were set aside: %s", self._disk.damage)
        if not recovered.cluster:
            self.found_cluster(name)
            return
        state = self.recovered_state(recovered)
        self._replay_until = state.index
        self._replay_session = state.session
        self.set_peers(set(state.nodes) - {self._node})

    def found_cluster(self, name: str) -> None:
        """Begin a cluster of which this node is the only member."""
        cluster = ClusterId(clock.random_hex(32))
        founding = ClusterFounded(cluster=cluster, name=name, founder=self._node)
        self._reset_state()
        self._perform(
            self._replica.found_cluster(clock.monotonic(), cluster, encode_event(founding))
        )

    def join_cluster(self, cluster: ClusterId, members: Collection[NodeId]) -> None:
        """Give up the own log and follow that cluster's master."""
        self._reset_state()
        self._perform(self._replica.join_cluster(clock.monotonic(), cluster))
        self.set_peers(members)

    def _reset_state(self) -> None:
        self.on_reset()
        self._order.abandon()
        self._waiting.clear()
        self._applied = NO_POSITION
        self._snapshot_index = -1
        self._replay_until = -1
        self._peers = frozenset()
        self._store.install(State())

    # -- what others tell it -----------------------------------------------------------------------

    def set_peers(self, peers: Collection[NodeId]) -> None:
        """Name the other members."""
        chosen = frozenset(peers) - {self._node}
        if chosen != self._peers:
            self._peers = chosen
            self._perform(self._replica.set_peers(clock.monotonic(), sorted(chosen)))

    def peer_up(self, peer: NodeId) -> None:
        """A link is up."""
        self._perform(self._replica.peer_up(clock.monotonic(), peer))

    def peer_down(self, peer: NodeId, *, refused: bool) -> None:
        """A link ended."""
        self._perform(self._replica.peer_down(clock.monotonic(), peer, refused=refused))

    def receive(self, peer: NodeId, message: ReplicaMessage) -> None:
        """A message of another replica."""
        self._perform(self._replica.receive(clock.monotonic(), peer, message))

    def publish(
        self, event: Event, on_settled: Callable[[Entry | None], None] | None = None
    ) -> EventId:
        """Write an event: recorded first, then offered until it is committed.

        `on_settled` is called with its entry once that is folded into the state here, or with None
        where a snapshot stands for it.

        Raises:
            BusyError: the outbox is full, as while no master is known or the disk is full.
            UsageError: the event is too large.
        """
        now = clock.monotonic()
        outcome = self._order.publish(now, encode_event(event), clock.wall())
        if isinstance(outcome, OutboxFull):
            raise BusyError.because(
                "outbox_full",
                f"{outcome.count} events of this node wait for the master; no more are taken",
                "see `exoctl status`: is a master known, is the disk full?",
            )
        if on_settled is not None:
            self._waiting[outcome.proposal.id] = on_settled
        self._perform(self._replica.propose(now, (outcome.proposal,)))
        return outcome.proposal.id

    def withdraw(self, event_id: EventId, event: Event) -> None:
        """Put `event` in the place of one that was published but is not ordered yet."""
        self._waiting.pop(event_id, None)
        self._order.replace(event_id, encode_event(event))

    # -- running -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            now = clock.monotonic()
            slept_seconds = self._adjust(now)
            if slept_seconds > SLEEP_SECONDS:
                _log.warning("the machine slept for %.0f s", slept_seconds)
                self._perform(self._replica.woke(now, slept_seconds))
                self.on_wake()
            self._disk.flush(alone=self._alone())
            self._take_synced(now)
            self._yield_if_disk_is_stuck(now)
            self._perform(self._replica.tick(now))
            proposals = self._order.tick(now)
            if proposals:
                self._perform(self._replica.propose(now, proposals))
            self._snapshot_if_due()
            lone = self.is_master and not self._peers
            await self._wait_for_tick(now + (LONE_TICK_SECONDS if lone else TICK_SECONDS))

    async def _wait_for_tick(self, due: float) -> None:
        while True:
            mistake = self._mistake or self._disk.failure
            if mistake is not None:
                raise mistake
            now = clock.monotonic()
            self._take_synced(now)
            if now >= due:
                return
            await self._wakeup.wait(due - now)

    def _yield_if_disk_is_stuck(self, now: float) -> None:
        """A master whose disk takes nothing commits nothing: let another be it."""
        reason = self._disk.stuck(now)
        if reason and self.is_master and self._peers and now > self._yield_again:
            self._yield_again = now + YIELD_AGAIN_SECONDS
            _log.warning("handing mastership over, the disk: %s", reason)
            self._perform(self._replica.step_down(now))

    def _take_synced(self, now: float) -> None:
        token = self._disk.take_synced(now)
        if token is not None:
            self._perform(self._replica.synced(now, token))

    async def step_down(self) -> None:
        """Hand mastership over before a planned stop; returns when done or not possible."""
        if self._replica.role is not Role.MASTERING or not self._peers:
            return
        self._perform(self._replica.step_down(clock.monotonic()))
        for _ in range(round(STEP_DOWN_SECONDS / TICK_SECONDS)):
            if not self.is_master:
                return
            await anyio.sleep(TICK_SECONDS)

    async def close(self) -> None:
        """Write what waits and end the log's writer."""
        await self._disk.close()

    def _adjust(self, now: float) -> float:
        """Pass on what may change; returns by how much the wall clock has outrun the other one.

        The monotonic clock stands still in a Mac's sleep. A wall clock set forward looks the same,
        and costs one election.
        """
        offset_seconds = clock.wall() - now
        before, self._offset_seconds = self._offset_seconds, offset_seconds
        self._replica.adjust(priority=self.priority, wall_offset_seconds=offset_seconds)
        return offset_seconds - before if before else 0.0

    # -- figures -----------------------------------------------------------------------------------

    @property
    def cluster(self) -> ClusterId:
        """Whose log this is."""
        return self._replica.cluster

    @property
    def master(self) -> NodeId | None:
        """The master, None while there is none."""
        return self._replica.master

    @property
    def is_master(self) -> bool:
        """Whether this node decides."""
        return self._replica.role is Role.MASTERING

    @property
    def overloaded(self) -> bool:
        """The disk can't keep up: take in nothing more."""
        return self._disk.overloaded

    def is_alive(self, peer: NodeId) -> bool:
        """Whether a peer was heard lately enough."""
        return self._replica.is_alive(clock.monotonic(), peer)

    def figures(self) -> RouterFigures:
        """Where this node is in the ordered log."""
        now = clock.monotonic()
        return router_figures(
            now, self._replica, self._order, self._disk, self._elections, self._store.digest()
        )

    def disk_trouble(self) -> str:
        """What is wrong with the disk; empty while all is well."""
        return self._disk.trouble(clock.monotonic())

    # -- effects -----------------------------------------------------------------------------------

    def _perform(self, effects: tuple[Effect, ...]) -> None:
        """Perform in the order given; what is brought about meanwhile comes after."""
        self._effects.extend(effects)
        if self._performing:
            return
        self._performing = True
        try:
            while self._effects:
                self._perform_one(self._effects.popleft())
        except Exception as error:
            # Half an effect is no state to go on from: `run` ends the node with this very error.
            self._mistake = self._mistake or error
            self._wakeup.ring()
            raise
        finally:
            self._performing = False

    def _perform_one(self, effect: Effect) -> None:
        match effect:
            case Send(peer=peer, message=message):
                self._send(peer, message)
            case Write():
                self._disk.write(effect, alone=self._alone())
            case Deliver() | Rewound() | SnapshotInstalled() | SnapshotNeeded():
                self._perform_on_state(effect)
            case _:
                self._perform_on_session(effect)

    def _perform_on_state(
        self, effect: Deliver | Rewound | SnapshotInstalled | SnapshotNeeded
    ) -> None:
        match effect:
            case Deliver(entries=entries):
                self._deliver(entries)
            case Rewound(index=index):
                self._rewind(index)
            case SnapshotInstalled(image=image):
                self._install(image)
            case SnapshotNeeded():
                self._take_snapshot()
            case _:
                assert_never(effect)

    def _perform_on_session(
        self,
        effect: SessionBegan
        | BecameMaster
        | TipAppended
        | LostMastership
        | Revalidate
        | HistoryDropped,
    ) -> None:
        match effect:
            case SessionBegan(session=session, reason=reason):
                self._begin(session, reason)
            case BecameMaster(session=session, tip=tip):
                _election_log.info("this node masters term %d", session.term)
                self._desk.became_master(session, self._store.fold(self._store.state, tip))
            case TipAppended(entries=entries):
                self._desk.tip_appended(entries)
            case LostMastership(reason=reason):
                why = with_names(self._store.state, reason)
                _election_log.info("this node masters no more: %s", why)
                self._desk.lost_mastership(reason)
            case Revalidate(proposal=proposal):
                self._revalidate(proposal)
            case HistoryDropped(count=count):
                _log.error(
                    "%d events of this side of a partition can't be offered again from here", count
                )
            case _:
                assert_never(effect)

    def _begin(self, session: Session, reason: str) -> None:
        self._elections += 1
        _election_log.info(
            "session: term %d, master %s%s",
            session.term,
            name_of(self._store.state, session.master),
            f" ({with_names(self._store.state, reason)})" if reason else "",
        )
        self._store.begin(session)
        now = clock.monotonic()
        self._perform(self._replica.propose(now, self._order.session_began(now)))

    def _deliver(self, entries: tuple[Entry, ...]) -> None:
        outcome = self._order.receive(clock.monotonic(), entries)
        match outcome:
            case Released(entries=fresh, acknowledged=acknowledged):
                last = fresh[-1]
                self._applied = Position(last.session, last.index)
                self._bytes_since_snapshot += sum(len(entry.payload) for entry in fresh)
                self._store.deliver(fresh)
                self._settle(acknowledged, {entry.id: entry for entry in fresh})
                self._follow_members(last)
            case Duplicate():
                pass
            case Gap(first=first, last=last):
                # The replica promises to deliver without a gap: this is a mistake of ours.
                raise InternalError.because(
                    "delivery_gap", f"entries {first} to {last} are missing before those delivered"
                )
            case _:
                assert_never(outcome)

    def _follow_members(self, last: Entry) -> None:
        """Name the members of the state, once it has come to those that were found on disk.

        Before, entries that are delivered again name fewer than there are; a later session's entry
        shows that the log went another way meanwhile.
        """
        if last.index >= self._replay_until or last.session > self._replay_session:
            self._replay_until = -1
            self.set_peers(set(self._store.state.nodes) - {self._node})

    def _settle(self, ids: tuple[EventId, ...], entries: dict[EventId, Entry]) -> None:
        for event_id in ids:
            waiting = self._waiting.pop(event_id, None)
            if waiting is not None:
                waiting(entries.get(event_id))

    def _rewind(self, index: int) -> None:
        _log.warning("entries from %d on were withdrawn after a partition", index)
        self._order.rewind(index)
        image = self._replica.snapshot
        state = decode_state(image.state) if image is not None else State()
        position = image.position if image is not None else NO_POSITION
        entries = self._replica.entries(position.index + 1, index)
        state = self._store.fold(state, entries)
        self._applied = Position(entries[-1].session, entries[-1].index) if entries else position
        self._store.rewind(index, state)

    def _install(self, image: SnapshotImage) -> None:
        _log.info("snapshot of index %d received", image.position.index)
        settled = self._order.install(clock.monotonic(), image.position.index, image.known)
        self._applied = image.position
        self._snapshot_index = image.position.index
        self._bytes_since_snapshot = 0
        self._store.install(decode_state(image.state))
        self._settle(settled, {})
        self.set_peers(set(self._store.state.nodes) - {self._node})

    def _revalidate(self, proposal: Proposal) -> None:
        now = clock.monotonic()
        rejection = self._desk.revalidate(proposal)
        if rejection is None:
            self._perform(self._replica.accept_resubmission(now, proposal.id))
        else:
            self._perform(
                self._replica.reject_resubmission(now, proposal.id, encode_event(rejection))
            )

    def _snapshot_if_due(self) -> None:
        entries = self._applied.index - self._snapshot_index
        if entries >= SNAPSHOT_EVERY_ENTRIES or (
            entries and self._bytes_since_snapshot >= SNAPSHOT_EVERY_BYTES
        ):
            self._take_snapshot()

    def _take_snapshot(self) -> None:
        self._snapshot_index = self._applied.index
        self._bytes_since_snapshot = 0
        state = encode_state(self._store.state)
        self._perform(self._replica.compact(clock.monotonic(), self._applied, state))

    def _alone(self) -> bool:
        """Whether this disk is the only one that an entry has to be on."""
        return self.is_master and len(self._replica.in_sync) <= 1
