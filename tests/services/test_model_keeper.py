import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from node.config import environment_for_child
from node.io.model_store.embedded import EMBEDDED_MODEL
from node.io.model_store.store import ModelStore, ModelTools
from node.io.wakeup import Wakeup
from node.model.errors import BusyError, NotFoundError
from node.model.ids import ModelId
from node.model.register import DownloadRecord
from node.services.model_keeper import ModelKeeper
from tests.fakes.tiny_files import write_model

FAKES = Path(__file__).parents[1] / "fakes"


class Scene:
    def __init__(self, tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = tmp_path / "models"
        self.runs = tmp_path / "runs"
        self.source = tmp_path / "packed.gguf"
        self.source.write_bytes(b"x" * 1000)
        tools = ModelTools(
            inspect=(sys.executable, str(FAKES / "fake_inspector.py")),
            convert=(sys.executable, str(FAKES / "fake_converter.py"), mode),
        )
        self.store = ModelStore((self.root,), tmp_path / "state", environment_for_child(), tools)
        monkeypatch.setattr(self.store.embedded, "_find_source", self._find)
        self.missing = False
        self.records: list[DownloadRecord] = []
        self._wakeup = Wakeup()
        self.keeper = ModelKeeper(self.store, self._changed, retry_seconds=0.05)

    def _find(self) -> Path:
        if self.missing:
            raise NotFoundError.because("embedded_missing", "not installed", "install it")
        return self.source

    def _changed(self) -> None:
        self.records += self.keeper.downloads().downloads
        self._wakeup.ring()

    async def until(self, holds: Callable[[], bool]) -> None:
        with anyio.fail_after(20.0):
            while not holds():
                await self._wakeup.wait(20.0)

    def complete(self) -> list[str]:
        return [held.card.model for held in self.keeper.figures().held if held.complete]


@asynccontextmanager
async def running(scene: Scene) -> AsyncGenerator[Scene, None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scene.keeper.run)
        yield scene
        tasks.cancel_scope.cancel()


async def test_the_embedded_model_is_made_ready_and_then_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Scene(tmp_path, "slow", monkeypatch)) as scene:
        await scene.until(lambda: any(record.bytes_done > 0 for record in scene.records))
        with pytest.raises(BusyError, match="%"):
            scene.keeper.directory_of(EMBEDDED_MODEL)
        await scene.until(lambda: EMBEDDED_MODEL in scene.complete())
        done = [record.bytes_done for record in scene.records]
        assert done == sorted(done)
        assert [record.phase for record in scene.records if record.bytes_done < 1000] == [
            "converting"
        ] * sum(record.bytes_done < 1000 for record in scene.records)
        last = scene.keeper.downloads().downloads[0]
        assert (last.phase, last.bytes_done, last.bytes_total) == ("complete", 1000, 1000)
        held = scene.keeper.figures().held[0]
        assert held.card.source == "embedded"
        assert scene.keeper.directory_of(EMBEDDED_MODEL) == scene.root / EMBEDDED_MODEL


async def test_a_failed_conversion_is_shown_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, "full", monkeypatch)
    async with running(scene):
        await scene.until(lambda: any(record.phase == "failed" for record in scene.records))
        failed = next(record for record in scene.records if record.phase == "failed")
        assert failed.failure is not None
        assert failed.failure.code == "disk_full"
        seen = len(scene.records)
        await scene.until(lambda: len(scene.records) > seen)
        assert "converting" in {record.phase for record in scene.records[seen:]}


async def test_what_is_asked_for_fails_with_the_conversion_s_own_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, "full", monkeypatch)
    monkeypatch.setattr(scene.keeper, "_retry_seconds", 3600.0)
    async with running(scene):
        await scene.until(lambda: any(record.phase == "failed" for record in scene.records))
        with pytest.raises(NotFoundError, match="1 MB free"):
            scene.keeper.directory_of(EMBEDDED_MODEL)


async def test_a_package_left_out_is_no_failure_beside_other_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, "normal", monkeypatch)
    scene.missing = True
    write_model(scene.root / "tiny", config={"runs": str(scene.runs)})
    async with running(scene):
        await scene.until(lambda: scene.complete() == ["tiny"])
        await scene.until(lambda: scene.keeper.downloads().downloads == ())
        with pytest.raises(NotFoundError, match="no model"):
            scene.keeper.directory_of(EMBEDDED_MODEL)


async def test_a_package_left_out_is_shown_where_there_is_no_model_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, "normal", monkeypatch)
    scene.missing = True
    async with running(scene):
        await scene.until(lambda: any(record.phase == "failed" for record in scene.records))
        scene.missing = False
        await scene.until(lambda: EMBEDDED_MODEL in scene.complete())


async def test_a_model_that_appears_is_found_when_asked_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Scene(tmp_path, "normal", monkeypatch)) as scene:
        await scene.until(lambda: EMBEDDED_MODEL in scene.complete())
        write_model(scene.root / "owner" / "new", config={"runs": str(scene.runs)})
        scene.keeper.rescan()
        await scene.until(lambda: "owner/new" in scene.complete())
        assert scene.keeper.directory_of(ModelId("owner/new")).is_dir()


async def test_it_goes_on_whatever_lies_among_the_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, "normal", monkeypatch)
    odd = write_model(scene.root / "odd", config={"runs": str(scene.runs)})
    (odd / "line\nbreak").touch()
    if sys.platform != "darwin":  # whose disks refuse such names
        (odd / os.fsdecode(b"\xff")).touch()
    os.mkfifo(odd / ".exoctl-source")
    (scene.root / "loop").symlink_to("loop")
    async with running(scene):
        await scene.until(lambda: {"odd", EMBEDDED_MODEL} <= set(scene.complete()))
