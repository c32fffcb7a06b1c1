"""The log in memory: a contiguous run of entries, and the position just before them."""

from bisect import bisect_right
from collections.abc import Iterable

from node.model.session import NO_POSITION, Entry, Position, Session


class Log:
    """Entries first_index..last_index. Sessions never decrease along it."""

    def __init__(self, before: Position = NO_POSITION, entries: Iterable[Entry] = ()) -> None:
        """`before`: the position that precedes the first entry."""
        self._reset(before)
        for entry in entries:
            self.append(entry)

    def _reset(self, before: Position) -> None:
        self.before = before
        self.first_index = before.index + 1
        self.last = before
        self.last_index = before.index
        self._entries: list[Entry] = []
        self._start_indices: list[int] = []
        self._start_sessions: list[Session] = []

    def append(self, entry: Entry) -> None:
        """Put the entry after the last; its index and session must follow."""
        session = entry.session
        assert entry.index == self.last_index + 1, (entry.index, self.last_index)
        assert session >= self.last.session, (session, self.last)
        self._entries.append(entry)
        if not self._start_sessions or session != self._start_sessions[-1]:
            self._start_indices.append(entry.index)
            self._start_sessions.append(session)
        self.last_index += 1
        self.last = Position(session, self.last_index)

    def session_at(self, index: int) -> Session | None:
        """The session of the entry there (or just before the first); None where it is not known."""
        place = index - self.first_index
        if 0 <= place < len(self._entries):
            return self._entries[place].session
        return self.before.session if place == -1 else None

    def session_start(self, index: int) -> int:
        """The first kept index of the session that the entry at `index` belongs to."""
        return self._start_indices[bisect_right(self._start_indices, index) - 1]

    def slice(self, first: int, stop: int) -> tuple[Entry, ...]:
        """Entries first..stop-1 as far as they are here."""
        base = self.first_index
        return tuple(self._entries[max(first - base, 0) : max(stop - base, 0)])

    def batch(self, first: int, entries_max: int, bytes_max: int) -> tuple[Entry, ...]:
        """Entries from `first` on within both bounds, at least one where there is one."""
        place = first - self.first_index
        entries = self._entries[place : place + entries_max]
        size = 0
        for count, entry in enumerate(entries):
            size += len(entry.payload)
            if size > bytes_max and count:
                return tuple(entries[:count])
        return tuple(entries)

    def tail_first(self, index: int, entries_max: int, bytes_max: int) -> int:
        """Where a run that ends at `index` begins if it has as many entries as allowed, whether
        they are here or not; later where they are larger than allowed.
        """
        size = 0
        first = index + 1 - entries_max
        for place in range(index - self.first_index, max(first - self.first_index, 0) - 1, -1):
            size += len(self._entries[place].payload)
            if size > bytes_max:
                return self.first_index + place + 1
        return first

    def truncate(self, index: int) -> tuple[Entry, ...]:
        """Take entries from `index` on out, and return them."""
        place = index - self.first_index
        removed = tuple(self._entries[place:])
        del self._entries[place:]
        while self._start_indices and self._start_indices[-1] >= index:
            self._start_indices.pop()
            self._start_sessions.pop()
        self.last_index = index - 1
        session = self._entries[-1].session if self._entries else self.before.session
        self.last = Position(session, self.last_index)
        return removed

    def drop_before(self, index: int) -> None:
        """Forget entries before `index`."""
        count = index - self.first_index
        if count <= 0:
            return
        self.before = Position(self._entries[count - 1].session, index - 1)
        del self._entries[:count]
        self.first_index = index
        place = bisect_right(self._start_indices, index) - 1
        del self._start_indices[:place], self._start_sessions[:place]

    def replace(self, before: Position) -> tuple[Entry, ...]:
        """Begin again after `before`, with no entry; returns those that were there."""
        removed = tuple(self._entries)
        self._reset(before)
        return removed
