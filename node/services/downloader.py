"""Carries out the queue of downloads; made once, no session and no election touches it."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread
import msgspec

from node.core import download_queue
from node.core.download_queue import Job, Queue, Trouble
from node.core.failure_text import about
from node.core.hub_files import is_revision
from node.core.pace import Pace, RateWindow
from node.core.refusal import Refusal
from node.io import clock
from node.io.hub.hub import HubError
from node.io.model_store.hub_cache import Repository
from node.io.model_store.names import parse_model_id
from node.io.queue_file import QueueFile
from node.io.wakeup import Wakeup
from node.log import logger
from node.model.download import (
    LimitDownloads,
    PrioritiseDownload,
    PullModel,
    SteerDownload,
)
from node.model.errors import BusyError, ExoctlError, UsageError
from node.model.ids import ModelId
from node.model.register import DownloadFigures, DownloadRecord
from node.services.fetch import Progress, recall
from node.wire.surface import error_of_kind

TICK_SECONDS = 0.5
COMPLETE_SECONDS = 600.0
"""How long a finished download stays in the list."""
COMPANIONS_CHARACTERS_MAX = 60_000
"""Of the ids of the nodes that fetch a model together: more than a thousand of them."""
STOP_SECONDS = 10.0
"""For a running download to let go of its files."""

_log = logger("downloads")

DownloadOrder = PullModel | SteerDownload | PrioritiseDownload | LimitDownloads


class Fetcher(Protocol):
    """What brings a model here: `services.fetch`."""

    async def run(self, job: Job, progress: Progress, came: Callable[[int], None]) -> None:
        """Bring it, or raise an `ExoctlError`; may be cancelled at any point."""
        ...


class _Run:
    """One download while it runs."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.scope = anyio.CancelScope()
        self.progress = Progress(
            phase="resolving",
            commit=job.commit,
            bytes_done=job.bytes_done,
            bytes_total=job.bytes_total,
        )
        self.rate = RateWindow()
        self.is_over = Wakeup()


