"""Quantities as people write and read them: durations, token counts, bytes, times."""

import datetime
import re

from node.model.errors import UsageError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TOKENS = re.compile(r"(\d+)(k?)", re.IGNORECASE)
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?(?:/s)?", re.IGNORECASE)
_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
NOTHING = "-"
"""Stands in a table cell where there is no value."""


def parse_duration(text: str) -> float:
    """Seconds of `30`, `30s`, `1.5m`, `2h`, `250ms`, `1d`.

    Raises:
        UsageError: it is none of these.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError.because(
            "bad_duration", f"{text!r} is no duration", "write 30s, 5m, 2h or plain seconds"
        )
    return float(match[1]) * _SECONDS[match[2] or ""]


def parse_tokens(text: str) -> int:
    """Tokens of `4096` or `32k` (1k is 1024).

    Raises:
        UsageError: it is neither.
    """
    match = _TOKENS.fullmatch(text.strip())
    if match is None:
        raise UsageError.because(
            "bad_context", f"{text!r} is no number of tokens", "write 4096 or 32k"
        )
    return int(match[1]) * (1024 if match[2] else 1)


def parse_bytes(text: str) -> int:
    """Bytes of `50MB/s`, `1.5 GB`, `800k` or a plain number; decimal units.

    Raises:
        UsageError: it is none of these.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise UsageError.because(
            "bad_bytes", f"{text!r} is no number of bytes", "write 50MB/s, 800kB/s or 0"
        )
    thousands = " kmgt".index(match[2].lower() or " ")
    return int(float(match[1]) * 1000**thousands)


def bytes_text(count: int) -> str:
    """Bytes in decimal units: `114 MB`, `1.9 GB`, `-3.2 GB`."""
    value, unit = float(abs(count)), _BYTES[0]
    for unit in _BYTES:
        if value < 999.5 or unit == _BYTES[-1]:
            break
        value /= 1000
    digits = 1 if value < 99.95 and unit not in ("B", "kB") else 0
    return f"{'-' if count < 0 else ''}{value:.{digits}f} {unit}"


def count_text(count: int) -> str:
    """A large count in short: `135M`, `8B`, `671B`."""
    for limit, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= limit:
            value = count / limit
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(count)


def tokens_text(count: int) -> str:
    """A number of tokens: `4k`, `32k`, `1000`."""
    return f"{count // 1024}k" if count and count % 1024 == 0 else str(count)


def nodes_text(count: int) -> str:
    """`1 node`, `3 nodes`."""
    return "1 node" if count == 1 else f"{count} nodes"


def rate_text(tokens_per_second: float) -> str:
    """Tokens per second, or a dash for none."""
    return f"{tokens_per_second:.1f}" if tokens_per_second > 0 else NOTHING


def duration_text(seconds: float) -> str:
    """A span in its largest one or two units: `0.34 s`, `12 s`, `3m 20s`, `2h 5m`, `4d 3h`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.2f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {whole % 60}s"


def rfc3339(wall_seconds: float) -> str | None:
    """A wall-clock time in UTC to the millisecond; None where it is 0 or beyond all sense."""
    if wall_seconds <= 0:
        return None
    try:
        moment = datetime.datetime.fromtimestamp(wall_seconds, tz=datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock_text(wall_seconds: float) -> str:
    """Local time of day to the millisecond, for a log line; blanks where there is none."""
    if wall_seconds <= 0:
        return " " * 12
    try:
        moment = datetime.datetime.fromtimestamp(wall_seconds, tz=datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return " " * 12
    return moment.astimezone().strftime("%H:%M:%S.%f")[:-3]
