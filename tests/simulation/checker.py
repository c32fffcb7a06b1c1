"""The invariants of the replicated log, checked as it is written and once more at the end.

I1  a session is declared once
I2  the same (session, index) holds the same event after the same session, on every node, for ever
I3  a consumer's indices rise by one, or it is told to rewind or given a snapshot
I4  sessions never decrease along a log
I5  with one failure at a time and no partition, an acknowledged event never moves
I6  an event is in a log at most once
I7  every acknowledged event is in the final log of every node
I8  the same where a master is lost for good, without a partition
I9  once the faults stop: one master, equal logs, everything committed
I10 the state folded from the whole log is that of every node, by snapshot and tail or not
I11 queues stay within their bounds
I12 among unmarked entries of one life of one writer, sequences rise along the log
"""

import hashlib
from collections.abc import Iterable

from node.core.replica.durable import Appended, SessionKept, SnapshotKept, Truncated
from node.core.replica.effects import Write
from node.core.replica.messages import Append, ReplicaMessage, Submit
from node.core.replica.timing import Limits
from node.model.ids import NodeId
from node.model.session import NO_POSITION, NO_SESSION, Entry, EventId, Position, Session


class ViolationError(AssertionError):
    """An invariant does not hold."""


def fold(state: int, entry: Entry) -> int:
    """A state of one number: the fold of every entry so far, the same in every process."""
    seed = int.from_bytes(entry.payload[:8].ljust(8, b"\0"), "big")
    mixed = seed ^ (entry.index << 20) ^ entry.id.sequence ^ (entry.id.incarnation << 40)
    return (state * 6364136223846793005 + mixed) & 0xFFFFFFFFFFFFFFFF


class _Shadow:
    """The sessions along one node's log, as its writes say."""

    def __init__(self) -> None:
        self.first = 0
        self.before: Session = NO_SESSION
        self.sessions: list[Session] = []

    def last_session(self) -> Session:
        return self.sessions[-1] if self.sessions else self.before


class Checker:
    """Sees every write, delivery and acknowledgement of every node."""

    def __init__(self) -> None:
        self._history: dict[Position, tuple[Entry, Session]] = {}
        self._declared: set[Session] = set()
        self._shadows: dict[NodeId, _Shadow] = {}
        self.acknowledged: dict[EventId, Position] = {}
        self.moved = 0

    def booted(self, node: NodeId, entries: tuple[Entry, ...], before: Position) -> None:
        """A node starts with these entries in its log."""
        shadow = self._shadows[node] = _Shadow()
        shadow.first = before.index + 1
        shadow.before = before.session
        shadow.sessions = [entry.session for entry in entries]

    def wrote(self, node: NodeId, write: Write) -> None:
        """I1, I2, I4: as soon as a node means to write it."""
        shadow = self._shadows[node]
        for record in write.records:
            match record:
                case Appended(entries):
                    for entry in entries:
                        self._appended(node, shadow, entry)
                case Truncated(index):
                    del shadow.sessions[index - shadow.first :]
                case SessionKept(session):
                    if session.master == node:
                        if session in self._declared:
                            raise ViolationError(f"I1: {node} declares {session} again")
                        self._declared.add(session)
                case SnapshotKept(image, log_reset) if log_reset:
                    self.booted(node, (), image.position)
                case _:
                    pass

    def _appended(self, node: NodeId, shadow: _Shadow, entry: Entry) -> None:
        previous = shadow.last_session()
        if entry.index != shadow.first + len(shadow.sessions):
            raise ViolationError(f"I3: {node} appends index {entry.index} out of turn")
        if previous > entry.session:
            raise ViolationError(f"I4: {node} appends {entry.session} after {previous}")
        shadow.sessions.append(entry.session)
        key = Position(entry.session, entry.index)
        seen = self._history.setdefault(key, (entry, previous))
        if seen[1] != previous or (seen[0] is not entry and seen[0] != entry):
            raise ViolationError(f"I2: {node} has {entry.id} after {previous} at {key}, not {seen}")

    def sent(self, message: ReplicaMessage, limits: Limits) -> None:
        """I11: no message is larger than agreed, but for a single entry that is."""
        if isinstance(message, Append):
            sizes = [len(entry.payload) for entry in message.entries]
            count_max = limits.entries_per_append
        elif isinstance(message, Submit):
            sizes = [len(proposal.payload) for proposal in message.proposals]
            count_max = limits.proposals_per_submit
        else:
            return
        if len(sizes) > count_max or (len(sizes) > 1 and sum(sizes) > limits.bytes_per_append):
            raise ViolationError(f"I11: {len(sizes)} events of {sum(sizes)} bytes in one message")

    def acknowledge(self, ids: Iterable[EventId], entries: tuple[Entry, ...]) -> None:
        """A writer saw its events committed."""
        places = {entry.id: Position(entry.session, entry.index) for entry in entries}
        for event_id in ids:
            self.acknowledged.setdefault(event_id, places.get(event_id, NO_POSITION))

    def sessions_declared(self) -> int:
        """How many sessions there were."""
        return len(self._declared)

    def whole_log(self, last: Position) -> list[Entry]:
        """Every entry from 0 to `last`, by the links that I2 checked."""
        entries: list[Entry] = []
        while last.index >= 0:
            entry, previous = self._history[last]
            entries.append(entry)
            last = Position(previous, last.index - 1)
        entries.reverse()
        return entries

    def check_log(self, entries: list[Entry], losses_reported: int) -> tuple[int, str]:
        """I5's measure, I6, I7, I12 on the final log; returns its fold and digest."""
        places: dict[EventId, Position] = {}
        latest: dict[tuple[NodeId, int], int] = {}
        state = 0
        digest = hashlib.blake2b(digest_size=16)
        for entry in entries:
            state = fold(state, entry)
            event_id = entry.id
            digest.update(f"{entry.session} {event_id}".encode())
            if event_id in places:
                raise ViolationError(f"I6: {event_id} at {places[event_id]} and at {entry.index}")
            places[event_id] = Position(entry.session, entry.index)
            if entry.resubmitted or event_id.sequence < 0:
                continue
            writer = (event_id.origin, event_id.incarnation)
            if event_id.sequence < latest.get(writer, 0):
                raise ViolationError(f"I12: {event_id} after sequence {latest[writer]}")
            latest[writer] = event_id.sequence
        lost = [event_id for event_id in self.acknowledged if event_id not in places]
        if len(lost) > losses_reported:
            raise ViolationError(f"I7: {len(lost)} acknowledged events lost, such as {lost[0]}")
        self.moved = sum(
            place != NO_POSITION and places.get(event_id) != place
            for event_id, place in self.acknowledged.items()
        )
        return state, digest.hexdigest()
