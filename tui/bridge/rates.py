"""Rates and short histories of figures."""

import collections
import math


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
        self._at = now
        self.values.append(value)

    @property
    def peak(self) -> float:
        """The highest value held; 0 where there is none."""
        return max(self.values, default=0.0)
