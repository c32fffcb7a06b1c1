"""One node's replica of the cluster's log: election, replication, commit, mending.

Pure: it takes values and the time, and returns effects.
"""

from collections.abc import Callable, Collection

import msgspec

from node.core.replica.contacts import Contacts
from node.core.replica.durable import Recovered, SnapshotImage
from node.core.replica.effects import Effect
from node.core.replica.following import ReplayGap
from node.core.replica.ledger import Ledger
from node.core.replica.messages import Proposal, Relayed, ReplicaMessage, Role
from node.core.replica.parts import Parts
from node.core.replica.roles import Roles
from node.core.replica.timing import Limits, Timing
from node.model.ids import ClusterId, NodeId
from node.model.session import Entry, EventId, Position, Session


class ReplicaFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one replica, in this life."""

    held: int
    """Proposals that wait at this master for an earlier one of their writer."""
    orphans: int
    """Withdrawn events that are being offered again."""
    sessions: int
    """Sessions this node took part in."""
    asked: int
    """How often it asked a master for entries it lacked."""
    commit_heard: int
    """The furthest commit it heard of; later than its own where entries are missing."""


class Replica:
    """Made once per process. Every method takes the monotonic time and returns effects.

    Payloads are opaque, but for those it writes itself: `SessionOpened` and `ViewChanged`, whose
    EventIds have this node's id and incarnation and sequences below zero (-1, -2, …), so that they
    never meet those of the node's outbox. They are never offered again.

    Until `found_cluster` or `join_cluster` was called once (`Recovered.cluster` is empty) it does
    nothing.
    """

    def __init__(
        self,
        node: NodeId,
        recovered: Recovered,
        timing: Timing,
        now: float,
        *,
        priority: int = 0,
        limits: Limits | None = None,
    ) -> None:
        """Start from what the disk held.

        Commit begins at the recovered snapshot; recovered entries are delivered again as a master
        says how far they are committed (a lone node's own election does so at once).
        """
        self._node = node
        self._timing = timing
        self._limits = limits or Limits()
        self._effects: list[Effect] = []
        self._ledger = Ledger(recovered, self._limits, self._effects)
        self._contacts = Contacts(node, timing, self._effects)
        self._parts = Parts(node, timing, self._limits, self._ledger, self._contacts, self._effects)
        self._roles = Roles(now, self._parts, recovered.incarnation, priority)
        self._ticked_at = now

    # -- what the shell tells it -----------------------------------------------------------

    def tick(self, now: float) -> tuple[Effect, ...]:
        """Let time pass; call every 50 ms. A gap of 2 s and more is taken for sleep."""
        gap_seconds = now - self._ticked_at
        self._ticked_at = now
        if not self.cluster:
            return ()
        if gap_seconds >= self._timing.dead_seconds:
            self._roles.wake(now, gap_seconds)
        self._contacts.observe_lag(gap_seconds, self._timing.tick_seconds)
        self._roles.tick(now)
        return self._finish(now)

    def woke(self, now: float, slept_seconds: float) -> tuple[Effect, ...]:
        """The machine slept while the monotonic clock stood still, as a Mac's does.

        Mastership is given up: others may have a master by now, and are met first.
        """
        if self.cluster:
            self._roles.wake(now, slept_seconds)
        return self._finish(now)

    def receive(self, now: float, peer: NodeId, message: ReplicaMessage) -> tuple[Effect, ...]:
        """Take a message that arrived on a live, authenticated link with `peer`.

        Messages of peers not set, of other clusters, or that contradict themselves are ignored.
        """
        if message.cluster != self._ledger.cluster or peer not in self._contacts.peers:
            return ()
        if isinstance(message, Relayed):
            self._roles.take_relayed(now, peer, message)
        else:
            self._contacts.hear(now, peer, None)
            self._roles.take(now, peer, message)
        return self._finish(now)

    def set_peers(self, now: float, peers: Collection[NodeId]) -> tuple[Effect, ...]:
        """Name the other admitted nodes. Call at start (from snapshot and recovered entries, or the
        address book), and whenever an applied entry admits or revokes one.
        """
        self._contacts.set_peers(peers)
        if self._roles.reign is not None:
            self._roles.reign.set_peers(now)
        return self._finish(now)

    def peer_up(self, now: float, peer: NodeId) -> tuple[Effect, ...]:
        """A link with the peer is up and authenticated; counts as hearing it."""
        if peer not in self._contacts.peers or not self.cluster:
            return ()
        self._contacts.hear(now, peer, None)
        self._contacts.send_directly(peer, self._roles.heartbeat(now))
        if self._roles.reign is not None:
            self._roles.reign.reconnected(now, peer)
        return self._finish(now)

    def peer_down(self, now: float, peer: NodeId, *, refused: bool) -> tuple[Effect, ...]:
        """The last link with the peer ended, or it could not be dialled.

        `refused`: its machine answered that nobody listens, so the process is gone: dead at once.
        Else it is dead in 0.3 s unless heard again. Messages of an ended link must not come later.
        """
        if peer not in self._contacts.peers or not self.cluster:
            return ()
        self._contacts.lose(now, peer, refused=refused)
        if self._roles.following is not None and self._roles.following.master == peer:
            # Say at once that this node vouches for it no more: others wait for that.
            self._roles.beat(now)
        return self._finish(now)

    def propose(self, now: float, proposals: tuple[Proposal, ...]) -> tuple[Effect, ...]:
        """Offer events of this node's own outbox; without a session they are dropped, and the
        outbox offers them again when one begins.
        """
        self._roles.propose(proposals)
        return self._finish(now)

    def synced(self, now: float, token: int) -> tuple[Effect, ...]:
        """The write with this token, and all before it, are on disk."""
        self._ledger.synced(token)
        return self._finish(now)

    def accept_resubmission(self, now: float, event_id: EventId) -> tuple[Effect, ...]:
        """The event of a `Revalidate` still holds: append it, marked."""
        if self._roles.reign is not None:
            self._roles.reign.settle_resubmission(event_id, None)
        return self._finish(now)

    def reject_resubmission(
        self, now: float, event_id: EventId, payload: bytes
    ) -> tuple[Effect, ...]:
        """It holds no more: append `payload`, an encoded `ProposalRejected`, under the same id."""
        if self._roles.reign is not None:
            self._roles.reign.settle_resubmission(event_id, payload)
        return self._finish(now)

    def compact(self, now: float, position: Position, state: bytes) -> tuple[Effect, ...]:
        """Take a snapshot: `state` is the encoded state after the entry at `position`.

        Ignored where that entry was withdrawn meanwhile, is not committed, or an equal or later
        snapshot exists.
        """
        self._ledger.compact(position, state)
        return self._finish(now)

    def found_cluster(self, now: float, cluster: ClusterId, founding: bytes) -> tuple[Effect, ...]:
        """Begin a new log as its only member and master; entry 0 has the payload `founding`, an
        encoded `ClusterFounded`. The disk archives the old log. Peers are none from now on.
        """
        self._roles.leave_role("another cluster was founded")
        self._contacts.set_peers(())
        self._ledger.begin_cluster(cluster)
        self._roles.lead(now, "founded", founding)
        return self._finish(now)

    def join_cluster(self, now: float, cluster: ClusterId) -> tuple[Effect, ...]:
        """Give up the own log (the disk archives it) and wait for that cluster's master.

        It never masters before it has an entry or a snapshot of it. Name the peers afterwards.
        """
        self._roles.look(now, "joining another cluster")
        self._contacts.set_peers(())
        self._ledger.begin_cluster(cluster)
        return self._finish(now)

    def step_down(self, now: float) -> tuple[Effect, ...]:
        """Hand mastership over, if this node has it, to a peer whose log is complete, within 0.3 s:
        ready when `role` is no longer MASTERING. It then stands for no election for 10 s.
        """
        self._roles.step_down(now)
        return self._finish(now)

    def check_states(self, is_state: Callable[[bytes], bool]) -> None:
        """Take a peer's snapshot only where `is_state` can read the state in it."""
        self._ledger.is_state = is_state

    def adjust(self, *, priority: int, wall_offset_seconds: float) -> None:
        """Set what may change: among equally complete logs the greater priority masters; the wall
        clock less the monotonic one stamps the log's own entries, for people.
        """
        self._roles.priority = priority
        self._roles.wall_offset_seconds = wall_offset_seconds

    # -- what others may look at -----------------------------------------------------------

    @property
    def cluster(self) -> ClusterId:
        """Whose log this is; empty before the first."""
        return self._ledger.cluster

    @property
    def role(self) -> Role:
        """LOOKING, FOLLOWING or MASTERING."""
        return self._roles.role

    @property
    def session(self) -> Session:
        """The session it is in, or was in last while looking."""
        return self._ledger.session

    @property
    def master(self) -> NodeId | None:
        """The master it follows, itself where it masters, None while looking."""
        if self._roles.reign is not None:
            return self._node
        return None if self._roles.following is None else self._roles.following.master

    @property
    def commit_index(self) -> int:
        """Index of the last committed entry; -1 before the first."""
        return self._ledger.commit_index

    @property
    def last_index(self) -> int:
        """Index of the last entry, committed or not."""
        return self._ledger.log.last_index

    @property
    def last_position(self) -> Position:
        """Session and index of the last entry."""
        return self._ledger.log.last

    @property
    def first_index(self) -> int:
        """Index of the first entry kept in the log."""
        return self._ledger.log.first_index

    @property
    def in_sync(self) -> tuple[NodeId, ...]:
        """While mastering: nodes whose disks must hold an entry for it to commit, itself included;
        sorted. Empty otherwise.
        """
        return () if self._roles.reign is None else self._roles.reign.in_sync

    @property
    def snapshot(self) -> SnapshotImage | None:
        """The latest snapshot."""
        return self._ledger.snapshot

    def entries(self, first: int, stop: int) -> tuple[Entry, ...]:
        """Entries first..stop-1 as far as the log has them."""
        return self._ledger.log.slice(first, stop)

    def is_alive(self, now: float, peer: NodeId) -> bool:
        """Whether the peer was heard lately enough."""
        return self._contacts.is_alive(now, peer)

    def gap(self, now: float) -> ReplayGap | None:
        """Committed entries that have not come here for a while; None while nothing is missing."""
        following = self._roles.following
        return None if following is None else following.gap(now)

    @property
    def figures(self) -> ReplicaFigures:
        """Counts for people to see."""
        following, reign = self._roles.following, self._roles.reign
        commit_heard = -1 if following is None else following.commit_heard
        return ReplicaFigures(
            held=0 if reign is None else reign.held,
            orphans=sum(1 for _ in self._ledger.orphans_waiting()),
            sessions=self._roles.sessions,
            asked=self._roles.asked,
            commit_heard=max(commit_heard, self._ledger.commit_index),
        )

    def _finish(self, now: float) -> tuple[Effect, ...]:
        if self._roles.reign is not None:
            self._roles.reign.finish(now)
        ledger = self._ledger
        write = ledger.take_write()
        for held in ledger.take_ready():
            self._contacts.send(held.peer, held.message)
        if write is None and not self._effects:
            return ()
        effects = (*self._effects,) if write is None else (write, *self._effects)
        self._effects.clear()
        return effects
