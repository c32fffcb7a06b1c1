"""The one place that reads the clock and draws chance."""

import secrets
import time


def monotonic() -> float:
    """Seconds on a clock that never goes back; stops while a Mac sleeps."""
    return time.monotonic()


def wall() -> float:
    """Seconds since 1970, for people to read; never compared between machines."""
    return time.time()


def random_hex(characters: int) -> str:
    """Random hexadecimal text of the given length, from the system's secure source."""
    return secrets.token_hex((characters + 1) // 2)[:characters]
