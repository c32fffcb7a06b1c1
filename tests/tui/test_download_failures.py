"""A failed download: cause and remedy can be read, and nothing looks as if it went on."""

import msgspec
import pytest

from node.core.failure_text import about, without_subject
from node.model.errors import Failure
from node.model.ids import ModelId
from node.model.register import DownloadFigures, DownloadRecord, HeldModel, ModelFigures
from tests.fakes import cluster as fakes
from tests.fakes.cluster import CARDS, NOW, Builder, Cluster
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import screen_text, settle
from tui.app_options import AppOptions
from tui.bridge.store import ALL
from tui.viewmodel import glyphs
from tui.viewmodel.cluster import ClusterView

MODEL = ModelId("owner/gemma-3-27b-instruct-4bit")
REFUSED = Failure(
    code="hub_not_found",
    message=f"{MODEL} is not on the hub (HTTP 404), or it may be private",
    remedy="check the name and the revision; a private one needs HF_TOKEN",
)
SIZES = [(80, 24), (120, 40), (160, 45)]


def failed(failure: Failure = REFUSED, **changes: object) -> Cluster:
    builder = fakes.three_node_builder()
    record = DownloadRecord(
        model=MODEL, phase="failed", bytes_done=0, bytes_total=0, failure=failure
    )
    record = msgspec.structs.replace(record, **changes)
    builder.put("mini-1", DownloadFigures(downloads=(record,)))
    return builder.build()


async def shown(
    cluster: Cluster, view: str, size: tuple[int, int], model: ModelId | None = None
) -> str:
    play = Screenplay(cluster, AppOptions(animations=False, view=view))
    async with play.app.run_test(size=size) as pilot:
        play.start()
        await settle(play, pilot)
        if model is not None:
            assert play.app.context is not None
            assert play.app.main is not None
            play.app.context.chosen_model = model
            play.app.main.mark(ALL)
            await settle(play, pilot)
        drawn = screen_text(play.app)
    play.close()
    return drawn


def flowing(drawn: str) -> str:
    """The screen's words without its frames, so that what goes over two lines is found."""
    return " ".join(drawn.replace("│", " ").split())


def test_a_message_names_its_subject_once() -> None:
    assert without_subject("a/b: the disk is full", "a/b") == "the disk is full"
    assert without_subject("a/b is not on the hub", "a/b") == "is not on the hub"
    assert without_subject("a/b/w.bin: broken", "a/b") == "w.bin: broken"
    assert without_subject("a/bc: other", "a/b") == "a/bc: other"
    assert without_subject("a/b", "a/b") == "a/b"
    assert about("a/b", "a/b: the disk is full") == "a/b: the disk is full"
    assert about("a/b", "the disk is full") == "a/b: the disk is full"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", ["downloads", "models"])
async def test_cause_and_remedy_of_a_failed_download_are_read_whole(
    view: str, size: tuple[int, int]
) -> None:
    words = flowing(await shown(failed(), view, size, MODEL))
    assert f"{MODEL} {MODEL}" not in words
    assert "is not on the hub (HTTP 404), or it may be private; check the name and" in words
    assert "a private one needs HF_TOKEN" in words


@pytest.mark.parametrize("size", SIZES)
async def test_the_overview_tells_the_cause_of_a_failed_download(size: tuple[int, int]) -> None:
    words = flowing(await shown(failed(), "overview", size))
    assert "is not on the hub (HTTP 404)" in words
    assert f"{MODEL} is not" not in words


async def test_a_model_that_could_not_be_fetched_is_not_on_its_way() -> None:
    view = ClusterView(*failed(), None, NOW)
    row = next(row for row in view.models if row.model == MODEL)
    assert (row.fits, row.level, row.places[fakes.node_id("mini-1")]) == (
        "not fetched",
        "bad",
        glyphs.CROSS,
    )
    drawn = await shown(failed(), "models", (120, 40), MODEL)
    assert "on its way" not in drawn
    assert "0 B" not in drawn
    assert "fits alone" not in drawn


def test_the_download_that_is_nearest_to_an_end_speaks_for_the_model() -> None:
    builder = fakes.three_node_builder()
    record = DownloadRecord(
        model=MODEL, phase="failed", bytes_done=0, bytes_total=9, failure=REFUSED
    )
    moving = msgspec.structs.replace(record, phase="downloading", failure=None, bytes_done=3)
    builder.put("mini-1", DownloadFigures(downloads=(record,)))
    builder.put("mbp-max", DownloadFigures(downloads=(moving,)))
    row = next(row for row in ClusterView(*builder.build(), None, NOW).models if row.model == MODEL)
    assert (row.fits, row.level, row.note) == ("on its way", "busy", "")


def lone(phase: str, *, lies: bool) -> Cluster:
    """The model that exoctl brings along, out of its package of 98 MB."""
    builder = Builder(("studio-a",), term=1, index=3)
    model = ModelId("smollm2-135m-instruct")
    record = DownloadRecord(
        model=model, phase=phase, bytes_done=98_000_000, bytes_total=98_000_000, source="package"
    )
    builder.put("studio-a", DownloadFigures(downloads=(record,)))
    if lies:
        held = HeldModel(card=CARDS[model], complete=True, bytes_on_disk=281_000_000)
        builder.put("studio-a", ModelFigures(held=(held,)))
    return builder.build()


async def test_one_model_has_one_size() -> None:
    cluster = lone("complete", lies=True)
    drawn = await shown(cluster, "downloads", (120, 40))
    assert "98" not in drawn
    assert drawn.count("281 MB") == 2
    assert "281 MB on disk, 270 MB of weights" in await shown(cluster, "models", (120, 40))


async def test_what_has_come_is_not_said_to_be_nowhere() -> None:
    assert "has just come" in await shown(lone("complete", lies=False), "placements", (120, 40))
    assert "On disk: smollm2" in await shown(lone("complete", lies=True), "placements", (120, 40))
    drawn = await shown(lone("converting", lies=False), "placements", (120, 40))
    assert "smollm2-135m-instruct is converting: 100%" in drawn


async def test_a_model_too_large_for_the_memory_lies_on_its_node_all_the_same() -> None:
    builder = Builder(("mini-2",), term=1, index=3)
    builder.hold("mini-2", "llama-3.3-70b-4bit")
    drawn = await shown(builder.build(), "placements", (120, 40))
    assert "On disk: llama-3.3-70b-4bit, but short" in drawn
