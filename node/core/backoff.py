"""Waits that grow with each failure, and a limit on how often a stranger may fail."""

import msgspec

FORGET_SECONDS = 600.0


class Backoff(msgspec.Struct, frozen=True):
    """First wait, doubled with each further failure up to the last."""

    first_seconds: float
    last_seconds: float

    def delay_seconds(self, failures: int) -> float:
        """How long to wait after that many failures in a row; 0 after none."""
        if failures <= 0:
            return 0.0
        doublings = min(failures - 1, 62)
        return min(self.first_seconds * float(1 << doublings), self.last_seconds)


class _Failures(msgspec.Struct):
    count: int
    until: float


class AttemptLimiter:
    """Lets a key (an address) fail a few times freely, then makes it wait longer and longer.

    A key that stays quiet for `FORGET_SECONDS` after its wait starts afresh. Holds at most
    `keys_max` keys; beyond that the one whose wait ends first is forgotten.
    """

    def __init__(self, free_attempts: int, backoff: Backoff, keys_max: int = 256) -> None:
        self._free_attempts = free_attempts
        self._backoff = backoff
        self._keys_max = keys_max
        self._failures: dict[str, _Failures] = {}

    def wait_seconds(self, key: str, now: float) -> float:
        """How long the key must wait before it may try again; 0 where it may try now."""
        failures = self._failures.get(key)
        return max(0.0, failures.until - now) if failures else 0.0

    def failed(self, key: str, now: float) -> None:
        """The key has failed once more."""
        failures = self._failures.get(key)
        if failures is not None and now > failures.until + FORGET_SECONDS:
            failures.count = 0
        if failures is None:
            if len(self._failures) >= self._keys_max:
                del self._failures[min(self._failures, key=lambda one: self._failures[one].until)]
            failures = self._failures[key] = _Failures(0, now)
        failures.count += 1
        over = failures.count - self._free_attempts + 1
        failures.until = now + self._backoff.delay_seconds(over)

    def succeeded(self, key: str) -> None:
        """The key's failures are forgotten."""
        self._failures.pop(key, None)
