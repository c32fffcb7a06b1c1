"""Hands the replica's writes to the log file in order, and tells when they are on disk."""

import collections
from collections.abc import Callable

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from node.core.replica.effects import Write
from node.io.log_file import LogFile, LogStatus, Synced

PARKED_MAX = 4_096
"""Writes beyond the log's own queue; more means a stuck disk: take in no more messages."""


class LogWriter:
    """Nothing is dropped or reordered: what the log file's queue has no room for waits here."""

    def __init__(self, log: LogFile) -> None:
        """Belongs to the loop that makes it."""
        self._log = log
        self._parked: collections.deque[Write] = collections.deque()
        self._on_synced: Callable[[int], None] = lambda _: None
        self._loop = anyio.lowlevel.current_token()

    def start(self, on_synced: Callable[[int], None]) -> None:
        """Start the disk's thread; `on_synced` is called in the loop, with the last token."""
        self._on_synced = on_synced
        self._log.start(self._synced_in_thread)

    def write(self, write: Write, *, alone: bool) -> None:
        """Queue a write. `alone`: no other disk has it, so it must survive a power cut here."""
        self._parked.append(write)
        self.flush(alone=alone)

    def flush(self, *, alone: bool) -> None:
        """Move what waits here into the log's queue as far as there is room."""
        while self._parked:
            write = self._parked[0]
            if not self._log.submit(write.token, write.records, full_sync=alone):
                return
            self._parked.popleft()

    @property
    def overloaded(self) -> bool:
        """The disk can't keep up."""
        return len(self._parked) >= PARKED_MAX

    @property
    def damage(self) -> str:
        """What was found broken at start; empty when nothing was."""
        return self._log.damage

    def status(self) -> LogStatus:
        """How the disk is doing."""
        return self._log.status()

    async def close(self) -> None:
        """Write what waits, within a deadline, and end the disk's thread."""
        self.flush(alone=False)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._log.close)

    def _synced_in_thread(self, synced: Synced) -> None:
        anyio.from_thread.run_sync(self._on_synced, synced.token, token=self._loop)
