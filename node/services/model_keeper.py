"""Keeps an eye on the models of this machine, and has the embedded one made ready."""

from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec

from node.io import clock
from node.io.model_store.embedded import EMBEDDED_MODEL, EMBEDDED_SOURCE
from node.io.model_store.store import ModelStore
from node.io.wakeup import Wakeup
from node.log import logger
from node.model.errors import BusyError, ExoctlError, NotFoundError
from node.model.ids import ModelId
from node.model.register import DownloadFigures, DownloadRecord, ModelFigures

SCAN_SECONDS = 5.0
RETRY_SECONDS = 60.0
"""Until a failed conversion is tried again."""
COMPLETE_SECONDS = 60.0
"""How long a finished conversion stays visible."""

_log = logger("models")


class ModelKeeper:
    """Made once per node; `changed` is called whenever figures are new."""

    def __init__(
        self, store: ModelStore, changed: Callable[[], None], retry_seconds: float = RETRY_SECONDS
    ) -> None:
        self._store = store
        self._changed = changed
        self._retry_seconds = retry_seconds
        self._wakeup = Wakeup()
        self._scanned = Wakeup()
        self._conversion: DownloadRecord | None = None
        self._completed_at = 0.0

    async def run(self) -> None:
        """Look through the models now and then until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_embedded)
            while True:
                await self._look()
                await self._wakeup.wait(SCAN_SECONDS)

    def rescan(self) -> None:
        """Look through the models now, as after a download."""
        self._wakeup.ring()

    def figures(self) -> ModelFigures:
        """The models on this machine."""
        return self._store.figures()

    def downloads(self) -> DownloadFigures:
        """The embedded model while it is made ready, and for a while after."""
        record = self._conversion
        if record is None:
            return DownloadFigures()
        if record.phase == "complete" and clock.monotonic() - self._completed_at > COMPLETE_SECONDS:
            return DownloadFigures()
        return DownloadFigures(downloads=(record,))

    def directory_of(self, model: ModelId) -> Path:
        """Where a complete model lies.

        Raises:
            NotFoundError: it is not here, or not whole; says what is wrong with it.
            BusyError: it is being made ready, or has not been looked at yet.
        """
        record = self._conversion
        try:
            return self._store.directory_of(model)
        except NotFoundError:
            if model != EMBEDDED_MODEL or record is None:
                raise
            if record.failure is not None:
                raise NotFoundError(record.failure) from None
            share = record.bytes_done / record.bytes_total if record.bytes_total else 0.0
            raise BusyError.because(
                "model_converting", f"{model} is being made ready ({share:.0%})"
            ) from None

    async def _look(self) -> None:
        before = self._store.figures()
        await self._store.scan()
        self._scanned.ring()
        if self._store.figures() != before:
            self._changed()
        while await self._store.describe_next():
            self._changed()

    # -- the embedded model ------------------------------------------------------------------------

    async def _keep_embedded(self) -> None:
        """Have it made ready once; one that a person removes later stays away."""
        await self._scanned.wait(SCAN_SECONDS)
        while not self._has_embedded():
            self._note(phase="converting", bytes_done=0, failure=None)
            try:
                await self._store.embedded.ensure(self._progress)
            except ExoctlError as error:
                _log.warning("%s is not ready: %s", EMBEDDED_MODEL, error.failure.message)
                self._note(phase="failed", failure=error.failure)
                if isinstance(error, NotFoundError) and self._has_any():
                    return  # its package was left out on purpose: there are other models
                await anyio.sleep(self._retry_seconds)
            else:
                total = self._store.embedded.source_bytes
                self._completed_at = clock.monotonic()
                self._note(phase="complete", bytes_done=total, bytes_total=total)
                self.rescan()
                return

    def _has_any(self) -> bool:
        if not any(held.complete for held in self._store.figures().held):
            return False
        self._conversion = None
        self._changed()
        return True

    def _has_embedded(self) -> bool:
        return any(
            held.card.model == EMBEDDED_MODEL and (held.complete or held.failure is None)
            for held in self._store.figures().held
        )

    def _progress(self, fraction: float, step: str) -> None:
        total = self._store.embedded.source_bytes
        _log.debug("%s: %s, %.0f %%", EMBEDDED_MODEL, step, 100 * fraction)
        self._note(bytes_done=int(min(1.0, max(0.0, fraction)) * total), bytes_total=total)

    def _note(self, **changes: object) -> None:
        record = self._conversion or DownloadRecord(
            model=EMBEDDED_MODEL,
            phase="converting",
            bytes_done=0,
            bytes_total=self._store.embedded.source_bytes,
            source=EMBEDDED_SOURCE,
        )
        self._conversion = msgspec.structs.replace(record, **changes)
        self._changed()