class Downloader:
    """`order` and `figures` may be called at any time; `run` does the work."""

    def __init__(
        self,
        root: Path,
        queue_file: QueueFile,
        fetch: Fetcher,
        pace: Pace,
        on_complete: Callable[[], None],
    ) -> None:
        """`on_complete` is called when a model has become whole."""
        self._root = root
        self._queue_file = queue_file
        self._fetch = fetch
        self._pace = pace
        self._on_complete = on_complete
        self._queue = Queue()
        self._is_loaded = False
        self._is_dirty = False
        self._saving = anyio.Lock()
        self._runs: dict[ModelId, _Run] = {}
        self._last: dict[ModelId, Progress] = {}
        self._wakeup = Wakeup()

    async def run(self) -> None:
        """Work until cancelled; what runs then goes on at the next start."""
        await self._recover()
        async with anyio.create_task_group() as tasks:
            while True:
                now = clock.wall()
                self._drop_old(now)
                turn = download_queue.plan(self._queue, self._runs, now)
                for model, run in self._runs.items():
                    if model in turn.stop or not self._is_wanted(run):
                        run.scope.cancel()
                for job in turn.start:
                    self._runs[job.model] = _Run(job)
                    tasks.start_soon(self._run, job, self._runs[job.model])
                self._take_progress()
                if self._is_dirty:
                    await self._save()
                await self._wakeup.wait(TICK_SECONDS if self._runs else self._idle_seconds(turn))

    @property
    def is_loaded(self) -> bool:
        """Whether the queue of before has been read."""
        return self._is_loaded

    def figures(self) -> DownloadFigures:
        """The queue as others see it, in its order."""
        self._take_progress()
        return DownloadFigures(
            downloads=tuple(self._record(job) for job in download_queue.in_order(self._queue))
        )

    def models(self) -> tuple[ModelId, ...]:
        """Models that are in the queue, finished ones left out."""
        return tuple(job.model for job in self._queue.jobs if job.phase != "complete")

    async def order(self, order: DownloadOrder) -> str:
        """Change the queue; it is on disk when this returns. Says what comes of it.

        Raises:
            ExoctlError: it can't be done; nothing changed.
        """
        if not self._is_loaded:
            raise BusyError.because("downloads_unread", "the node is just starting", "try again")
        match order:
            case PullModel():
                parse_model_id(order.model)
                _check_order(order)
                self._add(order)
                words = f"{order.model} queued"
            case SteerDownload():
                self._change(download_queue.steer(self._queue, order.model, order.action))
                words = f"{order.model}: {_DONE[order.action]}"
                if order.action in ("pause", "cancel"):
                    await self._end(order.model)
                if order.action == "cancel":
                    repository = Repository(self._root, order.model)
                    await anyio.to_thread.run_sync(repository.drop_parts)
            case PrioritiseDownload():
                self._change(download_queue.prioritise(self._queue, order.model, order.priority))
                words = f"{order.model}: priority {order.priority}"
            case LimitDownloads():
                self._change(
                    download_queue.limit(self._queue, order.at_once, order.bytes_per_second)
                )
                words = "bounds of downloads changed"
        await self._save()
        return words

    async def check(self, model: ModelId, revision: str) -> None:
        """Hash a model's files anew, and fetch again what is damaged."""
        order = PullModel(model=model, revision=revision)
        known = self._queue.get(model)
        if known is not None and known.phase not in ("complete", "paused", "failed"):
            raise BusyError.because(
                "download_running", f"{model} is being fetched ({known.phase})", "wait for it"
            )
        if known is not None:
            self._change(download_queue.steer(self._queue, model, "cancel"))
        self._add(order, is_check=True)
        await self._save()

    async def forget(self, model: ModelId) -> None:
        """Drop a model's download, as before its files are deleted."""
        if self._queue.get(model) is not None:
            self._change(download_queue.steer(self._queue, model, "cancel"))
            await self._end(model)
            await self._save()

    # -- inside ------------------------------------------------------------------------------------

    async def _recover(self) -> None:
        def load() -> tuple[Queue, dict[ModelId, Progress]]:
            queue = download_queue.recovered(self._queue_file.load())
            found = {job.model: recall(self._root, job) for job in queue.jobs}
            return queue, {model: seen for model, seen in found.items() if seen is not None}

        self._queue, recalled = await anyio.to_thread.run_sync(load)
        for model, seen in recalled.items():
            self._last[model] = seen
            self._queue = download_queue.note(
                self._queue, model, bytes_done=seen.bytes_done, bytes_total=seen.bytes_total
            )
        self._pace.bytes_per_second = self._queue.bytes_per_second_max
        self._is_loaded = True

    async def _run(self, job: Job, run: _Run) -> None:
        try:
            with run.scope:
                await self._fetch.run(job, run.progress, lambda count: _came(run, count))
                run.progress.phase = "complete"
        except ExoctlError as error:
            _log.warning("%s", about(job.model, error.failure.message))
            self._settle(job, run)
            stands = Trouble(failure=error.failure, is_passing=False)
            trouble = error.trouble if isinstance(error, HubError) else stands
            if self._is_wanted(run):
                self._queue = download_queue.failed(self._queue, job.model, trouble, clock.wall())
        else:
            self._settle(job, run)
            if run.progress.phase == "complete" and self._is_wanted(run):
                _log.info("%s is whole", job.model)
                self._queue = download_queue.note(
                    self._queue, job.model, phase="complete", ended_at=clock.wall()
                )
                self._on_complete()
        finally:
            self._runs.pop(job.model, None)
            run.is_over.ring()
            self._wakeup.ring()
        await self._save()

    def _settle(self, job: Job, run: _Run) -> None:
        """Take over how far it came; one that made room for another waits again."""
        if not self._is_wanted(run):
            return
        progress = run.progress
        self._last[job.model] = progress
        known = self._queue.get(job.model)
        phase = known.phase if known is not None else ""
        if phase in download_queue.RUNNABLE:
            phase = "queued"
        self._queue = download_queue.note(
            self._queue,
            job.model,
            phase=phase,
            commit=progress.commit,
            bytes_done=progress.bytes_done,
            bytes_total=progress.bytes_total,
        )

    def _take_progress(self) -> None:
        for model, run in self._runs.items():
            job = self._queue.get(model)
            if (
                job is None
                or not self._is_wanted(run)
                or job.phase not in (*download_queue.RUNNABLE, "failed")
            ):
                continue
            progress = run.progress
            phase = "verifying" if progress.phase == "complete" else progress.phase
            is_pinned = progress.commit != job.commit
            self._queue = download_queue.note(
                self._queue,
                model,
                phase=phase,
                failure=None,
                retry_at=0.0,
                commit=progress.commit,
                bytes_done=progress.bytes_done,
                bytes_total=progress.bytes_total,
            )
            self._is_dirty |= is_pinned

    def _record(self, job: Job) -> DownloadRecord:
        run = self._runs.get(job.model)
        progress = run.progress if run is not None else self._last.get(job.model, Progress())
        return msgspec.structs.replace(
            download_queue.record(job),
            bytes_per_second=run.rate.rate(clock.monotonic()) if run is not None else 0.0,
            source=progress.source if run is not None else "",
            bytes_from_hub=progress.bytes_from_hub,
            bytes_from_peers=progress.bytes_from_peers,
            files_done=progress.files_done,
            files_total=progress.files_total,
        )

    def _is_wanted(self, run: _Run) -> bool:
        """Whether the queue still means what runs, and not another revision of the same model."""
        known = self._queue.get(run.job.model)
        return known is not None and known.number == run.job.number

    async def _end(self, model: ModelId) -> None:
        """Have a running download let go of its files."""
        run = self._runs.get(model)
        if run is not None:
            run.scope.cancel()
            await run.is_over.wait(STOP_SECONDS)

    def _add(self, order: PullModel, *, is_check: bool = False) -> None:
        full = download_queue.no_room(self._queue, order.model)
        self._change(
            full or download_queue.add(self._queue, order, clock.wall(), is_check=is_check)
        )

    def _change(self, outcome: Queue | Refusal) -> None:
        if isinstance(outcome, Refusal):
            raise error_of_kind(outcome.kind, outcome.failure)
        self._queue = outcome
        self._pace.bytes_per_second = outcome.bytes_per_second_max
        self._wakeup.ring()

    async def _save(self) -> None:
        """Keep the queue as it is now: one at a time, so that no older one comes last, and also
        while the node stops.
        """
        with anyio.CancelScope(shield=True):
            async with self._saving:
                self._is_dirty = False
                await anyio.to_thread.run_sync(self._queue_file.save, self._queue)

    def _drop_old(self, now: float) -> None:
        for job in self._queue.jobs:
            if job.phase == "complete" and not 0 <= now - job.ended_at <= COMPLETE_SECONDS:
                self._queue = msgspec.structs.replace(
                    self._queue, jobs=tuple(each for each in self._queue.jobs if each != job)
                )
                self._last.pop(job.model, None)

    def _idle_seconds(self, turn: download_queue.Turn) -> float:
        if turn.wake_at is None:
            return 10.0
        return max(0.05, min(10.0, turn.wake_at - clock.wall()))


def _check_order(order: PullModel) -> None:
    """What is queued is bounded: all of it must fit into the queue's file."""
    if not is_revision(order.revision):
        raise UsageError.because(
            "bad_revision",
            f"{order.revision[:60]!r} names no revision",
            "use a branch, a tag or a commit, such as main",
        )
    if sum(map(len, order.companions)) > COMPANIONS_CHARACTERS_MAX:
        raise UsageError.because(
            "too_many_companions",
            f"the names of {len(order.companions)} nodes are too long together; at most"
            f" {COMPANIONS_CHARACTERS_MAX} characters",
        )


def _came(run: _Run, count: int) -> None:
    run.rate.add(count, clock.monotonic())


_DONE = {
    "pause": "paused",
    "resume": "goes on",
    "retry": "is tried again",
    "cancel": "given up, what came in part is deleted",
}
