"""How long a neighbour may be silent before it counts as lost: by what it took so far."""

import statistics
from collections import deque

FACTOR = 20
SAMPLES = 64
FIRST_SECONDS = 120.0
"""Before anything was measured: the first step also plans and compiles."""


class StepDeadline:
    """Twenty times the median of the last steps, but never less than the floor."""

    def __init__(self, least_seconds: float) -> None:
        self._least_seconds = least_seconds
        self._decode: deque[float] = deque(maxlen=SAMPLES)
        self._prefill: deque[float] = deque(maxlen=SAMPLES)

    def observe(self, tokens: int, seconds: float) -> None:
        """A step of so many tokens per sequence took so long, the waiting included."""
        if tokens == 1:
            self._decode.append(seconds)
        else:
            self._prefill.append(seconds / tokens)

    def seconds(self, longest_prefill: int) -> float:
        """How long to wait now, with prefill steps of at most so many tokens under way."""
        wanted = self._least_seconds
        if self._decode:
            wanted = max(wanted, FACTOR * statistics.median(self._decode))
        if longest_prefill > 1:
            if not self._prefill:
                return max(wanted, FIRST_SECONDS)
            wanted = max(wanted, FACTOR * statistics.median(self._prefill) * longest_prefill)
        elif not self._decode:
            return max(wanted, FIRST_SECONDS)
        return wanted
