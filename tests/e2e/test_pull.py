"""A model from a hub to an answer: fetched, killed on the way, gone on with, loaded, deleted."""

import json
from collections.abc import Generator
from pathlib import Path

import httpx2
import ollama
import pytest

from tests.clients.ollama_checks import client_of
from tests.e2e.conftest import MODEL
from tests.fakes.hub_server import COMMIT, HubServer
from tests.fakes.node_process import NodeProcess, NodeProcesses, wait_for

REPO = "acme/smol"


@pytest.fixture
def hub(models: Path) -> Generator[HubServer]:
    server = HubServer()
    server.add_directory(REPO, models / MODEL)
    with server.running():
        yield server


def download(node: NodeProcess) -> dict[str, object]:
    answer = httpx2.get(f"{node.url}/v1/cluster/downloads", timeout=10).json()
    found = [each["download"] for each in answer["items"] if each["download"]["model"] == REPO]
    return found[0] if found else {}


def test_a_pull_survives_a_kill_and_the_model_answers(
    nodes: NodeProcesses, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    nodes.models = tmp_path / "models"
    size = sum(hub.repos[REPO].size(name) for name in hub.repos[REPO].files)
    hub.bytes_per_second = 60_000_000
    node = nodes.start("solo").wait_ready()
    run = node.cli("model", "pull", REPO, "--no-wait")
    assert run.returncode == 0, run.stderr
    wait_for(lambda: int(str(download(node).get("bytes_done", 0))) > 20_000_000, "20 MB")
    assert node.cli("download", "pause", REPO).returncode == 0
    wait_for(lambda: download(node)["phase"] == "paused", "the pause")
    paused_at = int(str(download(node)["bytes_done"]))
    assert node.cli("download", "resume", REPO).returncode == 0
    wait_for(lambda: int(str(download(node)["bytes_done"])) > paused_at + 10_000_000, "going on")
    before = int(str(download(node)["bytes_done"]))
    node.kill()

    node = nodes.start("solo").wait_ready()
    first = wait_for(lambda: download(node), "the queue of before", seconds=2.0)
    assert size >= int(str(first["bytes_done"])) >= before
    hub.bytes_per_second = 0
    wait_for(lambda: download(node)["phase"] == "complete", "the end")
    # What was on its way when it was killed may have come twice, and nothing else.
    assert hub.weight_bytes_sent < size + 30_000_000
    wait_for(
        lambda: any(
            item["model"] == REPO and item["state"] == "complete"
            for item in node.json("model", "ls")["items"]
        ),
        "the model in the list",
    )
    asked = node.cli("run", REPO, "What is the capital of France?", "--temperature", "0")
    assert asked.returncode == 0, asked.stderr
    assert "Paris" in asked.stdout
    refused = node.cli("model", "rm", REPO, "-y", "-o", "json")
    assert refused.returncode == 4
    failure = json.loads(refused.stderr.strip().splitlines()[-1])["error"]
    assert failure["code"] == "model_in_use"
    assert "i-" in failure["message"]
    assert node.cli("unload", REPO).returncode == 0
    assert node.cli("model", "rm", REPO, "-y").returncode == 0
    assert not list((nodes.models / "models--acme--smol").glob("**/*"))
    assert COMMIT in str(hub.requests)


def test_ollamas_client_fetches_a_model_and_deletes_it(
    nodes: NodeProcesses, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    nodes.models = tmp_path / "models"
    size = sum(hub.repos[REPO].size(name) for name in hub.repos[REPO].files)
    hub.bytes_per_second = 60_000_000
    node = nodes.start("solo").wait_ready()
    with client_of(node.url) as client:
        with pytest.raises(ollama.ResponseError) as missing:
            client.pull("acme/nothing")
        assert missing.value.status_code == 404
        lines = list(client.pull(f"{REPO}:latest", stream=True))
        assert lines[-1].status == "success"
        known = [(line.completed or 0, line.total) for line in lines if line.total]
        assert known == sorted(known)
        assert {total for _, total in known} == {size}
        assert client.pull(REPO).status == "success"
        assert REPO in [each.model for each in client.list().models]
        assert client.delete(REPO).status == "success"
        assert not list((nodes.models / "models--acme--smol").glob("**/*"))
        wait_for(lambda: REPO not in [each.model for each in client.list().models], "it is gone")
        with pytest.raises(ollama.ResponseError, match="no node has"):
            client.delete(REPO)
