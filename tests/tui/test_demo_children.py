"""What the demo counts among its own processes, and therefore ends."""

import os
import sys
from pathlib import Path

import anyio
import pytest

from node.config import Config
from tests.fakes.surroundings import isolate
from tui.commands.demo.children import DemoNodes

WAITS = "import sys; sys.stdin.read()"


async def test_a_process_that_only_names_its_directory_is_not_the_demos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    nodes = DemoNodes(Config(state_directory=tmp_path, model_directories=()), keep=False)
    async with nodes:
        settings = {**os.environ, "EXOCTL_CONFIG": str(nodes.root / "config.toml")}
        words = [sys.executable, "-c", WAITS]
        async with (
            await anyio.open_process([*words, str(nodes.root)]) as reader,
            await anyio.open_process(words, env=settings) as own,
        ):
            try:
                assert [number for number, _ in nodes.processes()] == [own.pid]
            finally:
                for process in (reader, own):
                    process.kill()
