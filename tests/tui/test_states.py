"""Every state that a person can meet: it is named, and so is the next key or command."""

from collections.abc import Callable

import msgspec
import pytest

from node.core.apply import apply
from node.model.errors import Failure, UnreachableError
from node.model.event import NodeLost, ProposalRejected
from node.model.ids import ModelId
from node.model.instance import RunnerPhase
from node.model.machine import Address
from node.model.register import (
    DownloadFigures,
    DownloadRecord,
    JoinFigures,
    LinkFigures,
    LinkRecord,
    MachineFigures,
    RouterFigures,
)
from node.model.session import EventId
from node.model.state import State
from tests.fakes import cluster as fakes
from tests.fakes.cluster import NOW, Builder, Cluster, node_id
from tests.fakes.fake_handle import make_join_request
from tests.fakes.history import entry
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import check_snapshot, screen_text, settle
from tui.app_options import AppOptions
from tui.bridge.inbox import Disconnected, Streamed
from tui.viewmodel.cluster import ClusterView


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


def master_lost() -> Cluster:
    builder = fakes.three_node_builder()
    builder.amend_node("studio-a", lost=True, lost_reason="no heartbeat for 3.0 s", lost_at=NOW - 4)
    for kind in ("MachineFigures", "RouterFigures", "LinkFigures"):
        builder.registers.pop((builder.ids["studio-a"], kind), None)
    return builder.build()


def disk_low() -> Cluster:
    builder = fakes.three_node_builder()
    held = builder.registers[node_id("mini-1"), "MachineFigures"].value
    assert isinstance(held, MachineFigures)
    builder.put("mini-1", msgspec.structs.replace(held, disk_bytes_free=3_000_000_000))
    return builder.build()


def memory_short() -> Cluster:
    builder = fakes.three_node_builder()
    held = builder.registers[node_id("mini-1"), "MachineFigures"].value
    assert isinstance(held, MachineFigures)
    builder.put("mini-1", msgspec.structs.replace(held, memory_bytes_available=500_000_000))
    return builder.build()


def disk_stuck() -> Cluster:
    builder = fakes.three_node_builder()
    held = builder.registers[node_id("studio-a"), "RouterFigures"].value
    assert isinstance(held, RouterFigures)
    trouble = "nothing was written for 4 s"
    builder.put("studio-a", msgspec.structs.replace(held, disk_trouble=trouble))
    return builder.build()


def first_run() -> Cluster:
    builder = Builder(("studio-a",), term=1, index=3)
    record = DownloadRecord(
        model=ModelId("smollm2-135m-instruct"),
        phase="converting",
        bytes_done=40_000_000,
        bytes_total=115_000_000,
        source="package",
    )
    builder.put("studio-a", DownloadFigures(downloads=(record,)))
    return builder.build()


def failed_download(code: str, message: str, remedy: str, retry_at: float = 0.0) -> Cluster:
    builder = fakes.three_node_builder()
    record = DownloadRecord(
        model=ModelId("owner/gemma-3-27b"),
        phase="failed",
        bytes_done=6_000_000_000,
        bytes_total=17_000_000_000,
        source="hub",
        failure=Failure(code=code, message=message, remedy=remedy),
        attempts=2,
        retry_at=retry_at,
    )
    builder.put("mini-1", DownloadFigures(downloads=(record,)))
    return builder.build()


def hub_offline() -> Cluster:
    remedy = "look at the network; it is tried again by itself"
    return failed_download("hub_unreachable", "the hub does not answer", remedy, NOW + 8)


def hub_gated() -> Cluster:
    message = "403: owner/gemma-3-27b is gated"
    return failed_download("hub_forbidden", message, "set HF_TOKEN to a token that may read it")


def hub_rate_limited() -> Cluster:
    remedy = "wait, or set HF_TOKEN"
    return failed_download("hub_busy", "429: too many requests", remedy, NOW + 60)


