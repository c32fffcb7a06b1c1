"""Whatever stands behind HF_ENDPOINT: an answer that makes no sense is a failure in words."""

from types import SimpleNamespace
from typing import cast

import pytest
from huggingface_hub import HfApi, RepoFile

from node.io.hub.hub import Hub, HubError
from node.model.ids import ModelId

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
