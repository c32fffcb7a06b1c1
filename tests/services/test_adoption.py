"""Runners that outlive their node: its next life takes them over, or ends them."""

import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest

from node.io.runner_files import RunnerFile, RunnerFiles
from node.model.ids import InstanceId, RunnerId
from node.model.instance import RunnerPhase, StageAddress
from node.model.request import Delta, Finished
from node.runner.protocol import Connect
from tests.fakes.earlier_life import EarlierLife, earlier_life
from tests.fakes.supervisor_scene import RUNNER, Scene, gone, order_of, request, scene

LATER = 2
"""The life of the node after the one that started the runner."""


def replaced(file: RunnerFile, **changes: Any) -> RunnerFile:
    return msgspec.structs.replace(file, **changes)


def adopted(here: Scene, left: EarlierLife) -> bool:
    known = here.supervisor.local().get(left.runner)
    return known is not None and not known.adopting and not known.ended


async def test_a_ready_runner_goes_on_as_it_is(tmp_path: Path) -> None:
    with earlier_life(RunnerFiles(tmp_path), order_of(attempt=3)) as left:
        async with scene(tmp_path, incarnation=LATER) as here:
            known = here.supervisor.local()[RUNNER]
            assert not known.adopting
            assert known.connected
            assert [record.phase for record in here.told] == [RunnerPhase.READY]
            assert (known.record.process_id, known.record.attempt) == (left.process.pid, 3)
            items = [item async for item in here.supervisor.generate(request("5"))]
            assert [item.index for item in items if isinstance(item, Delta)] == [0, 1, 2, 3, 4]
            assert isinstance(items[-1], Finished)
        assert gone(left.process.pid), "a clean stop takes it along"
        assert here.told[-1].phase is RunnerPhase.STOPPED
        assert here.files.read_all() == []
        assert "claimed by life 2" in left.log.read_text()


async def test_a_runner_that_was_not_prepared_yet_is_prepared(tmp_path: Path) -> None:
    with earlier_life(RunnerFiles(tmp_path), order_of(), phase=None) as left:
        async with scene(tmp_path, incarnation=LATER) as here:
            assert (await here.phase(RunnerPhase.READY)).process_id == left.process.pid


async def test_a_stage_that_waited_for_its_neighbours_is_told_them(tmp_path: Path) -> None:
    order = order_of(stages=2, boundaries=(0, 2, 4))
    with earlier_life(RunnerFiles(tmp_path), order, phase=RunnerPhase.CONNECTING):
        async with scene(tmp_path, incarnation=LATER) as here:
            known = here.supervisor.local()[RUNNER]
            assert known.record.address == StageAddress("127.0.0.1", 40_000, b"certificate")
            assert not known.connected
            here.supervisor.connect(RUNNER, Connect(next_stage=StageAddress("127.0.0.1", 40_001)))
            await here.phase(RunnerPhase.READY)


async def test_a_stage_with_neighbours_is_not_told_them_again(tmp_path: Path) -> None:
    order = order_of(stages=2, boundaries=(0, 2, 4))
    with earlier_life(RunnerFiles(tmp_path), order) as left:
        async with scene(tmp_path, incarnation=LATER) as here:
            known = here.supervisor.local()[RUNNER]
            assert known.connected
            assert known.record.address == StageAddress("127.0.0.1", 40_000, b"certificate")
            here.supervisor.connect(RUNNER, Connect(next_stage=StageAddress("127.0.0.1", 40_009)))
        assert "40009" not in left.log.read_text()


async def test_one_that_answers_late_is_adopted_while_the_node_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.services.supervisor.ADOPT_WAIT_SECONDS", 0.05)
    with earlier_life(RunnerFiles(tmp_path), order_of(), "slow") as left:
        async with scene(tmp_path, incarnation=LATER) as here:
            assert here.supervisor.local()[RUNNER].adopting
            assert here.told == []
            record = await here.phase(RunnerPhase.READY)
            assert record.process_id == left.process.pid


