"""A real node on a real disk without room: a small file system in memory, mounted for the test."""

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest

from node.config import Config
from node.handle import NodeHandle
from node.model.command import Accepted, CordonNode, Refused
from node.model.errors import ExoctlError
from node.model.register import RouterFigures
from node.runtime import open_node
from tests.fakes.eventually import eventually
from tests.fakes.tools import missing

BYTES = 8 * 1024 * 1024
WAIT_SECONDS = 30.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    if os.geteuid() != 0:
        missing("mounting a small disk needs root")
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "exoctl-test", str(place)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        missing(f"no small disk can be mounted: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(place: Path) -> Path:
    """Take all the room there is."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass
    return filler


def figures(handle: NodeHandle, node: str) -> RouterFigures | None:
    register = handle.registers.get((node, "RouterFigures"))  # type: ignore[arg-type]
    value = None if register is None else register.value
    return value if isinstance(value, RouterFigures) else None


async def test_a_node_whose_disk_is_full_says_so_stays_readable_and_goes_on_by_itself(
    small_disk: Path, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    config = Config(
        state_directory=small_disk / "state",
        model_directories=(models,),
        name="one",
        bind="127.0.0.1",
        cluster_port=0,
        api_port=-1,
        discovery=False,
    )
    async with open_node(config) as handle:
        await eventually(lambda: handle.state.nodes, WAIT_SECONDS)
        node = handle.state.master
        filler = fill(small_disk)
        answers: list[Accepted | Refused | ExoctlError] = []

        async def ask(index: int) -> None:
            command = CordonNode(node=node, cordoned=index % 2 == 0)
            try:
                answers.append(await handle.submit(command, timeout_seconds=60))
            except ExoctlError as error:
                answers.append(error)

        async with anyio.create_task_group() as tasks:
            # More than the rest of the page that the log's last record lies on.
            for index in range(64):
                tasks.start_soon(ask, index)
            await eventually(lambda: (now := figures(handle, node)) and now.disk_full, WAIT_SECONDS)
            seen = figures(handle, node)
            assert seen is not None
            assert "No space" in seen.disk_trouble
            assert any("disk" in words for words in (await handle.local()).waiting)
            assert handle.state.nodes[node].name
            assert len(answers) < 64
            filler.unlink()
            await eventually(lambda: len(answers) == 64, WAIT_SECONDS)
        assert all(isinstance(answer, Accepted) for answer in answers)
        assert not handle.state.nodes[node].cordoned
        before = handle.state
    async with open_node(config) as handle:
        await eventually(lambda: handle.state.index >= before.index, WAIT_SECONDS)
        assert handle.state.nodes[node].cordoned == before.nodes[node].cordoned
        assert [handle.state.answer_to(a.id) for a in answers if isinstance(a, Accepted)] == answers
