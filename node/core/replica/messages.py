"""Messages between replicas. Each carries the cluster it belongs to; others are dropped unread.

Sent as msgpack arrays with a tag: fields are only ever appended, each with a default.
"""

from enum import IntEnum

import msgspec

from node.model.ids import ClusterId, NodeId
from node.model.session import Entry, EventId, Position, Session

PAYLOAD_BYTES_MAX = 256 * 1024
"""Of one event; with others around it, it has to fit into one frame between nodes."""


class Role(IntEnum):
    """What a replica is doing; travels as a number."""

    LOOKING = 0
    FOLLOWING = 1
    MASTERING = 2


class Proposal(msgspec.Struct, frozen=True, array_like=True):
    """An event offered to the master, not yet ordered."""

    id: EventId
    payload: bytes
    floor: int
    """The lowest sequence still in its writer's outbox: what the master may wait for."""
    resubmitted: bool = False
    """Withdrawn from a log after a partition and offered again: exempt from its writer's order."""
    written_at: float = 0.0


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Every 250 ms to every peer: where the sender stands."""

    cluster: ClusterId
    incarnation: int
    role: Role
    session: Session
    """The session the sender masters, follows, or last was in."""
    master: NodeId
    """The master it vouches for, because it hears it; itself where it masters; else empty."""
    last: Position
    commit: int
    view_size: int
    """Where it masters: how many nodes hear it as their master, itself included; else 0."""
    priority: int
    term_highest: int
    relayed: bool = False
    """It hears that master by way of a third node: it can't relay to it in turn."""


class Campaign(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """While looking, every 100 ms: the sender would master, with this log."""

    cluster: ClusterId
    last: Position
    priority: int
    term_highest: int


class Append(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """From the master: entries that follow `previous`; none, to tell the commit index alone."""

    cluster: ClusterId
    session: Session
    previous: Position
    entries: tuple[Entry, ...]
    commit: int


class AppendAck(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """To the master: entries up to `match` equal its own and are on this disk."""

    cluster: ClusterId
    session: Session
    match: int


class AppendNack(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """To the master: those entries don't fit; go on from `hint`."""

    cluster: ClusterId
    session: Session
    """The session of the master that is refused or asked."""
    session_own: Session
    """The session of the sender; later than `session` where it refuses a master of the past."""
    hint: int
    snapshot_wanted: bool = False
    """The logs part below the sender's snapshot: only a snapshot can mend that."""
    first_index: int = 0
    """The first entry that the sender's log still has."""
    master: NodeId = NodeId("")
    """The master the sender vouches for, where it refuses another."""


class Submit(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """To the master: order these."""

    cluster: ClusterId
    proposals: tuple[Proposal, ...]


class SnapshotChunk(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """From the master, on the bulk link: a piece of a compressed snapshot."""

    cluster: ClusterId
    session: Session
    position: Position
    offset: int
    bytes_total: int
    chunk: bytes


class SnapshotAck(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """To the master: every byte of that snapshot before `bytes_received` is here."""

    cluster: ClusterId
    session: Session
    position: Position
    bytes_received: int


class Yield(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """From the master, to every peer: `successor` masters from now on, its log is complete."""

    cluster: ClusterId
    session: Session
    successor: NodeId
    last: Position


DirectMessage = (
    Heartbeat
    | Campaign
    | Append
    | AppendAck
    | AppendNack
    | Submit
    | SnapshotChunk
    | SnapshotAck
    | Yield
)


class Relayed(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """By way of a node that reaches both: a message between two that don't reach each other."""

    cluster: ClusterId
    origin: NodeId
    target: NodeId
    message: DirectMessage


ReplicaMessage = DirectMessage | Relayed