@pytest.mark.parametrize("mode", ["mute", "impostor", "earlier", "stranger"])
async def test_one_that_can_not_be_trusted_is_ended(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.services.runner_keeper.ADOPT_SECONDS", 0.3)
    phase = None if mode == "stranger" else RunnerPhase.READY
    with earlier_life(RunnerFiles(tmp_path), order_of(), mode, phase) as left:
        async with scene(tmp_path, incarnation=LATER) as here:
            failure = await here.failure()
            assert failure.code == "runner_lost"
            assert failure.remedy
            assert gone(left.process.pid)
            assert [record.phase for record in here.told] == [RunnerPhase.FAILED]


async def test_one_that_dies_later_is_noticed(tmp_path: Path) -> None:
    with earlier_life(RunnerFiles(tmp_path), order_of()) as left:
        async with scene(tmp_path, incarnation=LATER) as here:
            left.process.send_signal(signal.SIGKILL)
            assert (await here.failure()).code == "runner_vanished"


async def test_one_whose_end_is_wanted_ends(tmp_path: Path) -> None:
    with earlier_life(RunnerFiles(tmp_path), order_of(), "stubborn") as left:
        async with scene(tmp_path, incarnation=LATER) as here:
            here.supervisor.stop(RUNNER)
            assert (await here.ended()).phase is RunnerPhase.STOPPED
            assert gone(left.process.pid)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "0.0.1"},
        {"secret": ""},
        {"secret": "no hex" * 10},
        {"order": msgspec.Raw(b"null")},
        {"order": msgspec.Raw(b"[" * 500 + b"]" * 500)},
        {"attempt": 2},
        {"instance": InstanceId("i-99999999")},
    ],
    ids=("version", "no secret", "bad secret", "no order", "nested order", "attempt", "instance"),
)
async def test_one_whose_file_does_not_fit_is_ended_not_adopted(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    files = RunnerFiles(tmp_path)
    with earlier_life(files, order_of()) as left:
        files.write(replaced(left.file, **changes))
        async with scene(tmp_path, incarnation=LATER) as here:
            assert gone(left.process.pid)
            assert here.supervisor.local() == {}
            assert list((tmp_path / "r").iterdir()) == []


async def test_a_wrong_secret_claims_nothing(tmp_path: Path) -> None:
    files = RunnerFiles(tmp_path)
    with earlier_life(files, order_of()) as left:
        files.write(replaced(left.file, secret="0" * 64))
        async with scene(tmp_path, incarnation=LATER) as here:
            assert (await here.failure()).code == "runner_lost"
            assert gone(left.process.pid)


@pytest.mark.parametrize("shift", [0.0, 90.0])
async def test_a_process_that_is_no_runner_is_left_alone(tmp_path: Path, shift: float) -> None:
    """Its number was a runner's once, or somebody wrote it into the file."""
    files = RunnerFiles(tmp_path)
    files.prepare()
    command = (sys.executable, "-c", "import time; time.sleep(3600)")
    async with await anyio.open_process(command, start_new_session=True) as stranger:
        try:
            started = psutil.Process(stranger.pid).create_time()
            with earlier_life(files, order_of()) as left:
                left.process.kill()
                left.process.wait()
                told = {"process_id": stranger.pid, "start_time": started - shift}
                files.write(replaced(left.file, **told))
                async with scene(tmp_path, incarnation=LATER) as here:
                    assert here.supervisor.local() == {}
                    assert list((tmp_path / "r").iterdir()) == []
            assert not gone(stranger.pid)
        finally:
            stranger.kill()


@pytest.mark.parametrize("process_id", [0, 1, -1, 2**31 - 1, 2**63])
async def test_numbers_that_mean_more_than_one_process_are_not_signalled(
    tmp_path: Path, process_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("nothing is to be signalled")

    files = RunnerFiles(tmp_path)
    files.prepare()
    monkeypatch.setattr("node.io.child_process.signal_group", refuse)
    with earlier_life(RunnerFiles(tmp_path / "other"), order_of(), phase=None) as left:
        files.write(replaced(left.file, process_id=process_id))
        async with scene(tmp_path, incarnation=LATER, others=1) as here:
            assert here.supervisor.local() == {}


async def test_a_runner_of_another_state_directory_is_left_alone(tmp_path: Path) -> None:
    files = RunnerFiles(tmp_path / "one")
    files.prepare()
    with earlier_life(RunnerFiles(tmp_path / "two"), order_of()) as left:
        files.write(left.file)
        async with scene(tmp_path / "one", incarnation=LATER, others=1) as here:
            assert here.supervisor.local() == {}
        assert not gone(left.process.pid)


async def test_hostile_files_are_removed_and_followed_nowhere(tmp_path: Path) -> None:
    files = RunnerFiles(tmp_path)
    files.prepare()
    kept = tmp_path / "kept.json"
    kept.write_text("{}")
    directory = tmp_path / "r"
    (directory / "garbage.json").write_text("no json")
    (directory / "deep.json").write_text("[" * 100_000)
    (directory / "00000001.json").symlink_to(kept)
    (directory / "00000002.json").write_bytes(b" " * 1_000_000)
    (directory / "00000003.json").mkdir()
    files.scratch(RunnerId("r-00000004")).mkdir()
    files.socket(RunnerId("r-00000005")).write_text("")
    async with scene(tmp_path, incarnation=LATER) as here:
        assert here.supervisor.local() == {}
        assert list(directory.iterdir()) == []
    assert kept.read_text() == "{}"


async def test_several_are_adopted_at_once(tmp_path: Path) -> None:
    files = RunnerFiles(tmp_path)
    orders = [
        order_of(runner=RunnerId(f"r-{n:08x}"), instance=InstanceId(f"i-{n:08x}")) for n in range(3)
    ]
    with (
        earlier_life(files, orders[0]) as first,
        earlier_life(files, orders[1], "orphan:0.1") as second,
        earlier_life(files, orders[2]) as third,
    ):
        second.process.wait(10)
        async with scene(tmp_path, incarnation=LATER) as here:
            assert adopted(here, first)
            assert adopted(here, third)
            assert second.runner not in here.supervisor.local()


async def test_a_runner_that_waits_for_its_node_in_vain_ends(tmp_path: Path) -> None:
    with earlier_life(RunnerFiles(tmp_path), order_of(), "orphan:0.1") as left:
        assert left.process.wait(10) == 0
        async with scene(tmp_path, incarnation=LATER) as here:
            assert here.supervisor.local() == {}
            assert here.told == []
