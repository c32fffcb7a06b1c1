"""Every state that a person can meet: it is named, and so is the next key or command."""

from collections.abc import Callable

import msgspec
import pytest

from node.model.errors import Failure, UnreachableError
from node.model.event import ProposalRejected
from node.model.machine import Address
from node.model.register import DownloadFigures, LinkFigures, LinkRecord, RouterFigures
from node.model.session import EventId
from node.model.state import State
from tests.fakes import cluster as fakes
from tests.fakes.cluster import Builder, Cluster, node_id
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import check_snapshot, screen_text, settle
from tui.app_options import AppOptions
from tui.bridge.inbox import Disconnected


def node_behind() -> Cluster:
    builder = fakes.three_node_builder()
    held = builder.registers[node_id("mini-1"), "RouterFigures"].value
    assert isinstance(held, RouterFigures)
    behind = msgspec.structs.replace(
        held,
        index_applied=held.index_applied - 390,
        buffered=12,
        gap_first=182_052,
        gap_last=182_063,
        replay_attempts=3,
        unacknowledged=3,
        oldest_seconds=5.1,
    )
    builder.put("mini-1", behind)
    return builder.build()


def disk_full() -> Cluster:
    builder = fakes.three_node_builder()
    held = builder.registers[node_id("studio-a"), "RouterFigures"].value
    assert isinstance(held, RouterFigures)
    builder.put("studio-a", msgspec.structs.replace(held, disk_full=True))
    return builder.build()


def cordoned() -> Cluster:
    builder = fakes.three_node_builder()
    builder.amend_node("mini-1", cordoned=True)
    return builder.build()


def other_version() -> Cluster:
    builder = fakes.three_node_builder()
    builder.amend_node("mini-1", version="0.0.9", cordoned=True)
    return builder.build()


def discovery_blocked() -> Cluster:
    builder = Builder(("studio-a",), term=1, index=3)
    builder.put("studio-a", LinkFigures(discovery="the system does not let it listen: mDNS is off"))
    return builder.build()


def stranger_near() -> Cluster:
    builder = fakes.three_node_builder()
    held = builder.registers[node_id("studio-a"), "LinkFigures"].value
    assert isinstance(held, LinkFigures)
    stranger = LinkRecord(
        peer=node_id("stranger"),
        address=Address("10.0.0.77", 52416),
        up=False,
        failure=Failure(code="stranger", message="not of this cluster"),
    )
    builder.put("studio-a", msgspec.structs.replace(held, heard=(stranger,)))
    return builder.build()


def no_models() -> Cluster:
    return Builder(("studio-a",), term=1, index=3).build()


def no_master() -> Cluster:
    return State(), {}


def withdrawn() -> Cluster:
    builder = fakes.three_node_builder()
    rejected = ProposalRejected(
        id=EventId(node_id("mini-1"), 1, 7),
        asked_by=node_id("mini-1"),
        failure=Failure(
            code="no_fit",
            message="phi-4-4bit no longer fits on mini-1",
            remedy="place it again",
        ),
    )
    builder.amend(rejections=(rejected,))
    return builder.build()


def one_way_link() -> Cluster:
    builder = fakes.three_node_builder()
    held = builder.registers[node_id("mini-1"), "LinkFigures"].value
    assert isinstance(held, LinkFigures)
    closed = Failure(code="refused", message="connection refused on en1")
    links = tuple(msgspec.structs.replace(link, up=False, failure=closed) for link in held.links)
    builder.put("mini-1", LinkFigures(links=links, discovery="on"))
    return builder.build()


def paused_download() -> Cluster:
    builder = fakes.three_node_builder()
    held = fakes.five_node_cluster()[1][node_id("mini-1"), "DownloadFigures"].value
    assert isinstance(held, DownloadFigures)
    paused = msgspec.structs.replace(held.downloads[0], phase="paused", bytes_per_second=0.0)
    builder.put("mini-1", DownloadFigures(downloads=(paused,)))
    return builder.build()


