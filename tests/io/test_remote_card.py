"""A model's card before it is fetched: its headers come, its weights stay where they are."""

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from node.config import environment_for_child
from node.io.hub.hub import Hub, HubError
from node.io.hub.transfer import Transfer
from node.io.model_store.cards import CardShelf
from node.io.model_store.remote_card import RemoteCards
from node.model.ids import ModelId
from tests.fakes.hub_server import COMMIT, HubServer
from tests.fakes.tiny_files import safetensors, write_model

FAKES = Path(__file__).parents[1] / "fakes"
MODEL = ModelId("acme/tiny")
BIG = 3_000_000


@pytest.fixture
def hub() -> Generator[HubServer]:
    with HubServer().running() as server:
        yield server


def cards_of(tmp_path: Path, hub: HubServer) -> RemoteCards:
    state = tmp_path / "state"
    command = (sys.executable, str(FAKES / "fake_inspector.py"))
    shelf = CardShelf(state, tmp_path / "models", command, environment_for_child())
    return RemoteCards(state, Hub({"HF_ENDPOINT": hub.url, "HF_TOKEN": ""}), Transfer(), shelf)


async def test_a_card_costs_the_headers_and_is_kept_for_its_commit(
    tmp_path: Path, hub: HubServer
) -> None:
    runs = tmp_path / "runs"
    source = write_model(tmp_path / "source", config={"runs": str(runs)})
    (source / "model.safetensors").write_bytes(safetensors({"layers.0.weight": BIG}))
    hub.add_directory(MODEL, source)
    cards = cards_of(tmp_path, hub)
    card = await cards.describe(MODEL, "main")
    assert (card.model, card.source) == (MODEL, f"{MODEL}@{COMMIT}")
    assert hub.weight_bytes_sent < 1000
    sent = dict(hub.bytes_sent)
    assert await cards.describe(MODEL, "main") == card
    assert hub.bytes_sent == sent
    assert not list((tmp_path / "state" / "tmp").glob("card-*"))


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"\x00" * 100])
async def test_a_weight_file_without_a_header_is_refused(
    tmp_path: Path, hub: HubServer, content: bytes
) -> None:
    source = write_model(tmp_path / "source")
    (source / "model.safetensors").write_bytes(content)
    hub.add_directory(MODEL, source)
    with pytest.raises(HubError) as raised:
        await cards_of(tmp_path, hub).describe(MODEL, "main")
    assert raised.value.failure.code == "hub_changed"
    assert not list((tmp_path / "state" / "tmp").glob("card-*"))
