"""A cap on bytes a second, and the rate that was reached over the last seconds."""

from collections import deque

BURST_SECONDS = 0.25
WINDOW_SECONDS = 5.0


class Pace:
    """Says how long to wait before more; 0 bytes a second means no cap."""

    def __init__(self, bytes_per_second: int = 0) -> None:
        self.bytes_per_second = bytes_per_second
        self._free_at = 0.0

    def spend(self, count: int, now: float) -> float:
        """Note bytes that came, and return the seconds to wait before asking for more."""
        if self.bytes_per_second <= 0:
            return 0.0
        start = max(self._free_at, now - BURST_SECONDS)
        self._free_at = start + count / self.bytes_per_second
        return max(0.0, self._free_at - now)


class RateWindow:
    """Bytes a second over the last seconds; 0 where nothing is known yet."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()
        self._total = 0

    def add(self, count: int, now: float) -> None:
        """Bytes came; marks are kept ten a second at most."""
        self._total += count
        if self._marks and now - self._marks[-1][0] < 0.1:
            self._marks[-1] = (self._marks[-1][0], self._total)
        else:
            self._marks.append((now, self._total))

    def rate(self, now: float) -> float:
        """Over the window; falls to 0 where nothing comes any more."""
        while len(self._marks) > 1 and self._marks[1][0] < now - WINDOW_SECONDS:
            self._marks.popleft()
        if not self._marks or now - self._marks[-1][0] > WINDOW_SECONDS:
            return 0.0
        first_at, first_total = self._marks[0]
        seconds = now - first_at
        return (self._total - first_total) / seconds if seconds > 0.2 else 0.0
