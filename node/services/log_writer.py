"""Hands the replica's writes to the log file in order, and tells when they are on disk."""

import collections
from collections.abc import Callable

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from node.core.replica.effects import Write
from node.io import clock
from node.io.log_file import LogFile, LogStatus, Synced
from node.io.wakeup import Wakeup
from node.model.errors import InternalError

PARKED_MAX = 4_096
"""Writes beyond the log's own queue; more means a stuck disk: take in no more messages."""
FULL_SECONDS = 1.0
"""How long a disk may have no room before a master hands its office over."""
STUCK_SECONDS = 2.0
"""The same where it does not answer, or fails for another reason."""


class LogWriter:
    """Nothing is dropped or reordered: what the log file's queue has no room for waits here."""

    def __init__(self, log: LogFile) -> None:
        """Belongs to the loop that makes it."""
        self._log = log
        self._parked: collections.deque[Write] = collections.deque()
        self._wakeup = Wakeup()
        self._on_synced: Callable[[], None] = lambda: None
        self._synced_token = -1
        self._token_written = 0
        self._token_done = 0
        self._progress_at = clock.monotonic()
        self.failure: Exception | None = None
        """Why nothing will be written or acknowledged any more; a node that can't keep its word
        stops."""
        self._loop = anyio.lowlevel.current_token()

    def start(self, wakeup: Wakeup, on_synced: Callable[[], None]) -> None:
        """Start the disk's thread.

        In the loop, `on_synced` is called as soon as something is on disk; `wakeup` is rung where
        it failed.
        """
        self._wakeup, self._on_synced = wakeup, on_synced
        self._log.start(self._synced_in_thread, self._failed_in_thread)

    def take_synced(self, now: float) -> int | None:
        """The last token that is on disk, where that is news."""
        token, self._synced_token = self._synced_token, -1
        if token < 0:
            return None
        self._token_done = token
        self._progress_at = now
        return token

    def stuck(self, now: float) -> str:
        """Why nothing has come to the disk for so long that others should decide; else empty."""
        waited_seconds = now - self._progress_at if self._token_done < self._token_written else 0.0
        status = self._log.status()
        if status.disk_full and waited_seconds > FULL_SECONDS:
            return status.trouble or "the disk is full"
        if waited_seconds > STUCK_SECONDS:
            return status.trouble or f"it has not answered for more than {STUCK_SECONDS:g} s"
        return ""

    def write(self, write: Write, *, alone: bool) -> None:
        """Queue a write. `alone`: no other disk has it, so it must survive a power cut here."""
        if self._token_done == self._token_written:
            self._progress_at = clock.monotonic()  # nothing was waited for until now
        self._token_written = write.token
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

    def trouble(self, now: float) -> str:
        """What is wrong with the disk, for people; empty while all is well."""
        return self._log.status().trouble or self.stuck(now)

    def status(self) -> LogStatus:
        """How the disk is doing."""
        return self._log.status()

    async def close(self) -> None:
        """Write what waits, within a deadline, and end the disk's thread."""
        self.flush(alone=False)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._log.close)

    def _synced_in_thread(self, synced: Synced) -> None:
        anyio.from_thread.run_sync(self._synced, synced.token, token=self._loop)

    def _synced(self, token: int) -> None:
        # Acted on at once: a turn of another task would cost every entry a wait. The disk's thread
        # must not meet what that may raise.
        self._synced_token = token
        try:
            self._on_synced()
        except Exception as error:  # noqa: BLE001 - a mistake of ours; the router ends the node by it
            self.failure = self.failure or error
            self._wakeup.ring()

    def _failed_in_thread(self, error: BaseException) -> None:
        anyio.from_thread.run_sync(self._failed, error, token=self._loop)

    def _failed(self, error: BaseException) -> None:
        failure = InternalError.because(
            "log_unwritable",
            f"the log can't be written any more: {self._log.status().trouble or error}",
            "look after the disk, then start again; the other nodes have everything",
        )
        failure.__cause__ = error
        self.failure = failure
        self._wakeup.ring()
