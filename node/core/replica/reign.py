"""One mastership: orders proposals, replicates the log, decides what is committed."""

import math

import msgspec

from node.core.reorder_buffer import Released, ReorderBuffer
from node.core.replica.effects import Revalidate, SnapshotNeeded, TipAppended
from node.core.replica.messages import (
    PAYLOAD_BYTES_MAX,
    Append,
    AppendAck,
    AppendNack,
    Proposal,
    SnapshotAck,
    Yield,
)
from node.core.replica.parts import Parts
from node.core.replica.transfer import SnapshotSender, pack_image
from node.model.event import ViewChanged
from node.model.ids import NodeId
from node.model.session import NO_SESSION, Entry, EventId, Position

_SNAPSHOT_NEEDED_SECONDS = 1.0


class Progress:
    """How far one peer's log is known to equal the master's."""

    __slots__ = ("match", "next", "probing", "progress_at", "sent_at", "transfer")

    def __init__(self, now: float, next_index: int) -> None:
        self.match = -1
        """The last index known to be equal and on the peer's disk."""
        self.next = next_index
        """The first index to send."""
        self.probing = True
        """Not known where the logs part: one message at a time."""
        self.sent_at = -math.inf
        self.progress_at = now
        """When it last acknowledged something, or last had nothing to acknowledge."""
        self.transfer: SnapshotSender | None = None


