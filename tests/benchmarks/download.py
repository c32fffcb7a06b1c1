"""Bytes from a hub: this engine beside the hub's own client, from the same server, in turns."""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.measure import line, load
from tests.fakes.hub_server import HubServer
from tests.fakes.tiny_files import safetensors, write_model

REPO = "acme/bench"
MEGABYTES = 192
TURNS = 3
_OURS = """
import sys, anyio, time
from pathlib import Path
from node.core.download_queue import Job
from node.core.pace import Pace
from node.io.hub.hub import Hub
from node.io.hub.transfer import Transfer
from node.services.fetch import Fetch, Progress
url, root = sys.argv[1:]
hub = Hub({"HF_ENDPOINT": url, "HF_TOKEN": ""})
async def main():
    transfer = Transfer()
    await anyio.to_thread.run_sync(hub._client)
    started, cpu = time.monotonic(), time.process_time()
    fetch = Fetch(Path(root), hub, transfer, Pace())
    await fetch.run(Job(model="acme/bench"), Progress(), lambda _: None)
    print(time.monotonic() - started, time.process_time() - cpu)
    await transfer.close()
anyio.run(main)
"""
_THEIRS = """
import sys, time
from huggingface_hub import snapshot_download
from huggingface_hub.utils import disable_progress_bars
disable_progress_bars()
url, root = sys.argv[1:]
started, cpu = time.monotonic(), time.process_time()
snapshot_download("acme/bench", cache_dir=root, endpoint=url, token=False)
print(time.monotonic() - started, time.process_time() - cpu)
"""


def once(script: str, url: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as root:
        done = subprocess.run(
            [sys.executable, "-c", script, url, root],
            capture_output=True, text=True, timeout=300, check=True,
        )  # fmt: skip
    wall, cpu = done.stdout.split()[-2:]
    return float(wall), float(cpu)


def run() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder, HubServer().running() as hub:
        source = write_model(Path(folder))
        weights = safetensors({"layers.0.weight": MEGABYTES * 1_000_000})
        (source / "model.safetensors").write_bytes(weights)
        repo = hub.add_directory(REPO, source)
        repo.files["model.safetensors"] = weights
        repo.hash_of("model.safetensors")
        ours: list[tuple[float, float]] = []
        theirs: list[tuple[float, float]] = []
        for _ in range(TURNS):
            theirs.append(once(_THEIRS, hub.url))
            ours.append(once(_OURS, hub.url))
    for name, runs in (("huggingface_hub", theirs), ("exoctl, hashed", ours)):
        wall, cpu = min(run[0] for run in runs), min(run[1] for run in runs)
        line(name, f"{MEGABYTES / wall:.0f} MB/s", f"{1000 * cpu / MEGABYTES:.2f} CPU-s/GB")
    ratio = min(run[0] for run in theirs) / min(run[0] for run in ours)
    line("beside the hub's own client", f"{ratio:.2f}", f"wanted: at least 0.95; load {load()}")
