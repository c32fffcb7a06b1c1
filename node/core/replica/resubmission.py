"""When withdrawn events are offered again, and how proposals are cut into messages."""

from collections.abc import Iterator
from itertools import islice

from node.core.replica.ledger import Ledger
from node.core.replica.messages import Proposal
from node.core.replica.timing import Limits, Timing
from node.model.session import EventId


class Resubmission:
    """Offers orphans oldest first: a batch at each new session, the next once that is in the log,
    and the same again ever more seldom while it is not.
    """

    def __init__(self, ledger: Ledger, timing: Timing, count_max: int) -> None:
        self._ledger = ledger
        self._timing = timing
        self._count_max = count_max
        self._due = 0.0
        self._wait_seconds = timing.resubmit_seconds
        self._offered: tuple[EventId, ...] = ()
        self._left = 0

    def hurry(self, now: float) -> None:
        """A session began: the next offer is due now."""
        self._due = now
        self._wait_seconds = self._timing.resubmit_seconds

    def due(self, now: float) -> tuple[Proposal, ...]:
        """What to offer now."""
        ledger = self._ledger
        if not ledger.orphans:
            return ()
        if self._offered and all(event_id in ledger.known for event_id in self._offered):
            self.hurry(now)
        if now < self._due:
            return ()
        if len(ledger.orphans) != self._left:
            self._left = len(ledger.orphans)
            self._wait_seconds = self._timing.resubmit_seconds
        self._due = now + self._wait_seconds
        self._wait_seconds = min(self._wait_seconds * 2, self._timing.resubmit_seconds_max)
        waiting = tuple(islice(ledger.orphans_waiting(), self._count_max))
        self._offered = tuple(entry.id for entry in waiting)
        return tuple(
            Proposal(entry.id, entry.payload, 0, resubmitted=True, written_at=entry.written_at)
            for entry in waiting
        )


def batches(proposals: tuple[Proposal, ...], limits: Limits) -> Iterator[tuple[Proposal, ...]]:
    """The proposals in order, in runs within the bounds of one message."""
    batch: list[Proposal] = []
    size = 0
    for proposal in proposals:
        size += len(proposal.payload)
        if batch and (len(batch) == limits.proposals_per_submit or size > limits.bytes_per_append):
            yield tuple(batch)
            batch = []
            size = len(proposal.payload)
        batch.append(proposal)
    if batch:
        yield tuple(batch)
