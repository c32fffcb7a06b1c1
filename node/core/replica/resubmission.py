"""When withdrawn events are offered again, and how proposals are cut into messages."""

from collections.abc import Iterator
from itertools import islice

from node.core.replica.ledger import Ledger
from node.core.replica.messages import Proposal
from node.core.replica.timing import Limits, Timing


class Resubmission:
    """Offers orphans oldest first, at each new session and then ever more seldom while none is
    settled.
    """

    def __init__(self, ledger: Ledger, timing: Timing, count_max: int) -> None:
        self._ledger = ledger
        self._timing = timing
        self._count_max = count_max
        self._due = 0.0
        self._wait_seconds = timing.resubmit_seconds
        self._left = 0

    def hurry(self, now: float) -> None:
        """A session began: the next offer is due now."""
        self._due = now
        self._wait_seconds = self._timing.resubmit_seconds

    def due(self, now: float) -> tuple[Proposal, ...]:
        """What to offer now."""
        orphans = self._ledger.orphans
        if not orphans or now < self._due:
            return ()
        if len(orphans) != self._left:
            self._left = len(orphans)
            self._wait_seconds = self._timing.resubmit_seconds
        self._due = now + self._wait_seconds
        self._wait_seconds = min(self._wait_seconds * 2, self._timing.resubmit_seconds_max)
        return tuple(
            Proposal(entry.id, entry.payload, 0, resubmitted=True, written_at=entry.written_at)
            for entry in islice(self._ledger.orphans_waiting(), self._count_max)
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
