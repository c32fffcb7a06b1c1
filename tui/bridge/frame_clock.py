"""When to paint: on demand, several changes at once, at most ten times a second."""

from collections.abc import Callable

FRAMES_PER_SECOND = 10.0

Schedule = Callable[[float, Callable[[], None]], object]
"""Call back after so many seconds."""


class FrameClock:
    """Collects dirty topics and has them painted in one frame. Runs no timer while all is clean."""

    def __init__(
        self,
        schedule: Schedule,
        paint: Callable[[frozenset[str]], None],
        monotonic: Callable[[], float],
        frames_per_second: float = FRAMES_PER_SECOND,
    ) -> None:
        self._schedule = schedule
        self._paint = paint
        self._monotonic = monotonic
        self._gap = 1.0 / frames_per_second
        self._dirty: set[str] = set()
        self._is_pending = False
        self._painted_at = -1.0
        self.frames = 0

    @property
    def is_clean(self) -> bool:
        """Nothing waits to be painted."""
        return not self._is_pending

    def mark(self, topics: frozenset[str]) -> None:
        """These topics changed."""
        if not topics:
            return
        self._dirty.update(topics)
        if not self._is_pending:
            self._is_pending = True
            wait = self._painted_at + self._gap - self._monotonic()
            self._schedule(max(0.0, wait), self._flush)

    def _flush(self) -> None:
        self._is_pending = False
        topics = frozenset(self._dirty)
        self._dirty.clear()
        self._painted_at = self._monotonic()
        self.frames += 1
        if topics:
            self._paint(topics)
