"""One model on three nodes: the hub is asked for it once, the rest comes from node to node."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.e2e.conftest import MODEL
from tests.fakes.hub_server import COMMIT, HubServer
from tests.fakes.node_process import NodeProcesses

REPO = "acme/smol"


@pytest.fixture
def hub(models: Path) -> Generator[HubServer]:
    server = HubServer()
    server.add_directory(REPO, models / MODEL)
    with server.running():
        yield server


def test_three_nodes_cost_the_hub_one_copy(
    nodes: NodeProcesses, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    members = nodes.cluster("studio", "mini", "book", models=tmp_path)
    run = members[0].cli("model", "pull", REPO, "--all", "-o", "json")
    assert run.returncode == 0, run.stderr
    size = sum(hub.repos[REPO].size(name) for name in hub.repos[REPO].files)
    assert sum(hub.bytes_sent.values()) == size
    for name in ("studio", "mini", "book"):
        snapshot = tmp_path / name / "models--acme--smol" / "snapshots" / COMMIT
        for file in hub.repos[REPO].files:
            assert (snapshot / file).read_bytes() == hub.repos[REPO].content(file)
