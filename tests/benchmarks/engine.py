"""The engine beside mlx-lm's own generator, batches, stages, prefixes, and what loading takes."""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fakes.model_files import convert_embedded_model
from tests.fakes.node_process import ROOT


def run() -> None:
    with tempfile.TemporaryDirectory(prefix="exoctl-bench-") as folder:
        model = Path(folder, "model")
        convert_embedded_model(model)
        # In processes of their own: OpenBLAS must come before mlx, and what was read is counted.
        for part in ("loading", "speed"):
            subprocess.run(
                [sys.executable, "-m", "tests.benchmarks.engine_child", part, str(model)],
                cwd=ROOT,
                check=True,
            )
