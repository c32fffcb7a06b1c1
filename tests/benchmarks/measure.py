"""How things are measured, once for all benchmarks."""

import contextlib
import os
import resource
import statistics
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

import psutil

from tests.fakes.model_files import convert_embedded_model
from tests.fakes.node_process import ROOT, NodeProcesses

MODEL = "smollm2-135m-instruct"


def processor_seconds(process_ids: Sequence[int]) -> float:
    """User and system time of processes so far, all threads."""
    total = 0.0
    for process_id in process_ids:
        times = psutil.Process(process_id).cpu_times()
        total += times.user + times.system
    return total


def command_seconds(*arguments: str, environment: dict[str, str] | None = None) -> float:
    """Processor time of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        arguments, cwd=ROOT, env=environment or dict(os.environ), capture_output=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def line(name: str, value: str, limit: str = "") -> None:
    """One result; `limit` is what it is held against."""
    print(f"  {name:<52} {value:>16}   {limit}", flush=True)


def summary(values: Sequence[float]) -> str:
    """Median and range."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


@contextlib.contextmanager
def real_nodes() -> Generator[NodeProcesses]:
    """Nodes on loopback with the embedded model."""
    with tempfile.TemporaryDirectory(prefix="exoctl-bench-") as folder:
        root = Path(folder)
        models = root / "models"
        models.mkdir()
        convert_embedded_model(models / MODEL)
        nodes = NodeProcesses(root, models)
        try:
            yield nodes
        finally:
            nodes.close()


def load() -> str:
    """What else the box does: its load averages."""
    return " ".join(f"{average:.2f}" for average in os.getloadavg())