class Reign:
    """Made at the start of a session, left at its end; what outlives it is in the ledger.

    An entry is committed once it is on the disks of the in-sync set: at first every peer alive. A
    peer leaves the set when it is dead or makes no progress, and is back when it has caught up.
    """

    def __init__(self, now: float, parts: Parts) -> None:
        self._parts = parts
        self._ledger = parts.ledger
        self._contacts = parts.contacts
        self._session = parts.ledger.session
        self._reorder: ReorderBuffer[Proposal] = ReorderBuffer(parts.limits.held_per_writer)
        self._revalidating: dict[EventId, Proposal] = {}
        self._progress: dict[NodeId, Progress] = {}
        self._in_sync: set[NodeId] = set()
        self._view: tuple[NodeId, ...] = ()
        self._view_at = -math.inf
        self._tip: list[Entry] = []
        self._snapshot_needed_at = -math.inf
        self._packed: tuple[Position, bytes] | None = None
        self._yield_deadline = math.inf
        self.set_peers(now)
        self._in_sync.update(self._contacts.alive(now))

    # -- what is seen from outside ---------------------------------------------------------

    @property
    def in_sync(self) -> tuple[NodeId, ...]:
        """Nodes whose disks must hold an entry, this one included, sorted."""
        return tuple(sorted({self._parts.node, *self._in_sync}))

    @property
    def held(self) -> int:
        """Proposals that wait for an earlier one of their writer."""
        return self._reorder.held

    # -- proposals -------------------------------------------------------------------------

    def offer(self, proposal: Proposal) -> None:
        """Order a proposal, hold it back, ask about it, or drop it."""
        if self._yield_deadline < math.inf or proposal.id.sequence < 1:
            return
        if len(proposal.payload) > PAYLOAD_BYTES_MAX:
            return
        if proposal.id in self._ledger.known:
            return
        present = self._ledger.known.sequences(proposal.id)
        last = present.last()
        if proposal.resubmitted or (last is not None and proposal.id.sequence < last):
            # A straggler whose successors are in the log can't enter in its writer's order either.
            self._ask(proposal)
            return
        outcome = self._reorder.offer(proposal.id, proposal.floor, proposal, present)
        if isinstance(outcome, Released):
            for item in outcome.items:
                self._append_proposal(item, item.payload)

    def settle_resubmission(self, event_id: EventId, payload: bytes | None) -> None:
        """The shell looked at a resubmission: append it, or `payload` in its place."""
        proposal = self._revalidating.pop(event_id, None)
        if proposal is not None and event_id not in self._ledger.known:
            self._append_proposal(proposal, proposal.payload if payload is None else payload)

    def append_control(self, event_id: EventId, payload: bytes, written_at: float) -> None:
        """Append an entry of the log itself."""
        index = self._ledger.log.last_index + 1
        self._append(Entry(self._session, index, event_id, payload, written_at=written_at))

    def _ask(self, proposal: Proposal) -> None:
        has_room = len(self._revalidating) < self._parts.limits.revalidations
        if has_room or proposal.id in self._revalidating:
            marked = msgspec.structs.replace(proposal, resubmitted=True)
            self._revalidating[proposal.id] = marked
            self._parts.effects.append(Revalidate(marked))

    def _append_proposal(self, proposal: Proposal, payload: bytes) -> None:
        self._reorder.forget(proposal.id)
        self._append(
            Entry(
                self._session,
                self._ledger.log.last_index + 1,
                proposal.id,
                payload,
                proposal.resubmitted,
                proposal.written_at,
            )
        )

    def _append(self, entry: Entry) -> None:
        self._ledger.append(entry)
        self._tip.append(entry)

    # -- time ------------------------------------------------------------------------------

    def set_peers(self, now: float) -> None:
        """Peers were admitted or revoked."""
        following = self._ledger.log.last_index + 1
        self._progress = {
            peer: self._progress.get(peer) or Progress(now, following)
            for peer in self._contacts.peers
        }
        self._in_sync &= self._progress.keys()

    def tick(self, now: float) -> None:
        """Let laggards go, send again what was lost, move commit."""
        last_index = self._ledger.log.last_index
        lag_seconds = self._parts.timing.lag_seconds
        for peer in sorted(self._in_sync):
            progress = self._progress[peer]
            lags = progress.match < last_index and now - progress.progress_at > lag_seconds
            if lags or not self._contacts.is_alive(now, peer):
                self._in_sync.discard(peer)
        for peer, progress in self._progress.items():
            unacknowledged = progress.match < progress.next - 1 or progress.probing
            waited = now - max(progress.sent_at, progress.progress_at)
            if unacknowledged and waited > self._parts.timing.retransmit_seconds:
                self._resend(progress)
            self._replicate(now, peer, progress)

    def view_to_record(self, now: float) -> ViewChanged | None:
        """The in-sync set, if it changed and the last change was not just now."""
        view = self.in_sync
        if view == self._view or now - self._view_at < self._parts.timing.view_seconds:
            return None
        self._view = view
        self._view_at = now
        return ViewChanged(in_sync=view)

    def finish(self, now: float) -> None:
        """After each step: say what the tip gained, send it on, commit what can be."""
        if self._tip:
            self._parts.effects.append(TipAppended(tuple(self._tip)))
            self._tip.clear()
            self.replicate(now)
        self._advance(now)

    def open(self, now: float) -> tuple[Entry, ...]:
        """Once the session's first entries are appended: send them on; returns the tip so far."""
        self._tip.clear()
        self.replicate(now)
        log = self._ledger.log
        return log.slice(self._ledger.commit_index + 1, log.last_index + 1)

    def replicate(self, now: float) -> None:
        """Send every peer what it lacks, within its window."""
        for peer, progress in self._progress.items():
            self._replicate(now, peer, progress)

    def reconnected(self, now: float, peer: NodeId) -> None:
        """What was under way to the peer is lost."""
        progress = self._progress[peer]
        self._resend(progress)
        self._replicate(now, peer, progress)

    # -- replication -----------------------------------------------------------------------

    def _resend(self, progress: Progress) -> None:
        if not progress.probing:
            progress.next = progress.match + 1
            progress.probing = True
        progress.sent_at = -math.inf

    def _replicate(self, now: float, peer: NodeId, progress: Progress) -> None:
        if not self._contacts.is_alive(now, peer):
            return
        log = self._ledger.log
        if progress.transfer is None and progress.next < log.first_index:
            self._begin_transfer(now, progress)
        if progress.transfer is not None:
            self._send_chunks(now, peer, progress.transfer)
            return
        if progress.probing:
            if progress.sent_at == -math.inf:
                # Never empty, so that it is always answered.
                progress.next = min(progress.next, log.last_index)
                self._send_entries(now, peer, progress)
            return
        window_end = progress.match + 1 + self._parts.limits.entries_in_flight
        while progress.next <= log.last_index and progress.next < window_end:
            if progress.match == progress.next - 1:
                progress.progress_at = now
            progress.next += self._send_entries(now, peer, progress)

    def _send_entries(self, now: float, peer: NodeId, progress: Progress) -> int:
        log = self._ledger.log
        limits = self._parts.limits
        entries = log.batch(progress.next, limits.entries_per_append, limits.bytes_per_append)
        self._send_append(peer, progress, entries)
        progress.sent_at = now
        return len(entries)

    def _send_append(self, peer: NodeId, progress: Progress, entries: tuple[Entry, ...]) -> None:
        ledger = self._ledger
        previous = progress.next - 1
        session = ledger.log.session_at(previous) or NO_SESSION
        position = Position(session, previous)
        message = Append(ledger.cluster, self._session, position, entries, ledger.commit_index)
        self._contacts.send(peer, message)

    def acknowledged(self, now: float, peer: NodeId, message: AppendAck) -> None:
        """A peer has entries up to `match` on disk."""
        progress = self._progress[peer]
        if message.session != self._session or message.match > self._ledger.log.last_index:
            return
        if message.match > progress.match:
            progress.match = message.match
            progress.progress_at = now
        progress.next = max(progress.next, message.match + 1)
        progress.probing = False
        if progress.transfer is not None and progress.transfer.position.index <= message.match:
            progress.transfer = None
        if progress.match >= self._ledger.commit_index:
            self._in_sync.add(peer)
        self._advance(now)
        self._replicate(now, peer, progress)

    def refused(self, now: float, peer: NodeId, message: AppendNack) -> None:
        """A peer's log parts from this one before what was sent, or it asks to begin at `hint`."""
        progress = self._progress[peer]
        progress.next = max(0, min(message.hint, self._ledger.log.last_index + 1))
        progress.match = min(progress.match, progress.next - 1)
        progress.probing = True
        progress.sent_at = -math.inf
        if message.snapshot_wanted or message.first_index > self._ledger.log.last_index + 1:
            self._begin_transfer(now, progress)
            if progress.transfer is None:
                progress.sent_at = now
        self._replicate(now, peer, progress)

    # -- snapshots -------------------------------------------------------------------------

    def _begin_transfer(self, now: float, progress: Progress) -> None:
        image = self._ledger.snapshot
        if image is None:
            if now - self._snapshot_needed_at >= _SNAPSHOT_NEEDED_SECONDS:
                self._snapshot_needed_at = now
                self._parts.effects.append(SnapshotNeeded())
            return
        if progress.transfer is not None and progress.transfer.position == image.position:
            return
        if self._packed is None or self._packed[0] != image.position:
            self._packed = (image.position, pack_image(image))
        progress.transfer = SnapshotSender(
            self._ledger.cluster, self._session, image, self._packed[1]
        )

    def _send_chunks(self, now: float, peer: NodeId, transfer: SnapshotSender) -> None:
        lag_seconds = self._parts.timing.lag_seconds
        for chunk in transfer.chunks(now, self._parts.limits, lag_seconds):
            self._contacts.send(peer, chunk, bulk=True)

    def snapshot_acknowledged(self, now: float, peer: NodeId, message: SnapshotAck) -> None:
        """A peer has so much of a snapshot."""
        progress = self._progress[peer]
        transfer = progress.transfer
        if transfer is None or message.position != transfer.position:
            return
        transfer.acknowledge(now, message.bytes_received)
        if message.bytes_received == 0:
            # It begins anew, or could not take it: then rather with what is newest.
            self._begin_transfer(now, progress)
            transfer = progress.transfer or transfer
        self._send_chunks(now, peer, transfer)

    # -- commit ----------------------------------------------------------------------------

    def _advance(self, now: float) -> None:
        index = self._ledger.synced_index
        for peer in self._in_sync:
            index = min(index, self._progress[peer].match)
        if index <= self._ledger.commit_index:
            return
        self._ledger.commit_to(index)
        for peer, progress in self._progress.items():
            idle = not progress.probing and progress.next > self._ledger.log.last_index
            if idle and progress.transfer is None and self._contacts.is_alive(now, peer):
                self._send_append(peer, progress, ())

    # -- handing over ----------------------------------------------------------------------

    def begin_yield(self, now: float) -> None:
        """Take no more proposals; yield as soon as a peer has everything."""
        self._yield_deadline = min(self._yield_deadline, now + self._parts.timing.hand_over_seconds)

    def successor(self, now: float) -> tuple[NodeId, ...] | None:
        """While yielding: the peer to yield to, none if there is nobody; None: not yet."""
        if self._yield_deadline == math.inf:
            return None
        alive = [peer for peer in self._progress if self._contacts.is_alive(now, peer)]
        if not alive:
            return ()
        best = max(alive, key=lambda peer: (self._progress[peer].match, peer))
        if self._progress[best].match == self._ledger.log.last_index:
            return (best,)
        return (best,) if now >= self._yield_deadline else None

    def send_yield(self, now: float, successor: NodeId) -> None:
        """Tell every live peer who masters next, the successor first."""
        ledger = self._ledger
        message = Yield(ledger.cluster, self._session, successor, ledger.log.last)
        alive = self._contacts.alive(now)
        for peer in sorted(alive, key=lambda peer: (peer != successor, peer)):
            self._contacts.send(peer, message)
