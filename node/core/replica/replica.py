"""One node's replica of the cluster's log: election, replication, commit, mending.

Pure: it takes values and the time, and returns effects.
"""

from collections.abc import Collection

from node.core.replica.durable import Recovered, SnapshotImage
from node.core.replica.effects import Effect
from node.core.replica.messages import Proposal, ReplicaMessage, Role
from node.core.replica.timing import Limits, Timing
from node.model.ids import ClusterId, NodeId
from node.model.session import Entry, EventId, Position, Session


class Replica:
    """Made once per process. Every method takes the monotonic time and returns effects.

    Payloads are opaque, but for those it writes itself: `SessionOpened` and `ViewChanged`, whose
    EventIds have this node's id and incarnation and sequences below zero (-1, -2, …), so that they
    never meet those of the node's outbox. They are never offered again.

    Until `found_cluster` or `join_cluster` was called once (`Recovered.cluster` is empty) it does
    nothing.
    """

    wall_offset_seconds: float
    """Wall clock less monotonic clock, kept up to date by the shell; stamps entries for people."""
    priority: int
    """Among equally complete logs the greater one masters. The shell sets it."""

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
        raise NotImplementedError

    # -- what the shell tells it ------------------------------------------------------------------

    def tick(self, now: float) -> tuple[Effect, ...]:
        """Let time pass; call every 50 ms. A gap of 2 s and more is taken for sleep."""
        raise NotImplementedError

    def receive(self, now: float, peer: NodeId, message: ReplicaMessage) -> tuple[Effect, ...]:
        """Take a message that arrived on a live, authenticated link with `peer`.

        Messages of peers not set, of other clusters, or that contradict themselves are ignored.
        """
        raise NotImplementedError

    def set_peers(self, now: float, peers: Collection[NodeId]) -> tuple[Effect, ...]:
        """Name the other admitted nodes. Call at start (from snapshot and recovered entries, or the
        address book), and whenever an applied entry admits or revokes one.
        """
        raise NotImplementedError

    def peer_up(self, now: float, peer: NodeId) -> tuple[Effect, ...]:
        """A link with the peer is up and authenticated; counts as hearing it."""
        raise NotImplementedError

    def peer_down(self, now: float, peer: NodeId, *, refused: bool) -> tuple[Effect, ...]:
        """The link with the peer ended, or it could not be dialled.

        `refused`: its machine answered that nobody listens, so the process is gone: dead at once.
        Else it is dead in 0.3 s unless heard again. Messages of an ended link must not come later.
        """
        raise NotImplementedError

    def propose(self, now: float, proposals: tuple[Proposal, ...]) -> tuple[Effect, ...]:
        """Offer events of this node's own outbox; without a session they are dropped, and the
        outbox offers them again when one begins.
        """
        raise NotImplementedError

    def synced(self, now: float, token: int) -> tuple[Effect, ...]:
        """The write with this token, and all before it, are on disk."""
        raise NotImplementedError

    def accept_resubmission(self, now: float, event_id: EventId) -> tuple[Effect, ...]:
        """The event of a `Revalidate` still holds: append it, marked."""
        raise NotImplementedError

    def reject_resubmission(
        self, now: float, event_id: EventId, payload: bytes
    ) -> tuple[Effect, ...]:
        """It holds no more: append `payload`, an encoded `ProposalRejected`, under the same id."""
        raise NotImplementedError

    def compact(self, now: float, position: Position, state: bytes) -> tuple[Effect, ...]:
        """Take a snapshot: `state` is the encoded state after the entry at `position`.

        Ignored where that entry was withdrawn meanwhile, is not committed, or an equal or later
        snapshot exists.
        """
        raise NotImplementedError

    def found_cluster(self, now: float, cluster: ClusterId, founding: bytes) -> tuple[Effect, ...]:
        """Begin a new log as its only member and master; entry 0 has the payload `founding`, an
        encoded `ClusterFounded`. The disk archives the old log. Peers are none from now on.
        """
        raise NotImplementedError

    def join_cluster(self, now: float, cluster: ClusterId) -> tuple[Effect, ...]:
        """Give up the own log (the disk archives it) and wait for that cluster's master.

        It never masters before it has an entry or a snapshot of it. Name the peers afterwards.
        """
        raise NotImplementedError

    def step_down(self, now: float) -> tuple[Effect, ...]:
        """Hand mastership over, if this node has it, to a peer whose log is complete, within 0.3 s:
        ready when `role` is no longer MASTERING. It then stands for no election for 10 s.
        """
        raise NotImplementedError

    # -- what others may look at -------------------------------------------------------------------

    @property
    def cluster(self) -> ClusterId:
        """Whose log this is; empty before the first."""
        raise NotImplementedError

    @property
    def role(self) -> Role:
        """LOOKING, FOLLOWING or MASTERING."""
        raise NotImplementedError

    @property
    def session(self) -> Session:
        """The session it is in, or was in last while looking."""
        raise NotImplementedError

    @property
    def master(self) -> NodeId | None:
        """The master it follows, itself where it masters, None while looking."""
        raise NotImplementedError

    @property
    def commit_index(self) -> int:
        """Index of the last committed entry; -1 before the first."""
        raise NotImplementedError

    @property
    def last_index(self) -> int:
        """Index of the last entry, committed or not."""
        raise NotImplementedError

    @property
    def first_index(self) -> int:
        """Index of the first entry kept in the log."""
        raise NotImplementedError

    @property
    def in_sync(self) -> tuple[NodeId, ...]:
        """While mastering: nodes whose disks must hold an entry for it to commit, itself included;
        sorted. Empty otherwise.
        """
        raise NotImplementedError

    @property
    def snapshot(self) -> SnapshotImage | None:
        """The latest snapshot."""
        raise NotImplementedError

    def entries(self, first: int, stop: int) -> tuple[Entry, ...]:
        """Entries first..stop-1 as far as the log has them."""
        raise NotImplementedError

    def is_alive(self, now: float, peer: NodeId) -> bool:
        """Whether the peer was heard lately enough."""
        raise NotImplementedError