def wants_to_join() -> Cluster:
    builder = fakes.three_node_builder()
    builder.put("studio-a", JoinFigures(requests=(make_join_request(),)))
    return builder.build()


class Met(msgspec.Struct, frozen=True):
    """A state as a person meets it."""

    fixture: Callable[[], Cluster]
    words: tuple[str, ...]
    """What is said of it."""
    helps: str
    """The next key or command, as it is named on the screen."""
    view: str = "overview"
    node: str = ""
    """From which node it is seen."""
    keys: tuple[str, ...] = ()
    """What is pressed to come there."""


STATES: dict[str, Met] = {
    "alone": Met(fakes.lone_node, ("Only this machine so far",), "i shows a code"),
    "first_run": Met(first_run, ("smollm2-1…instruct", "35%"), "n places"),
    "no_models": Met(no_models, ("No model lies on a node yet",), "n places"),
    "no_models_table": Met(no_models, ("No model lies on any node",), "model pull", "models"),
    "no_placement": Met(fakes.no_placement, ("Nothing is running",), "n places"),
    "no_placement_chat": Met(fakes.no_placement, ("No model is ready",), "n places", "chat"),
    "no_requests": Met(fakes.no_placement, ("No requests",), "7 opens a chat", "placements"),
    "no_downloads": Met(fakes.no_placement, ("No downloads",), "a fetches one", "downloads"),
    "no_match": Met(
        fakes.three_node_cluster,
        ("No node matches the filter",),
        "esc clears it",
        "nodes",
        keys=("slash", "q", "q", "enter"),
    ),
    "does_not_fit": Met(fakes.lone_node, ("short", "slack"), "o", keys=("n", "enter")),
    "loading": Met(fakes.loading, ("LOADING", "layers"), "? help"),
    "failed": Met(fakes.five_node_cluster, ("FAILED", "14.2 GB asked"), "R restart", "placements"),
    "crashed_runner_lines": Met(
        fakes.five_node_cluster, ("out of memory", "RuntimeError: 14.2 GB"), "s source", "logs"
    ),
    "node_lost": Met(fakes.node_lost, ("lost", "2/3", "DEGRADED"), "K removes it"),
    "master_lost": Met(
        master_lost, ("master lost", "lost 4.0s ago"), "K removes it", node="mbp-max"
    ),
    "node_behind": Met(node_behind, ("gap", "182,052", "390"), "t tests its link", "events"),
    "electing": Met(fakes.electing, ("electing t13", "No master"), "6 events", node="mbp-max"),
    "no_master_yet": Met(no_master, ("no master yet",), "? help"),
    "disk_full": Met(disk_full, ("Disk full",), "free space"),
    "disk_stuck": Met(disk_stuck, ("Disk stuck", "4 s"), "look after the disk"),
    "disk_low": Met(disk_low, ("disk: 3.0 GB left",), "D deletes one"),
    "memory_short": Met(memory_short, ("memory: 477 MiB left",), "x stops one"),
    "cordoned": Met(cordoned, ("cordoned", "no new shards"), "C allows them", "nodes"),
    "other_version": Met(other_version, ("0.0.9",), "update exoctl there", "nodes"),
    "discovery_blocked": Met(discovery_blocked, ("Discovery does not work",), ":join"),
    "stranger_near": Met(stranger_near, ("10.0.0.77:52416 is near, in another cluster",), "J asks"),
    "wants_to_join": Met(wants_to_join, ("mini wants to join", "281 604"), "A lets it in"),
    "withdrawn": Met(withdrawn, ("Withdrawn after a partition", "Place it again"), "6 events"),
    "one_way_link": Met(one_way_link, ("one way",), "m matrix"),
    "paused_download": Met(paused_download, ("42%", "paused"), "space pause", "downloads"),
    "hub_offline": Met(
        hub_offline, ("the hub does not answer", "retry 8.0s"), "r tries again", "downloads"
    ),
    "hub_gated": Met(hub_gated, ("403", "HF_TOKEN"), "r tries again", "downloads"),
    "hub_rate_limited": Met(hub_rate_limited, ("429", "retry 1m"), "r tries again", "downloads"),
}