STATES: dict[str, tuple[Callable[[], Cluster], str, str, tuple[str, ...]]] = {
    "alone": (fakes.lone_node, "overview", "", ("Only this machine so far", "i shows a code")),
    "no_models": (no_models, "overview", "", ("No model lies on a node yet", "n places")),
    "no_models_table": (no_models, "models", "", ("No model lies on any node", "model pull")),
    "no_placement": (fakes.no_placement, "overview", "", ("Nothing is running", "n places")),
    "no_placement_chat": (fakes.no_placement, "chat", "", ("No model is ready", "n places")),
    "no_requests": (fakes.no_placement, "placements", "", ("No requests", "7 chats here")),
    "loading": (fakes.loading, "overview", "", ("LOADING", "layers")),
    "failed": (fakes.five_node_cluster, "placements", "", ("FAILED", "14.2 GB asked")),
    "node_lost": (fakes.node_lost, "overview", "", ("lost", "2/3", "DEGRADED")),
    "node_behind": (node_behind, "events", "", ("gap", "182,052", "390")),
    "electing": (fakes.electing, "overview", "mbp-max", ("electing t13", "No master")),
    "no_master_yet": (no_master, "overview", "", ("no master yet",)),
    "disk_full": (disk_full, "overview", "", ("Disk full", "free space")),
    "cordoned": (cordoned, "nodes", "", ("cordoned", "no new shards")),
    "other_version": (other_version, "nodes", "", ("0.0.9",)),
    "discovery_blocked": (discovery_blocked, "overview", "", ("Discovery does not work", ":join")),
    "stranger_near": (stranger_near, "overview", "", ("3/3",)),
    "withdrawn": (withdrawn, "overview", "", ("Withdrawn after a partition", "Place it again")),
    "one_way_link": (one_way_link, "overview", "", ("one way",)),
    "paused_download": (paused_download, "downloads", "", ("42%", "paused")),
}


@pytest.mark.parametrize("name", STATES)
async def test_state_is_named_with_what_helps(name: str, request: pytest.FixtureRequest) -> None:
    fixture, view, node, words = STATES[name]
    cluster = fixture()
    if not cluster[0].nodes:
        return await check_bare_state(cluster, words)
    play = Screenplay(cluster, AppOptions(animations=False, view=view), node=node)
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        shown = screen_text(play.app)
        for word in words:
            assert word in shown, f"{word!r} is missing\n{shown}"
        update = bool(request.config.getoption("--update-snapshots"))
        check_snapshot(play.app, f"state_{name}", update=update)
    play.close()
    return None


async def check_bare_state(cluster: Cluster, words: tuple[str, ...]) -> None:
    """A node before its first entry: there is nobody in the state yet."""
    play = Screenplay(fakes.lone_node(), entries=[])
    play.handle.fixed_state, play.handle.fixed_registers = cluster
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        shown = screen_text(play.app)
        for word in words:
            assert word in shown, shown
    play.close()


async def test_before_the_node_answers_the_screen_says_that_it_starts() -> None:
    play = Screenplay(fakes.lone_node())
    async with play.app.run_test(size=(100, 30)) as pilot:
        await settle(play, pilot)
        assert "starting node" in screen_text(play.app).split("\n")[0]
    play.close()


async def test_node_that_is_gone_leaves_its_last_figures_and_their_age() -> None:
    play = Screenplay(fakes.three_node_cluster(), is_embedded=False)
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        gone = UnreachableError.because("node_gone", "127.0.0.1:52415 does not answer")
        play.now += 42
        play.app.inbox.put(Disconnected(gone.failure, 5.0))
        await settle(play, pilot)
        shown = screen_text(play.app)
        assert "node gone 42s" in shown
        assert "does not answer" in shown
        assert "llama-3.3-70b-4bit" in shown
        assert "q quits" in shown
    play.close()


async def test_figures_that_stop_coming_are_stamped() -> None:
    play = Screenplay(fakes.three_node_cluster())
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        assert "stale" not in screen_text(play.app)
        play.now += 4
        assert play.app.context is not None
        assert play.app.main is not None
        play.app.main.mark(frozenset(("session",)))
        await settle(play, pilot)
        assert "stale 4.0s" in screen_text(play.app)
    play.close()


async def test_below_the_least_size_the_most_is_said_in_the_least_room(
    request: pytest.FixtureRequest,
) -> None:
    update = bool(request.config.getoption("--update-snapshots"))
    play = Screenplay(fakes.five_node_cluster())
    async with play.app.run_test(size=(59, 12)) as pilot:
        play.start()
        await settle(play, pilot)
        shown = screen_text(play.app)
        assert "59x12: the views need 80x24" in shown
        assert "31.4 tok/s" in shown
        check_snapshot(play.app, "compact_59x12", update=update)
        await pilot.resize_terminal(20, 5)
        await settle(play, pilot)
        await pilot.resize_terminal(1, 1)
        await settle(play, pilot)
    play.close()


async def test_trust_for_anyone_is_never_out_of_sight() -> None:
    play = Screenplay(fakes.three_node_cluster())
    play.handle.view = msgspec.structs.replace(play.handle.view, trust="lan")
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        assert "anyone may join" in screen_text(play.app).split("\n")[0]
    play.close()
