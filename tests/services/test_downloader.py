"""The queue at work: order, pause, failure, restart; what runs is played, the queue is real."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from node.core import hub_trouble
from node.core.download_queue import Job
from node.core.pace import Pace
from node.io.hub.hub import HubError
from node.io.queue_file import QueueFile
from node.model.download import LimitDownloads, PullModel, SteerDownload
from node.model.errors import BusyError, NotFoundError, UsageError
from node.model.ids import ModelId
from node.model.register import DownloadRecord
from node.services.downloader import Downloader
from node.services.fetch import Progress
from tests.fakes.eventually import eventually

A, B, C = ModelId("acme/a"), ModelId("acme/b"), ModelId("acme/c")
COMMIT = "c" * 40


class PlayedFetch:
    """Stands for `services.fetch`: each download goes on until the test lets it end."""

    def __init__(self) -> None:
        self.running: list[ModelId] = []
        self.ends: dict[ModelId, HubError | UsageError | None] = {}

    async def run(self, job: Job, progress: Progress, came: Callable[[int], None]) -> None:
        self.running.append(job.model)
        try:
            progress.commit, progress.phase = COMMIT, "downloading"
            progress.bytes_total = 100
            progress.bytes_done = max(progress.bytes_done, 40)
            came(40)
            await eventually(lambda: job.model in self.ends, 10)
            error = self.ends.pop(job.model)
            if error is not None:
                raise error
            progress.bytes_done = 100
        finally:
            self.running.remove(job.model)


class Scene:
    def __init__(self, tmp_path: Path) -> None:
        self.fetch = PlayedFetch()
        self.completed = 0
        self.pace = Pace()
        self.downloader = Downloader(
            tmp_path / "models", QueueFile(tmp_path), self.fetch, self.pace, self._complete
        )

    def _complete(self) -> None:
        self.completed += 1

    def record(self, model: ModelId) -> DownloadRecord:
        return next(r for r in self.downloader.figures().downloads if r.model == model)

    async def until(self, model: ModelId, phase: str) -> DownloadRecord:
        await eventually(lambda: self.record(model).phase == phase, 5)
        return self.record(model)


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncGenerator[Scene]:
    scene = Scene(tmp_path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scene.downloader.run)
        await eventually(lambda: scene.downloader.is_loaded, 5)
        yield scene
        tasks.cancel_scope.cancel()


async def pull(scene: Scene, *models: ModelId) -> None:
    for model in models:
        await scene.downloader.order(PullModel(model=model))


async def test_two_run_at_once_and_the_next_follows(tmp_path: Path) -> None:
    async with running(tmp_path) as scene:
        await pull(scene, A, B, C)
        await eventually(lambda: scene.fetch.running == [A, B])
        scene.fetch.ends[A] = None
        done = await scene.until(A, "complete")
        assert (done.bytes_done, done.commit, scene.completed) == (100, COMMIT, 1)
        await eventually(lambda: scene.fetch.running == [B, C])
        await scene.downloader.order(LimitDownloads(at_once=1, bytes_per_second=7))
        await eventually(lambda: scene.fetch.running == [B])
        assert scene.record(C).phase == "queued"
        assert scene.pace.bytes_per_second == 7


async def test_a_pause_keeps_how_far_it_was_and_holds_over_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as scene:
        await pull(scene, A)
        await scene.until(A, "downloading")
        await scene.downloader.order(SteerDownload(model=A, action="pause"))
        assert scene.fetch.running == []
        paused = scene.record(A)
        assert (paused.phase, paused.bytes_done) == ("paused", 40)
    async with running(tmp_path) as scene:
        again = scene.record(A)
        assert (again.phase, again.bytes_done, again.commit) == ("paused", 40, COMMIT)
        await scene.downloader.order(SteerDownload(model=A, action="resume"))
        await scene.until(A, "downloading")


async def test_what_ran_when_the_node_ended_goes_on_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path) as scene:
        await pull(scene, A)
        await scene.until(A, "downloading")
    async with running(tmp_path) as scene:
        await eventually(lambda: scene.fetch.running == [A])


async def test_a_failure_is_kept_over_a_restart_until_a_person_acts(tmp_path: Path) -> None:
    gated = HubError(hub_trouble.of_status(403, A, error_code="GatedRepo", has_token=True))
    async with running(tmp_path) as scene:
        await pull(scene, A)
        scene.fetch.ends[A] = gated
        failed = await scene.until(A, "failed")
        assert failed.failure == gated.failure
        assert failed.retry_at == 0.0
    async with running(tmp_path) as scene:
        assert scene.record(A).failure == gated.failure
        await scene.downloader.order(SteerDownload(model=A, action="retry"))
        retried = await scene.until(A, "downloading")
        assert retried.failure is None


async def test_a_passing_failure_is_tried_again_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path) as scene:
        await pull(scene, A)
        scene.fetch.ends[A] = HubError(hub_trouble.of_status(503, A))
        assert (await scene.until(A, "failed")).retry_at > 0
        await scene.until(A, "downloading")


async def test_a_fault_that_nobody_thought_of_stands_and_ends_nothing_else(tmp_path: Path) -> None:
    async with running(tmp_path) as scene:
        await pull(scene, A, B)
        scene.fetch.ends[A] = UsageError(hub_trouble.trouble("odd", "odd", "look").failure)
        assert (await scene.until(A, "failed")).retry_at == 0.0
        assert scene.fetch.running == [B]


async def test_orders_that_make_no_sense_are_refused_and_change_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as scene:
        with pytest.raises(UsageError):
            await pull(scene, ModelId("../evil"))
        with pytest.raises(NotFoundError):
            await scene.downloader.order(SteerDownload(model=A, action="pause"))
        assert scene.downloader.figures().downloads == ()
        await pull(scene, A)
        with pytest.raises(BusyError):
            await scene.downloader.check(A, "main")
    with pytest.raises(BusyError):
        await Scene(tmp_path / "other").downloader.order(PullModel(model=A))


async def test_cancel_forgets_and_deletes_what_came_in_part(tmp_path: Path) -> None:
    part = tmp_path / "models" / "models--acme--a" / ".exoctl" / "x.part"
    async with running(tmp_path) as scene:
        await pull(scene, A)
        await scene.until(A, "downloading")
        part.parent.mkdir(parents=True)
        part.write_bytes(b"1234")
        await scene.downloader.order(SteerDownload(model=A, action="cancel"))
        assert not part.exists()
        assert scene.downloader.figures().downloads == ()
        assert scene.fetch.running == []


async def test_a_queue_file_that_can_t_be_read_begins_an_empty_queue(tmp_path: Path) -> None:
    for content in (b"\xff{", b'{"jobs": 5}', b"[" * 100_000):
        (tmp_path / "downloads.json").write_bytes(content)
        async with running(tmp_path) as scene:
            assert scene.downloader.figures().downloads == ()
