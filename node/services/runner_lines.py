"""Lines that a runner wrote, as its log shows them: with their time and level where they say so."""

import re
from collections.abc import Iterable
from datetime import datetime

from node.handle import LogLine

_STAMPED = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) (DEBUG|INFO|WARNING|ERROR|CRITICAL) ([\w.]+): (.*)"
)
_LEVELS = {"CRITICAL": "error"}


def runner_lines(lines: Iterable[str], source: str) -> list[LogLine]:
    """A line without a time of its own, as of a traceback, has that of the line before it."""
    found: list[LogLine] = []
    at = 0.0
    for line in lines:
        match = _STAMPED.fullmatch(line)
        if match is None:
            found.append(LogLine(at=at, level="output", source=source, text=line))
            continue
        moment, milliseconds, level, name, text = match.groups()
        at = datetime.fromisoformat(moment).astimezone().timestamp() + int(milliseconds) / 1000
        level = _LEVELS.get(level, level.lower())
        words = f"{name.rpartition('.')[2]}: {text}"
        found.append(LogLine(at=at, level=level, source=source, text=words))
    return found
