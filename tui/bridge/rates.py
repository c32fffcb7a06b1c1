"""Rates and short histories of figures."""

import collections
import math

HELD_SECONDS = 10.0
"""A figure that is not renewed counts that long; then as 0."""


class Rate:
    """Things a second, exponentially smoothed."""

    def __init__(self, span_seconds: float = 2.0) -> None:
        self._span = span_seconds
        self._value = 0.0
        self._at: float | None = None

    def add(self, number: int, now: float) -> None:
        """Count things that happened just now."""
        self._value = self.value(now) + number / self._span
        self._at = now

    def value(self, now: float) -> float:
        """The rate; it sinks while nothing happens."""
        if self._at is None:
            return 0.0
        return self._value * math.exp(-max(0.0, now - self._at) / self._span)


class History:
    """The last values of a figure, one for each step of time."""

    def __init__(self, length: int, step_seconds: float = 1.0) -> None:
        self.values: collections.deque[float] = collections.deque(maxlen=length)
        self._step = step_seconds
        self._at = -math.inf

    def add(self, value: float, now: float) -> None:
        """Take a value; within one step the last one wins."""
        if now - self._at < self._step and self.values:
            self.values[-1] = value
            return
        self.values = self._until(now)
        self._at = now
        self.values.append(value)

    def shown(self, now: float) -> list[float]:
        """The values up to now: what is not renewed sinks to 0, so that a graph moves on."""
        return list(self._until(now))

    def _until(self, now: float) -> collections.deque[float]:
        """The values, with one for each step that went by without any."""
        values = self.values.copy()
        length = values.maxlen or 0
        silent = (now - self._at) / self._step
        if values and silent > HELD_SECONDS:
            held = int(HELD_SECONDS / self._step)
            values.extend([values[-1]] * min(held, length))
            values.extend([0.0] * min(int(silent) - held, length))
        return values

    @property
    def peak(self) -> float:
        """The highest value held; 0 where there is none."""
        return max(self.values, default=0.0)
