"""Sizes and lists as people read them in refusals and warnings."""

from collections.abc import Sequence

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
BYTES_MAX = 1 << 60
"""No machine or model has more: greater figures are nonsense, and their sums fit no message."""


def size(byte_count: int) -> str:
    """Bytes in the largest binary unit that keeps the number at 1 or more."""
    magnitude = abs(byte_count)
    if magnitude >= GIB:
        return f"{byte_count / GIB:.1f} GiB"
    if magnitude >= MIB:
        return f"{byte_count / MIB:.0f} MiB"
    return f"{byte_count / KIB:.0f} KiB"


def listed(items: Sequence[str], count_max: int = 8) -> str:
    """Items joined by commas; beyond the limit only their number."""
    shown = ", ".join(items[:count_max])
    left = len(items) - count_max
    return f"{shown} and {left} more" if left > 0 else shown
