"""Sessions and the ordered log's entries.

A session is one master's reign, carried in band as a value: nothing is created anew when it
changes. The index of an entry goes on over sessions, from 0 for the life of the cluster.
"""

import msgspec

from node.model.ids import NodeId


class Session(msgspec.Struct, frozen=True, order=True, array_like=True):
    """One master's reign; a later one compares greater. Unique without a quorum: a node raises its
    incarnation on disk at every start, so it can't declare the same session twice.
    """

    term: int
    master: NodeId
    incarnation: int


NO_SESSION = Session(term=0, master=NodeId(""), incarnation=0)


class EventId(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Who wrote an event, in which life of its process, as the how-manieth (from 1)."""

    origin: NodeId
    incarnation: int
    sequence: int


class Position(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A place in the log: the session that wrote it and its index. Orders logs by completeness."""

    session: Session
    index: int


NO_POSITION = Position(session=NO_SESSION, index=-1)


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """An event at its place in the log.

    `payload` is the msgpack of an `Event`; the log never looks into it, so that a node stores and
    forwards an event that it does not know. `resubmitted` marks an entry that was truncated after a
    partition or overlapping crashes and offered again: it is exempt from its writer's order.
    """

    session: Session
    index: int
    id: EventId
    payload: bytes
    resubmitted: bool = False
    written_at: float = 0.0
    """Wall clock of the writer, seconds since 1970; for people to read, never compared."""


class SessionStarted(msgspec.Struct, frozen=True, tag=True):
    """Stream item: entries that follow belong to this session."""

    session: Session


class Rewind(msgspec.Struct, frozen=True, tag=True):
    """Stream item: entries from `index` on were withdrawn by a heal; rebuild the state."""

    index: int
