"""One model from machine to machine over a cable of 1 Gbit/s: how much of it is used (root)."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from node.io.hub.part_file import PartFile, Running, part_path
from node.io.model_store.hub_cache import Repository
from node.model.download import Listing, RemoteFile
from node.model.ids import ModelId
from tests.benchmarks.measure import line, load
from tests.fakes.network import Network, reason_to_skip
from tests.fakes.node_process import NodeProcess, NodeProcesses, wait_for
from tests.fakes.tiny_files import safetensors, write_model

REPO = ModelId("acme/bench")
COMMIT = "c" * 40
MEGABYTES = 600
CABLE = "1gbit"
WAIT_SECONDS = 120.0
LOOK_SECONDS = 0.02
CABLE_BYTES_PER_SECOND = 125_000_000


def run() -> None:
    """Print the figures."""
    reason = reason_to_skip()
    if reason:
        line("skipped", reason)
        return
    network = Network()
    try:
        network.build(ipv4=True)
        for name in network.names:
            _cap(name)
        with tempfile.TemporaryDirectory(prefix="exoctl-bench-") as folder:
            _measure(Path(folder), network)
    finally:
        network.remove()


def _measure(root: Path, network: Network) -> None:
    file = _place(write_model(root / "source"), Repository(root / "giver", REPO))
    os.environ["HF_HUB_OFFLINE"] = "1"
    nodes = NodeProcesses(root, root / "models")
    try:
        giver, taker = (_start(nodes, root, name, network) for name in ("giver", "taker"))
        code = giver.json("cluster", "invite")["items"][0]["code"]
        wait_for(lambda: taker.cli("cluster", "join", code).returncode == 0, "the join", 30)
        pull = ("model", "pull", REPO, "--revision", COMMIT, "--no-wait")
        assert giver.cli(*pull).returncode == 0
        wait_for(lambda: _has_complete(taker), "the taker to hear that the giver has it", 30)
        assert taker.cli(*pull, "--from", "peer").returncode == 0
        seconds = _watch(Repository(root / "taker", REPO), file)
    finally:
        del os.environ["HF_HUB_OFFLINE"]
        nodes.close()
    rate = file.size / seconds
    line("over a cable of 1 Gbit/s", f"{rate / 1e6:.1f} MB/s", f"load {load()}")
    line("of what the cable carries", f"{rate / CABLE_BYTES_PER_SECOND:.1%}", "wanted: 90 %")


def _has_complete(node: NodeProcess) -> bool:
    items = node.json("download", "ls")["items"]
    return any(item["model"] == REPO and item["phase"] == "complete" for item in items)


def _watch(repository: Repository, file: RemoteFile) -> float:
    """Seconds from a file's first byte to its last, as they come to lie on the disk."""
    part = part_path(repository.own, file)
    wait_for(lambda: part.exists() and part.stat().st_size, "the first byte")
    first_at, had = time.monotonic(), part.stat().st_size
    deadline = first_at + WAIT_SECONDS
    while had < file.size:
        assert time.monotonic() < deadline, f"{had} of {file.size} bytes came"
        time.sleep(LOOK_SECONDS)
        had = part.stat().st_size if part.exists() else file.size
    return time.monotonic() - first_at


def _place(source: Path, repository: Repository) -> RemoteFile:
    """Have a node hold a model as if it had fetched it; returns the file of its weights."""
    weights = source / "model.safetensors"
    weights.write_bytes(safetensors({"layers.0.weight": MEGABYTES * 1_000_000}))
    repository.prepare()
    files: list[RemoteFile] = []
    for path in sorted(source.iterdir()):
        running = Running(RemoteFile(path=path.name, size=path.stat().st_size, hash="0" * 64))
        running.update(path.read_bytes())
        file = RemoteFile(path=path.name, size=running.length, hash=running.hexdigest())
        part = PartFile(repository.own, file)
        part.open()
        part.append(path.read_bytes())
        part.finish(repository.blob(file))
        files.append(file)
    listing = Listing(repo=REPO, revision="main", commit=COMMIT, files=tuple(files))
    repository.keep_listing(listing)
    repository.publish(listing, files)
    return next(file for file in files if file.path == weights.name)


def _cap(namespace: str) -> None:
    shape = ("tbf", "rate", CABLE, "burst", "256kb", "latency", "50ms")
    command = ["ip", "netns", "exec", namespace, "tc", "qdisc", "add", "dev", "veth0", "root"]
    subprocess.run([*command, *shape], check=True, timeout=10)


def _start(nodes: NodeProcesses, root: Path, name: str, network: Network) -> NodeProcess:
    nodes.models = root / name
    space = network.names[len(nodes.nodes)]
    return nodes.start(name, namespace=space).wait_ready()
