"""Sets of whole numbers that are mostly runs, such as the sequences of one writer."""

from bisect import bisect_right
from collections.abc import Iterable


class IntervalSet:
    """A set of whole numbers kept as runs; every operation takes O(log runs)."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        """`intervals`: (first, last) pairs, both included, in any order; they may touch."""
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in sorted(intervals):
            if self._lasts and first <= self._lasts[-1] + 1:
                self._lasts[-1] = max(self._lasts[-1], last)
            else:
                self._firsts.append(first)
                self._lasts.append(last)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._firsts, number) - 1
        return place >= 0 and number <= self._lasts[place]

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._firsts)

    def intervals(self) -> tuple[tuple[int, int], ...]:
        """The runs as (first, last), ascending."""
        return tuple(zip(self._firsts, self._lasts, strict=True))

    def count(self) -> int:
        """How many numbers there are."""
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    def last(self) -> int | None:
        """The greatest number; None where there is none."""
        return self._lasts[-1] if self._lasts else None

    def next_absent(self, number: int) -> int:
        """The least number from `number` on that is not in the set."""
        place = bisect_right(self._firsts, number) - 1
        if place >= 0 and number <= self._lasts[place]:
            return self._lasts[place] + 1
        return number

    def add(self, number: int) -> None:
        """Put a number in; nothing changes where it is there."""
        firsts, lasts = self._firsts, self._lasts
        place = bisect_right(firsts, number) - 1
        if place >= 0 and number <= lasts[place]:
            return
        joins_left = place >= 0 and lasts[place] == number - 1
        joins_right = place + 1 < len(firsts) and firsts[place + 1] == number + 1
        if joins_left and joins_right:
            lasts[place] = lasts[place + 1]
            del firsts[place + 1], lasts[place + 1]
        elif joins_left:
            lasts[place] = number
        elif joins_right:
            firsts[place + 1] = number
        else:
            firsts.insert(place + 1, number)
            lasts.insert(place + 1, number)

    def discard(self, number: int) -> None:
        """Take a number out; nothing changes where it is not there."""
        firsts, lasts = self._firsts, self._lasts
        place = bisect_right(firsts, number) - 1
        if place < 0 or number > lasts[place]:
            return
        first, last = firsts[place], lasts[place]
        if first == last:
            del firsts[place], lasts[place]
        elif number == first:
            firsts[place] = number + 1
        elif number == last:
            lasts[place] = number - 1
        else:
            lasts[place] = number - 1
            firsts.insert(place + 1, number + 1)
            lasts.insert(place + 1, last)

    def fill_first_hole(self) -> None:
        """Count the numbers between the two lowest runs in, so that one run less is kept."""
        if len(self._firsts) > 1:
            del self._firsts[1], self._lasts[0]
