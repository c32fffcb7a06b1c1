"""Whatever stands behind HF_ENDPOINT: an answer that makes no sense is a failure in words."""

from types import SimpleNamespace
from typing import cast

import anyio
import pytest
from huggingface_hub import HfApi, RepoFile

from node.io.doctor import hub_finding
from node.io.hub.hub import Hub, HubError
from node.model.ids import ModelId
from tests.fakes.hub_server import HubServer

MODEL = ModelId("acme/m")


def hub_that_lists(sha: object, **facts: object) -> Hub:
    entry = RepoFile(path="config.json", size=3, oid="a" * 40)
    for name, value in facts.items():
        setattr(entry, name, value)

    def model_info(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(sha=sha)

    def list_repo_tree(*_: object, **__: object) -> list[RepoFile]:
        return [entry]

    api = SimpleNamespace(model_info=model_info, list_repo_tree=list_repo_tree)
    hub = Hub({})
    hub._api = cast("HfApi", api)  # pyright: ignore[reportPrivateUsage]
    return hub


@pytest.mark.parametrize(
    "facts",
    [
        {"size": None},
        {"size": "many"},
        {"size": float("inf")},
        {"path": None},
        {"path": 7},
        {"blob_id": None},
        {"blob_id": 7},
        {"sha": 7},
        {"sha": ["a"]},
    ],
    ids=str,
)
async def test_a_listing_of_other_types_is_refused(facts: dict[str, object]) -> None:
    named = {"sha": "c" * 40, **facts}
    with pytest.raises(HubError) as caught:
        await hub_that_lists(**named).listing(MODEL, "main")
    assert caught.value.failure.code == "hub_answer"


async def test_a_listing_that_makes_sense_is_taken() -> None:
    listing = await hub_that_lists("c" * 40).listing(MODEL, "main")
    assert [(file.path, file.size) for file in listing.files] == [("config.json", 3)]


@pytest.mark.parametrize("path", ["listing", "search"])
async def test_a_hub_in_trouble_is_asked_once(path: str) -> None:
    """Its own package would repeat the question for more than twenty seconds, in silence."""
    server = HubServer()
    server.fail("", status=503, times=9)
    with server.running():
        hub = Hub({"HF_ENDPOINT": server.url})
        with pytest.raises(HubError) as caught:
            await (hub.search("llama") if path == "search" else hub.listing(MODEL, "main"))
    assert caught.value.failure.code == "hub_error"
    assert len(server.requests) == 1


@pytest.mark.parametrize("path", ["listing", "search", "reach"])
async def test_where_no_hub_is_that_is_said_at_once(path: str) -> None:
    hub = Hub({"HF_ENDPOINT": "http://127.0.0.1:9"})
    asked = {"listing": lambda: hub.listing(MODEL, "main"), "search": lambda: hub.search("llama")}
    with anyio.fail_after(4.0), pytest.raises(HubError, match="can't be reached") as caught:
        await asked.get(path, hub.reach)()
    assert caught.value.failure.code == "hub_unreachable"
    assert "HF_ENDPOINT" in caught.value.failure.remedy


async def test_the_doctor_says_whether_the_hub_answers() -> None:
    server = HubServer()
    with server.running():
        assert (await hub_finding(Hub({"HF_ENDPOINT": server.url}))).state == "ok"
    found = await hub_finding(Hub({"HF_ENDPOINT": server.url}))
    assert (found.state, "HF_ENDPOINT" in found.remedy) == ("warn", True)
    offline = await hub_finding(Hub({"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": server.url}))
    assert "HF_HUB_OFFLINE" in offline.reason