@pytest.mark.parametrize("name", STATES)
async def test_state_is_named_with_what_helps(name: str, request: pytest.FixtureRequest) -> None:
    met = STATES[name]
    cluster = met.fixture()
    if not cluster[0].nodes:
        return await check_bare_state(cluster, (*met.words, met.helps))
    options = AppOptions(animations=False, view=met.view)
    play = Screenplay(cluster, options, node=met.node)
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        for key in met.keys:
            await pilot.press(key)
            await settle(play, pilot)
        shown = screen_text(play.app)
        for word in (*met.words, met.helps):
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


async def test_read_only_and_a_node_that_is_gone_are_pictures_of_their_own(
    request: pytest.FixtureRequest,
) -> None:
    update = bool(request.config.getoption("--update-snapshots"))
    options = AppOptions(animations=False, read_only=True)
    play = Screenplay(fakes.three_node_cluster(), options, is_embedded=False)
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        assert "n place" not in screen_text(play.app).split("\n")[-1]
        check_snapshot(play.app, "state_read_only", update=update)
        gone = UnreachableError.because("node_gone", "127.0.0.1:52415 does not answer")
        play.now += 42
        play.app.inbox.put(Disconnected(gone.failure, 5.0))
        await settle(play, pilot)
        check_snapshot(play.app, "state_node_gone", update=update)
    play.close()


async def test_trust_for_anyone_is_never_out_of_sight() -> None:
    play = Screenplay(fakes.three_node_cluster())
    play.handle.view = msgspec.structs.replace(play.handle.view, trust="lan")
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        assert "anyone may join" in screen_text(play.app).split("\n")[0]
    play.close()


async def test_what_served_on_a_lost_node_neither_runs_nor_speaks_any_more() -> None:
    builder = fakes.three_node_builder()
    split = {"studio-a": 48, "mbp-max": 32}
    served = builder.place("5a11c0de", "llama-3.3-70b-4bit", split, RunnerPhase.READY)
    builder.progress(served, running=1, speed=31.4)
    play = Screenplay(builder.build(), AppOptions(animations=False, view="placements"))
    async with play.app.run_test(size=(80, 24)) as pilot:
        play.start()
        await settle(play, pilot)
        assert "31.4 tok/s" in screen_text(play.app)
        assert "1 request " in screen_text(play.app)
        state = builder.state
        lost = NodeLost(node=node_id("studio-a"), reason="no answer on any link", at=NOW)
        fallen = apply(state, entry(state, state.index + 1, 1, lost))
        play.app.inbox.put(Streamed(entry(state, state.index + 1, 1, lost), fallen))
        await settle(play, pilot)
        shown = screen_text(play.app)
        assert "DEGRADED" in shown
        assert "tok/s" not in shown.replace("predicted 29.0 tok/s", "").replace("tok/s    age", "")
        assert "0 requests" in shown
        words = " ".join(shown.replace("│", " ").split())
        assert "another place is looked for unless it is back soon" in words
    play.close()


def test_a_runner_whose_neighbour_is_lost_has_no_speed() -> None:
    builder = fakes.three_node_builder()
    split = {"studio-a": 48, "mbp-max": 32}
    served = builder.place("5a11c0de", "llama-3.3-70b-4bit", split, RunnerPhase.READY)
    builder.progress(served, running=1, speed=31.4)
    speeds = [row.speed for row in ClusterView(*builder.build(), None, NOW).nodes]
    assert speeds == [31.4, 31.4, 0.0]
    builder.amend_node("mbp-max", lost=True, lost_reason="no answer on any link", lost_at=NOW)
    speeds = [row.speed for row in ClusterView(*builder.build(), None, NOW).nodes]
    assert speeds == [0.0, 0.0, 0.0]
