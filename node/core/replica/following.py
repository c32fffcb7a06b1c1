"""One time of following a master: takes its entries and snapshots, and asks where it is behind."""

import math

import msgspec

from node.core.replica.durable import SnapshotImage
from node.core.replica.ledger import Ledger
from node.core.replica.messages import (
    Append,
    AppendAck,
    AppendNack,
    SnapshotAck,
    SnapshotChunk,
)
from node.core.replica.parts import Parts
from node.core.replica.transfer import SnapshotReceiver, unpack_image
from node.model.ids import NodeId
from node.model.session import Entry, Position, Session


class ReplayGap(msgspec.Struct, frozen=True):
    """Entries that the master has committed and that have not come for a while."""

    first: int
    last: int
    asked: int
    """How often they were asked for."""


class Following:
    """Made when a replica begins to follow a session; what outlives it is in the ledger."""

    def __init__(self, now: float, parts: Parts, session: Session) -> None:
        self._parts = parts
        self._ledger: Ledger = parts.ledger
        self._session = session
        self._receiver: SnapshotReceiver | None = None
        self._verified = -1
        self._parted = False
        """The logs part below the own snapshot: the master's must be taken, wherever it stands."""
        self._behind_since = math.inf
        self._ask_at = -math.inf
        self._ask_seconds = parts.timing.resubmit_seconds
        self.heard_at = now
        """When the master last showed that it masters this session."""
        self.commit_heard = -1
        """How far the master has committed, as last heard."""
        self.asked = 0
        """How often this node asked for what it lacks."""
        self._asked_before = 0

    @property
    def master(self) -> NodeId:
        """The node that masters the session."""
        return self._session.master

    def hello(self) -> None:
        """Tell the master where this log ends, so that it need not guess."""
        self._refuse(self._ledger.log.last_index + 1)

    # -- entries ---------------------------------------------------------------------------

    def append(self, now: float, message: Append) -> None:
        """Take the master's entries where they fit on this log; else say where to go on from."""
        self.heard_at = now
        if not _is_sound(message):
            return
        previous = message.previous
        snapshot_index = self._ledger.snapshot_index
        log = self._ledger.log
        if previous.index > log.last_index:
            self._refuse(log.last_index + 1)
        elif previous.index < log.first_index - 1:
            self._refuse(log.first_index)
        elif previous.index >= 0 and log.session_at(previous.index) != previous.session:
            if previous.index <= snapshot_index:
                self._refuse(log.first_index, snapshot_wanted=True)
            else:
                self._refuse(max(log.session_start(previous.index), snapshot_index + 1))
        elif self._take(message.entries):
            verified = previous.index + len(message.entries)
            self._verified = max(self._verified, verified)
            self.hear_commit(now, message.commit)
            if message.entries:
                acknowledgement = AppendAck(self._ledger.cluster, self._session, self._verified)
                self._ledger.hold(self.master, acknowledgement)
        else:
            self._refuse(log.first_index, snapshot_wanted=True)

    def _take(self, entries: tuple[Entry, ...]) -> bool:
        """Append what is new; False where the logs part below the snapshot."""
        log = self._ledger.log
        for entry in entries:
            if entry.index <= log.last_index:
                if log.session_at(entry.index) == entry.session:
                    continue
                if entry.index <= self._ledger.snapshot_index:
                    return False
                self._ledger.truncate(entry.index)
            self._ledger.append(entry)
        return True

    def hear_commit(self, now: float, commit: int) -> None:
        """The master committed so far; what is verified of it is committed here."""
        self.commit_heard = max(self.commit_heard, commit)
        self._ledger.commit_to(min(commit, self._verified))
        if self._ledger.commit_index >= self.commit_heard:
            self._behind_since = math.inf
            self._ask_seconds = self._parts.timing.resubmit_seconds
            self._asked_before = self.asked
        elif self._behind_since == math.inf:
            self._behind_since = now

    def gap(self, now: float) -> ReplayGap | None:
        """What has been missing for longer than it takes to come by itself."""
        if now - self._behind_since < self._parts.timing.stall_seconds:
            return None
        first = self._ledger.commit_index + 1
        return ReplayGap(first, self.commit_heard, self.asked - self._asked_before)

    def tick(self, now: float) -> None:
        """Ask again for what is missing, ever more seldom while nothing comes."""
        if now - self._behind_since < self._parts.timing.stall_seconds or now < self._ask_at:
            return
        self._ask_at = now + self._ask_seconds
        self._ask_seconds = min(self._ask_seconds * 2, self._parts.timing.resubmit_seconds_max)
        self.asked += 1
        self._refuse(min(self._ledger.log.last_index, max(self._verified, -1)) + 1)

    def _refuse(self, hint: int, *, snapshot_wanted: bool = False) -> None:
        ledger = self._ledger
        self._parted = self._parted or snapshot_wanted
        message = AppendNack(
            ledger.cluster,
            self._session,
            ledger.session,
            hint,
            snapshot_wanted,
            ledger.log.first_index,
        )
        self._parts.contacts.send(self.master, message)

    # -- snapshots -------------------------------------------------------------------------

    def take_chunk(self, now: float, message: SnapshotChunk) -> None:
        """Gather a snapshot; install it when complete, unless this log holds its position."""
        self.heard_at = now
        position = message.position
        held = self._ledger.log.session_at(position.index) == position.session
        if not self._parted and (held or position.index <= self._verified):
            self._caught_up(position)
            return
        receiver = self._receiver
        if receiver is None or not receiver.is_for(message):
            if not 0 < message.bytes_total <= self._parts.limits.snapshot_bytes:
                return
            receiver = self._receiver = SnapshotReceiver(position, message.bytes_total)
        packed = receiver.take(message)
        if packed is None:
            self._acknowledge_chunk(position, receiver.bytes_received)
            return
        self._receiver = None
        image = unpack_image(packed, self._parts.limits.snapshot_bytes)
        if image is None or not self._is_wanted(image, position):
            self._acknowledge_chunk(position, 0)
            return
        self._parted = False
        self._ledger.install(image)
        # What lay beyond, though it had been found equal, is not in this log any more.
        self._verified = position.index
        self._caught_up(position)

    def _is_wanted(self, image: SnapshotImage, position: Position) -> bool:
        is_its = image.position == position and image.cluster == self._ledger.cluster
        return is_its and self._ledger.is_state(image.state)

    def _caught_up(self, position: Position) -> None:
        self._verified = max(self._verified, position.index)
        acknowledgement = AppendAck(self._ledger.cluster, self._session, self._verified)
        self._ledger.hold(self.master, acknowledgement)

    def _acknowledge_chunk(self, position: Position, bytes_received: int) -> None:
        message = SnapshotAck(self._ledger.cluster, self._session, position, bytes_received)
        self._parts.contacts.send(self.master, message)


def _is_sound(message: Append) -> bool:
    """Whether entries are contiguous after `previous` and sessions rise to the message's."""
    index = message.previous.index
    session = message.previous.session
    for entry in message.entries:
        index += 1
        if entry.index != index or entry.session < session:
            return False
        session = entry.session
    return session <= message.session and message.previous.index >= -1
