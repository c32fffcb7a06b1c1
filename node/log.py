"""Logging: a bounded ring for the screen, a rotated file in the state directory, stderr on wish.

Parts of the node log under `exoctl.<source>`; the source is what `exoctl logs --source` takes.
"""

import collections
import logging
import logging.handlers
from pathlib import Path

import msgspec

ROOT = "exoctl"
RING_LINES = 5_000
FILE_BYTES_MAX = 4 * 1024 * 1024
FILES_KEPT = 3
LEVELS = ("debug", "info", "warning", "error")


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line as it was logged."""

    at: float
    level: str
    source: str
    text: str


_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if code not in (9, 10)}


class _CleanFormatter(logging.Formatter):
    """A line may hold what peers and models said: it must not move a cursor or ring a bell."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, control characters replaced."""
        return super().format(record).translate(_CONTROLS)


class LogRing(logging.Handler):
    """Keeps the last lines in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: collections.deque[LogRow] = collections.deque(maxlen=RING_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Take one record; never raises into the code that logs."""
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        self._rows.append(
            LogRow(
                at=record.created,
                level=record.levelname.lower(),
                source=record.name.removeprefix(ROOT + "."),
                text=text.translate(_CONTROLS),
            )
        )

    def rows(self, source: str, lines_max: int) -> list[LogRow]:
        """The last lines of a source, or of all where it is empty."""
        picked = [row for row in self._rows if not source or row.source == source]
        return picked[-lines_max:] if lines_max > 0 else []

    def sources(self) -> list[str]:
        """Every source that has lines."""
        return sorted({row.source for row in self._rows})


def logger(source: str) -> logging.Logger:
    """The logger of one part of the node."""
    return logging.getLogger(f"{ROOT}.{source}")


class NodeLog:
    """The handlers of one node; several nodes in one process share the logger tree."""

    def __init__(self, state_directory: Path, level: str, *, to_stderr: bool) -> None:
        self.ring = LogRing()
        self.path = state_directory / "logs" / "node.log"
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        line = _CleanFormatter("%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s  %(message)s")
        line.datefmt = "%Y-%m-%d %H:%M:%S"
        self._handlers: list[logging.Handler] = [
            self.ring,
            logging.handlers.RotatingFileHandler(
                self.path,
                maxBytes=FILE_BYTES_MAX,
                backupCount=FILES_KEPT - 1,
                encoding="utf-8",
                delay=True,
            ),
        ]
        if to_stderr:
            self._handlers.append(logging.StreamHandler())
        root = logging.getLogger(ROOT)
        root.setLevel(level.upper())
        root.propagate = False
        for handler in self._handlers:
            handler.setFormatter(line)
            root.addHandler(handler)

    def close(self) -> None:
        """Take the handlers away and close the file."""
        root = logging.getLogger(ROOT)
        for handler in self._handlers:
            root.removeHandler(handler)
            handler.close()
