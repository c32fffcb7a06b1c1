"""`exoctl download` and `model pull|rm|verify|import|prune|search` on a fake handle."""

from pathlib import Path

import anyio
import msgspec
import pytest

from node.core.placement.wish import MODEL_PREPARING
from node.io import clock
from node.model.command import Accepted, Command, Refused
from node.model.download import (
    HubModel,
    ImportModel,
    LimitDownloads,
    ModelOrder,
    OrderDone,
    PrioritiseDownload,
    PruneModels,
    PullModel,
    RemoveModel,
    SteerDownload,
    VerifyModel,
)
from node.model.errors import BusyError, ConflictError, Failure
from node.model.ids import CommandId, ModelId, NodeId
from node.model.register import DownloadFigures, DownloadRecord, HeldModel, ModelFigures
from tests.fakes.command_line import CommandLine
from tests.fakes.fake_handle import ALPHA, BETA, FakeHandle, make_card
from tests.fakes.surroundings import isolate
from tui.commands import load as load_module

REPO = ModelId("acme/new")


class FetchingHandle(FakeHandle):
    """Has every pull done at once, or stopped by the failure that is set."""

    stopped_by: Failure | None = None
    retries = False
    attempts = 0

    async def order(
        self, node: NodeId, order: ModelOrder, timeout_seconds: float = 30.0
    ) -> OrderDone:
        done = await super().order(node, order, timeout_seconds)
        if isinstance(order, PullModel | VerifyModel):
            self.set_register(node, DownloadFigures(downloads=(self.record(order.model),)))
            card = make_card(order.model)
            whole = self.stopped_by is None
            held = HeldModel(card=card, complete=whole, bytes_on_disk=119_000_000)
            self.set_register(node, ModelFigures(held=(held,)))
        return msgspec.structs.replace(done, bytes_freed=5_000_000)

    def record(self, model: ModelId) -> DownloadRecord:
        return DownloadRecord(
            model=model,
            phase="complete" if self.stopped_by is None else "failed",
            bytes_done=119_000_000 if self.stopped_by is None else 50_000_000,
            bytes_total=119_000_000,
            failure=self.stopped_by,
            retry_at=clock.wall() + 8.5 if self.retries else 0.0,
            attempts=self.attempts,
        )


@pytest.fixture
def handle() -> FetchingHandle:
    return FetchingHandle()


