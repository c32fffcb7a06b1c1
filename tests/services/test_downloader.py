"""The queue at work: order, pause, failure, restart; what runs is played, the queue is real."""

import json
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from node.core import hub_trouble
from node.core.download_queue import JOBS_MAX, Job, Queue
from node.core.pace import Pace
from node.io.hub.hub import HubError
from node.io.queue_file import QueueFile
from node.model.download import LimitDownloads, PullModel, SteerDownload
from node.model.errors import BusyError, NotFoundError, UsageError
from node.model.ids import ModelId, NodeId
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


async def test_another_revision_asked_for_meanwhile_is_what_comes(tmp_path: Path) -> None:
    async with running(tmp_path) as scene:
        revisions: list[str] = []
        played = scene.fetch.run

        async def run(job: Job, progress: Progress, came: Callable[[int], None]) -> None:
            revisions.append(job.revision)
            await played(job, progress, came)
            progress.commit = job.revision[:1] * 40

        scene.fetch.run = run
        await scene.downloader.order(PullModel(model=A, revision="v1"))
        await scene.until(A, "downloading")
        await scene.downloader.order(PullModel(model=A, revision="b2"))
        await eventually(lambda: revisions == ["v1", "b2"], 5)
        scene.fetch.ends[A] = None
        done = await scene.until(A, "complete")
        assert (done.revision, done.commit, scene.completed) == ("b2", "b" * 40, 1)


async def test_a_full_queue_and_a_revision_that_can_be_none_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as scene:
        await scene.downloader.order(LimitDownloads(at_once=1))
        for number in range(JOBS_MAX):
            await scene.downloader.order(PullModel(model=ModelId(f"acme/{number}")))
        with pytest.raises(BusyError, match=str(JOBS_MAX)):
            await scene.downloader.order(PullModel(model=A))
        for revision in ("", "x" * 1000, "../x"):
            with pytest.raises(UsageError):
                await scene.downloader.order(PullModel(model=ModelId("acme/1"), revision=revision))
        companions = (NodeId("x" * 100_000),)
        with pytest.raises(UsageError):
            await scene.downloader.order(PullModel(model=ModelId("acme/1"), companions=companions))
        assert len(scene.downloader.figures().downloads) == JOBS_MAX


@pytest.mark.parametrize("files", [[{"path": "config.json", "size": 0, "hash": "../../x"}], "deep"])
async def test_what_lies_damaged_on_the_disk_does_not_keep_a_node_from_starting(
    tmp_path: Path, files: object
) -> None:
    async with running(tmp_path) as scene:
        await pull(scene, A)
        await scene.until(A, "downloading")
        await scene.downloader.order(SteerDownload(model=A, action="pause"))
    own = tmp_path / "models" / "models--acme--a" / ".exoctl"
    own.mkdir(parents=True)
    (own.parent / "blobs").mkdir()
    (tmp_path / "models" / "x").write_bytes(b"")
    (own.parent / "x").write_bytes(b"")
    facts = {"repo": A, "revision": "main", "commit": COMMIT, "files": files}
    content = json.dumps(facts) if files != "deep" else '{"x":' + "[" * 100_000 + "]" * 100_000
    (own / f"listing-{COMMIT}.json").write_text(content)
    async with running(tmp_path) as scene:
        assert scene.record(A).phase == "paused"


async def test_a_queue_that_makes_no_sense_begins_empty(tmp_path: Path) -> None:
    (tmp_path / "downloads.json").write_text('{"x":' + "[" * 100_000 + "]" * 100_000 + "}")
    async with running(tmp_path) as scene:
        assert scene.downloader.figures().downloads == ()


class SlowFile(QueueFile):
    """The first change that it is told of takes a while to be written."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.writing: list[int] = []

    def save(self, queue: Queue) -> None:
        self.writing.append(len(queue.jobs))
        if len(self.writing) == 1:
            threading.Event().wait(0.2)
        super().save(queue)


async def test_the_last_change_is_what_stays_on_the_disk(tmp_path: Path) -> None:
    file = SlowFile(tmp_path)
    downloader = Downloader(tmp_path / "models", file, PlayedFetch(), Pace(), lambda: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(downloader.run)
        await eventually(lambda: downloader.is_loaded, 5)
        async with anyio.create_task_group() as orders:
            orders.start_soon(downloader.order, PullModel(model=A))
            await eventually(lambda: bool(file.writing))
            orders.start_soon(downloader.order, PullModel(model=B))
        kept = QueueFile(tmp_path).load()
        assert [job.model for job in kept.jobs] == [A, B]
        tasks.cancel_scope.cancel()
