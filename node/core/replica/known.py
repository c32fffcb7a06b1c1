"""Which events are in the log: what keeps any from entering it twice."""

from collections.abc import Iterable

from node.core.intervals import IntervalSet
from node.core.replica.durable import Interval, KnownWriter
from node.model.ids import NodeId
from node.model.session import EventId

LIVES_MAX = 256
"""Lives remembered per writer; events of forgotten, earlier ones count as known, so that they are
never applied twice."""
RUNS_MAX = 4096
"""Runs of sequences remembered per life; then the oldest hole counts as known."""


class KnownEvents:
    """A set of EventIds, kept as runs of sequences per (writer, life)."""

    def __init__(self, writers: Iterable[KnownWriter] = ()) -> None:
        self._origins: dict[NodeId, dict[int, IntervalSet]] = {}
        for writer in writers:
            lives = self._origins.setdefault(writer.origin, {})
            lives[writer.incarnation] = IntervalSet(
                (interval.first, interval.last) for interval in writer.intervals
            )

    def __contains__(self, event_id: EventId) -> bool:
        lives = self._origins.get(event_id.origin)
        if lives is None:
            return False
        sequences = lives.get(event_id.incarnation)
        if sequences is None:
            return len(lives) >= LIVES_MAX and event_id.incarnation < min(lives)
        return event_id.sequence in sequences

    def sequences(self, event_id: EventId) -> IntervalSet:
        """The known sequences of the same life of the same writer; to be read at once, not kept."""
        lives = self._origins.get(event_id.origin)
        sequences = None if lives is None else lives.get(event_id.incarnation)
        return IntervalSet() if sequences is None else sequences

    def add(self, event_id: EventId) -> None:
        """An event entered the log."""
        lives = self._origins.get(event_id.origin)
        if lives is None:
            lives = self._origins[event_id.origin] = {}
        sequences = lives.get(event_id.incarnation)
        if sequences is None:
            sequences = lives[event_id.incarnation] = IntervalSet()
            if len(lives) > LIVES_MAX:
                del lives[min(lives)]
        sequences.add(event_id.sequence)
        if len(sequences) > RUNS_MAX:
            sequences.fill_first_hole()

    def discard(self, event_id: EventId) -> None:
        """An event was withdrawn from the log."""
        lives = self._origins.get(event_id.origin)
        sequences = None if lives is None else lives.get(event_id.incarnation)
        if sequences is not None:
            sequences.discard(event_id.sequence)

    def writers(self) -> tuple[KnownWriter, ...]:
        """The set as it is kept in a snapshot, sorted."""
        return tuple(
            KnownWriter(
                origin,
                incarnation,
                tuple(Interval(first, last) for first, last in sequences.intervals()),
            )
            for origin, lives in sorted(self._origins.items())
            for incarnation, sequences in sorted(lives.items())
            if len(sequences)
        )

    def missing(self, other: "KnownEvents", held: Iterable[EventId]) -> int:
        """How many events of this set are neither in `other` nor among `held`."""
        rest = KnownEvents(self.writers())
        for event_id in held:
            rest.discard(event_id)
        count = 0
        for writer in rest.writers():
            present = other.sequences(EventId(writer.origin, writer.incarnation, 0))
            count += sum(_count_outside(run, present) for run in writer.intervals)
        return count


def _count_outside(run: Interval, present: IntervalSet) -> int:
    covered = sum(
        max(0, min(run.last, last) - max(run.first, first) + 1)
        for first, last in present.intervals()
    )
    return run.last - run.first + 1 - covered