@pytest.fixture
def line(
    handle: FetchingHandle,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> CommandLine:
    isolate(monkeypatch, tmp_path)
    return CommandLine(handle, capsys)


def queue(handle: FakeHandle, node: NodeId = ALPHA, **changes: object) -> None:
    record = DownloadRecord(
        model=REPO, phase="downloading", bytes_done=30, bytes_total=120, bytes_per_second=9.0
    )
    changed = msgspec.structs.replace(record, **changes)
    handle.set_register(node, DownloadFigures(downloads=(changed,)))


def test_pull_fetches_to_this_node_and_says_that_it_is_whole(
    line: CommandLine, handle: FetchingHandle
) -> None:
    outcome = line("model", "pull", REPO)
    assert outcome.code == 0
    assert "whole on alpha: 119 MB, checked" in outcome.err
    assert handle.orders == [(ALPHA, PullModel(model=REPO, companions=(ALPHA,)))]


def test_pull_tells_all_nodes_of_each_other(line: CommandLine, handle: FetchingHandle) -> None:
    options = ("--revision", "v2", "--rate", "50MB/s", "--priority", "3", "--from", "peer")
    assert line("model", "pull", REPO, "--all", *options).code == 0
    assert [node for node, _ in handle.orders] == [ALPHA, BETA]
    order = handle.orders[1][1]
    assert isinstance(order, PullModel)
    assert order.companions == (ALPHA, BETA)
    assert (order.revision, order.bytes_per_second) == ("v2", 50_000_000)
    assert (order.priority, order.source) == (3, "peer")


def test_pull_without_waiting_only_queues(line: CommandLine, handle: FetchingHandle) -> None:
    outcome = line("model", "pull", REPO, "--node", "beta", "--no-wait")
    assert (outcome.code, outcome.out) == (0, "beta: done, 5.0 MB freed\n")


def test_a_failure_that_stands_ends_the_pull_with_its_cause_and_remedy(
    line: CommandLine, handle: FetchingHandle
) -> None:
    handle.stopped_by = Failure(code="hub_gated", message="it is gated", remedy="accept its terms")
    outcome = line("model", "pull", REPO, "-o", "json")
    assert outcome.code == 5
    assert (outcome.error["code"], outcome.error["remedy"]) == ("hub_gated", "accept its terms")


def test_a_failure_that_passes_is_waited_out(line: CommandLine, handle: FetchingHandle) -> None:
    handle.stopped_by = Failure(code="hub_error", message="HTTP 503", remedy="wait")
    handle.retries = True
    outcome = line("model", "pull", REPO, "--timeout", "500ms")
    assert outcome.code == 124
    said, error = outcome.err.splitlines()[:2]
    assert said == f"{REPO}: failed (HTTP 503; wait)", (
        "once, however often the time to the next changes"
    )
    assert error.endswith("is not whole after 0.5 s: HTTP 503")
    assert "exoctl download cancel" in outcome.err


def test_a_pull_that_fails_time_and_again_ends_with_its_cause(
    line: CommandLine, handle: FetchingHandle
) -> None:
    handle.stopped_by = Failure(code="hub_unreachable", message="no hub", remedy="see the network")
    handle.retries = True
    handle.attempts = 8
    for words in (("load", REPO), ("run", REPO, "hello"), ("model", "pull", REPO)):
        outcome = line(*words)
        assert outcome.code == 2
        assert "no hub (failed 8 times in a row)" in outcome.err
        assert "see the network" in outcome.err


@pytest.mark.parametrize("name", ["../evil", "a/b/c", ""])
def test_what_can_be_no_name_is_refused_at_once(line: CommandLine, name: str) -> None:
    assert line("model", "pull", name).code == 2


def test_read_only_refuses_a_pull(line: CommandLine, handle: FetchingHandle) -> None:
    for words in (("pull", REPO), ("verify", REPO), ("rm", REPO, "-y"), ("prune",)):
        assert line("--read-only", "model", *words).code == 5
    assert handle.orders == []


def test_loading_what_is_on_no_node_fetches_it_first(
    line: CommandLine, handle: FetchingHandle
) -> None:
    line("load", REPO, "--timeout", "1s")
    assert handle.orders == [(ALPHA, PullModel(model=REPO, companions=(ALPHA,)))]


def test_loading_what_came_in_part_lets_it_go_on(line: CommandLine, handle: FetchingHandle) -> None:
    part = HeldModel(card=make_card(REPO), complete=False, bytes_on_disk=50_000_000)
    handle.set_register(ALPHA, ModelFigures(held=(part,)))
    line("load", REPO, "--timeout", "1s")
    assert handle.orders == [(ALPHA, PullModel(model=REPO, companions=(ALPHA,)))]


def test_downloads_are_listed_with_rate_and_time_left(
    line: CommandLine, handle: FetchingHandle
) -> None:
    queue(handle)
    outcome = line("download", "ls")
    assert "25%" in outcome.out
    assert "9 B/s" in outcome.out
    assert "10 s" in outcome.out
    assert line("download", "ls", "-o", "name").lines == [REPO]


def test_a_failed_one_is_listed_with_cause_and_next_try(
    line: CommandLine, handle: FetchingHandle
) -> None:
    failure = Failure(code="x", message="HTTP 403", remedy="use a token")
    queue(handle, phase="failed", failure=failure)
    assert "HTTP 403; use a token" in line("download", "ls").out


@pytest.mark.parametrize("action", ["pause", "resume", "retry", "cancel"])
def test_a_download_is_steered_wherever_it_is(
    line: CommandLine, handle: FetchingHandle, action: str
) -> None:
    queue(handle, BETA)
    assert line("download", action, "new").code == 0
    assert handle.orders == [(BETA, SteerDownload(model=REPO, action=action))]
    assert line("download", action, "other").code == 3


def test_priority_and_bounds_are_set(line: CommandLine, handle: FetchingHandle) -> None:
    queue(handle)
    assert line("download", "move", REPO, "7").code == 0
    assert line("download", "limit", "--rate", "2.5MB/s", "--at-once", "3").code == 0
    assert line("download", "limit").code == 2
    assert line("download", "limit", "--rate", "fast").code == 2
    assert [order for _, order in handle.orders] == [
        PrioritiseDownload(model=REPO, priority=7),
        LimitDownloads(bytes_per_second=2_500_000, at_once=3),
    ]


def test_models_are_deleted_verified_imported_and_pruned(
    line: CommandLine, handle: FetchingHandle, tmp_path: Path
) -> None:
    line("model", "pull", REPO)
    handle.orders.clear()
    assert line("model", "rm", REPO).code == 2  # nobody is there to ask
    assert line("model", "rm", REPO, "-y").out == "alpha: done, 5.0 MB freed\n"
    assert line("model", "verify", REPO).code == 0
    assert line("model", "import", str(tmp_path / "mine")).code == 0
    assert line("model", "import", str(tmp_path / "m.gguf"), "--name", "acme/packed").code == 0
    assert line("model", "prune").code == 0
    assert [order for _, order in handle.orders] == [
        RemoveModel(model=REPO),
        VerifyModel(model=REPO),
        ImportModel(path=str(tmp_path / "mine"), model=ModelId("mine")),
        ImportModel(path=str(tmp_path / "m.gguf"), model=ModelId("acme/packed")),
        PruneModels(),
    ]


def test_a_model_in_use_stays_and_the_instance_is_named(
    line: CommandLine, handle: FetchingHandle
) -> None:
    line("model", "pull", REPO)
    handle.order_failure = ConflictError.because("model_in_use", "used by i-00000001", "unload it")
    outcome = line("model", "rm", REPO, "-y", "-o", "json")
    assert (outcome.code, outcome.error["code"]) == (4, "model_in_use")


def test_a_search_lists_what_the_hub_has(line: CommandLine, handle: FetchingHandle) -> None:
    handle.found = [HubModel(model=REPO, downloads=12_345, likes=6, gated=True)]
    outcome = line("model", "search", "new")
    assert "12,345" in outcome.out
    assert line("model", "search", "nothing").err == "nothing on the hub matches\n"


class SlowHandle(FetchingHandle):
    """Fetches longer than a load may take, and is not ready for the first that asks to place."""

    placed = 0

    async def order(
        self, node: NodeId, order: ModelOrder, timeout_seconds: float = 30.0
    ) -> OrderDone:
        await anyio.sleep(0.3)
        return await super().order(node, order, timeout_seconds)

    async def submit(
        self, command: Command, timeout_seconds: float = 30.0, command_id: CommandId | None = None
    ) -> Accepted | Refused:
        self.placed += 1
        if self.placed == 1:
            raise BusyError.because(MODEL_PREPARING, "it is being looked at")
        return await super().submit(command, timeout_seconds, command_id)


def test_the_time_that_a_model_took_to_come_is_not_taken_from_its_start(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = SlowHandle()
    line.handle = handle
    monkeypatch.setattr(load_module, "LOAD_SECONDS", 0.25)
    line("load", REPO)
    assert handle.placed >= 2
