"""One model from node to node over the mesh: bytes a second, and processor time of both ends."""

import hashlib
import os
import socket
import tempfile
import threading
import time
from pathlib import Path

import httpx2

from node.io.identity import load_or_create_identity
from node.io.mesh.tls import client_context, server_context
from tests.benchmarks.measure import line, load, processor_seconds
from tests.fakes.hub_server import HubServer
from tests.fakes.node_process import NodeProcess, NodeProcesses
from tests.fakes.tiny_files import safetensors, write_model

REPO = "acme/bench"
WARM_UP = "acme/small"
MEGABYTES = 1000
WAIT_SECONDS = 300.0
LOOK_SECONDS = 0.2
"""Each look costs the node some of what is measured."""


def run() -> None:
    """Print the figures."""
    with (
        tempfile.TemporaryDirectory(prefix="exoctl-bench-") as folder,
        HubServer().running() as hub,
    ):
        root = Path(folder)
        source = write_model(root / "source")
        weights = safetensors({"layers.0.weight": MEGABYTES * 1_000_000})
        (source / "model.safetensors").write_bytes(weights)
        hub.add_directory(REPO, source)
        hub.add_directory(WARM_UP, write_model(root / "small"))
        os.environ["HF_ENDPOINT"] = hub.url
        nodes = NodeProcesses(root, root / "models")
        try:
            giver, taker = nodes.cluster("giver", "taker", models=root)
            for node in (giver, taker):
                _pull(node, WARM_UP)
            _pull(giver, REPO)
            sent = hub.weight_bytes_sent
            pids = [giver.process.pid, taker.process.pid]
            before, started = processor_seconds(pids), time.monotonic()
            _pull(taker, REPO)
            wall = time.monotonic() - started
            spent = (processor_seconds(pids) - before) * 1000 / MEGABYTES
            assert hub.weight_bytes_sent == sent
        finally:
            nodes.close()
    floor = _tls_and_hash()
    line("node to node", f"{MEGABYTES / wall:.0f} MB/s", f"load {load()}")
    line("processor of both ends", f"{spent:.2f} s/GB")
    line("TLS both ways and SHA-256 alone", f"{floor:.2f} s/GB", "the floor, same run")
    line("beside the floor", f"{spent / floor:.2f}", "wanted: at most 1.25")


def _pull(node: NodeProcess, repo: str) -> None:
    """Have a node fetch a repository to itself; a first one loads all that a pull needs."""
    order = {"model": repo, "nodes": [node.name]}
    httpx2.post(f"{node.url}/v1/cluster/downloads", json=order, timeout=10).raise_for_status()
    deadline = time.monotonic() + WAIT_SECONDS
    while _phase(node, repo) != "complete":
        assert time.monotonic() < deadline, f"{node.name} does not get {repo}"
        time.sleep(LOOK_SECONDS)


def _phase(node: NodeProcess, repo: str) -> str:
    items = httpx2.get(f"{node.url}/v1/cluster/downloads", timeout=10).json()["items"]
    found = [
        item["download"]["phase"]
        for item in items
        if item["download"]["model"] == repo and item["node"] == node.node
    ]
    return found[0] if found else ""


def _tls_and_hash() -> float:
    """Processor seconds a gigabyte of what can't be spared: TLS at both ends, one SHA-256."""
    with tempfile.TemporaryDirectory() as folder:
        serving = server_context(load_or_create_identity(Path(folder)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = socket.create_connection(listener.getsockname())
        one, _ = listener.accept()
    block, blocks = bytes(1 << 20), MEGABYTES * 1_000_000 >> 20

    def give() -> None:
        with serving.wrap_socket(one, server_side=True) as stream:
            for _ in range(blocks):
                stream.sendall(block)

    before = time.process_time()
    thread = threading.Thread(target=give)
    thread.start()
    digest, got = hashlib.sha256(), 0
    with client_context().wrap_socket(other) as stream:
        while got < blocks << 20:
            data = stream.recv(1 << 16)
            digest.update(data)
            got += len(data)
    thread.join()
    return (time.process_time() - before) * 1e9 / got
