import os
import signal
import stat
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import anyio
import msgspec
import psutil
import pytest

from node.config import environment_for_child
from node.core.replica.messages import PAYLOAD_BYTES_MAX
from node.core.runner_watch import RunnerLimits
from node.model.errors import BusyError, ConflictError, Failure, NotFoundError, UsageError
from node.model.event import RunnerChanged
from node.model.ids import InstanceId, RequestId, RunnerId
from node.model.instance import RunnerPhase, StageAddress
from node.model.request import Delta, Failed, Finished, FinishReason
from node.runner.protocol import Connect
from node.services import runner_generations, runner_keeper
from node.services.runner_keeper import RunnerSettings
from node.services.supervisor import Supervisor
from tests.fakes.supervisor_scene import (
    QUICK,
    RUNNER,
    Scene,
    gone,
    order_of,
    request,
    scene,
)


async def eventually(holds: Callable[[], bool]) -> None:
    """For what only another process can tell, and does not announce."""
    with anyio.fail_after(5.0):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(0.01)


# -- life ------------------------------------------------------------------------------------------


async def test_a_runner_goes_through_its_phases_and_stops_when_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "exoctl")
    async with scene(tmp_path) as here:
        ready = await here.ready()
        assert here.supervisor.figures().runners[0].layers_total == 4
        here.supervisor.stop(RUNNER)
        stopped = await here.ended()
        assert (stopped.phase, stopped.failure, stopped.process_id) == (
            RunnerPhase.STOPPED,
            None,
            0,
        )
        assert gone(ready.process_id)
        phases = list(dict.fromkeys(record.phase for record in here.told))
        assert phases == [
            RunnerPhase.STARTING,
            RunnerPhase.LOADING,
            RunnerPhase.WARMING_UP,
            RunnerPhase.READY,
            RunnerPhase.STOPPING,
            RunnerPhase.STOPPED,
        ]
        assert here.supervisor.figures().runners == ()
        said = [row.message.rpartition(" ")[2] for row in caplog.records if " is " in row.message]
        assert said == [phase.value for phase in phases], "each once, though told more often"


async def test_a_stage_that_ends_with_another_before_its_own_stop_comes_has_not_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path, "leave:ready") as here:
        ready = await here.ready()
        with anyio.fail_after(5.0):
            while not gone(ready.process_id):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        await anyio.sleep(0.3)  # the stop of an unloading comes with the log, a little later
        with pytest.raises(BusyError, match="stopping, not ready"):
            async with aclosing(here.supervisor.generate(request("hello"))) as items:
                await anext(items)
        here.supervisor.stop(RUNNER)
        stopped = await here.ended()
        assert (stopped.phase, stopped.failure) == (RunnerPhase.STOPPED, None)
    assert [row.message for row in caplog.records if row.levelname == "ERROR"] == []


async def test_a_stage_that_ends_with_another_and_is_not_stopped_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_keeper, "GOODBYE_SECONDS", 0.2)
    async with scene(tmp_path, "leave:ready") as here:
        await here.ready()
        failure = await here.failure()
        assert failure.code == "stage_stopped"
        assert "another stage" in failure.message


async def test_a_child_has_its_own_session_private_files_and_no_secrets(tmp_path: Path) -> None:
    made = Scene(tmp_path, "normal", QUICK)
    environment = {**environment_for_child(), "HF_TOKEN": "secret"}
    settings = msgspec.structs.replace(made.settings, environment=environment)
    made.supervisor = Supervisor(tmp_path, settings)
    made.supervisor.on_change(made.hear)
    async with anyio.create_task_group() as tasks:
        await tasks.start(made.supervisor.run)
        ready = await made.ready()
        process = psutil.Process(ready.process_id)
        assert os.getpgid(process.pid) == os.getsid(process.pid) == process.pid
        child = process.environ()
        assert "HF_TOKEN" not in child
        assert child["HF_HUB_OFFLINE"] == "1"
        assert child["TMPDIR"] == str(made.files.scratch(RUNNER))
        for path in (made.files.scratch(RUNNER), made.files.socket(RUNNER).parent):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert not made.files.socket(RUNNER).stat().st_mode & 0o077
        opened = {file.path for file in process.open_files()}
        assert opened == {str(made.files.log(RUNNER))}
        (kept,) = made.files.read_all()
        assert (kept.process_id, kept.runner) == (ready.process_id, RUNNER)
        assert abs(kept.start_time - process.create_time()) < 1
        await made.supervisor.stop_all()
        assert made.files.read_all() == []
        assert not made.files.socket(RUNNER).exists()
        tasks.cancel_scope.cancel()


async def test_stages_listen_then_connect(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        here.supervisor.start(order_of(stages=2, boundaries=(0, 2, 4)))
        listening = await here.until(lambda record: record.address is not None)
        assert listening.phase is RunnerPhase.CONNECTING
        assert listening.address == StageAddress("127.0.0.1", 40_000, b"certificate")
        assert not here.supervisor.local()[RUNNER].connected
        here.supervisor.connect(RUNNER, Connect(next_stage=StageAddress("127.0.0.1", 40_001)))
        assert here.supervisor.local()[RUNNER].connected
        ready = await here.phase(RunnerPhase.READY)
        assert ready.address == listening.address
        assert "next 40001" in here.files.log(RUNNER).read_text()


async def test_an_ended_runner_is_kept_until_forgotten_and_can_be_started_again(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as here:
        first = await here.ready()
        here.supervisor.stop(RUNNER)
        await here.ended()
        here.told.clear()
        second = await here.ready(attempt=2)
        assert (first.attempt, second.attempt) == (1, 2)
        here.supervisor.forget(RUNNER)
        assert RUNNER in here.supervisor.local()
        here.supervisor.stop(RUNNER)
        await here.ended()
        here.supervisor.forget(RUNNER)
        assert here.supervisor.local() == {}
        assert not here.files.scratch(RUNNER).exists()


async def test_starting_a_running_runner_again_changes_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        ready = await here.ready()
        here.supervisor.start(order_of(attempt=2))
        assert here.supervisor.local()[RUNNER].record == ready


async def test_an_id_that_is_none_is_refused_before_it_becomes_a_path(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        for text in ("", "r-../../etc", "r-0000BEEF", "r-0000beef\n", "r-0000beef/x"):
            with pytest.raises(UsageError):
                here.supervisor.start(order_of(runner=RunnerId(text)))
        assert here.supervisor.local() == {}


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "stages", "limit", "code"),
    [
        ("hang:starting", 1, "starting", "runner_starting_timeout"),
        ("hang:connecting", 2, "connecting", "runner_connecting_timeout"),
        ("hang:loading", 1, "loading", "runner_loading_timeout"),
        ("hang:warming_up", 1, "warming_up", "runner_warming_up_timeout"),
        ("stuck", 1, "stall", "runner_stuck"),
        ("silent", 1, "stall", "runner_stuck"),
    ],
)
async def test_a_runner_that_hangs_is_ended(
    tmp_path: Path, mode: str, stages: int, limit: str, code: str
) -> None:
    limits = msgspec.structs.replace(QUICK, **{limit: 0.3})
    async with scene(tmp_path, mode, limits) as here:
        here.supervisor.start(order_of(stages=stages))
        failure = await here.failure()
        assert failure.code == code
        assert failure.remedy


@pytest.mark.parametrize("moment", ["starting", "connecting", "loading", "warming_up", "ready"])
async def test_a_runner_that_dies_tells_why_by_its_last_words(tmp_path: Path, moment: str) -> None:
    async with scene(tmp_path, f"die:{moment}:3") as here:
        here.supervisor.start(order_of(stages=2 if moment == "connecting" else 1))
        failure = await here.failure()
        assert failure.code == "runner_ended"
        assert "exit code 3" in failure.message
        assert "last words of the runner" in failure.message


@pytest.mark.parametrize(
    ("code", "expected"),
    [("-9", "runner_killed"), ("-6", "runner_crashed"), ("-11", "runner_crashed")],
)
async def test_a_runner_ended_by_a_signal(tmp_path: Path, code: str, expected: str) -> None:
    async with scene(tmp_path, f"die:ready:{code}") as here:
        here.supervisor.start(order_of())
        assert (await here.failure()).code == expected


async def test_a_runner_killed_by_the_system_is_noticed_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        ready = await here.ready()
        os.kill(ready.process_id, signal.SIGKILL)
        with anyio.fail_after(2.0):
            assert (await here.failure()).code == "runner_killed"


async def test_a_known_cause_is_named(tmp_path: Path) -> None:
    async with scene(tmp_path, "exit") as here:
        here.supervisor.start(order_of())
        failure = await here.failure()
        assert failure.code == "mlx_missing"
        assert "libmlx.so" in failure.message


async def test_a_runner_that_tells_too_much_of_its_failure_is_cut_short(tmp_path: Path) -> None:
    async with scene(tmp_path, "ramble:loading") as here:
        here.supervisor.start(order_of())
        failure = await here.failure()
        assert failure.code == "model_broken"
        assert "characters left out" in failure.message
        for record in here.told:
            size = len(msgspec.msgpack.encode(RunnerChanged(runner=record)))
            assert size < PAYLOAD_BYTES_MAX


async def test_a_runner_with_an_address_too_large_to_be_told_is_ended(tmp_path: Path) -> None:
    async with scene(tmp_path, "swollen:connecting") as here:
        here.supervisor.start(order_of(stages=2, boundaries=(0, 2, 4)))
        assert (await here.failure()).code == "runner_fault"
        addresses = [record.address for record in here.told if record.address is not None]
        assert addresses
        assert {address.certificate for address in addresses} == {b"certificate"}


async def test_a_failure_that_the_runner_tells_is_kept(tmp_path: Path) -> None:
    async with scene(tmp_path, "fail:loading") as here:
        here.supervisor.start(order_of())
        assert await here.failure() == Failure(
            code="model_broken", message="the fake model is broken"
        )


@pytest.mark.parametrize(
    "mode",
    ["garbage:loading", "oversize:loading", "back:loading", "hangup:loading", "twice", "stranger"],
)
async def test_a_runner_that_breaks_the_protocol_is_ended(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.services.runner_keeper.HANGUP_SECONDS", 0.1)
    async with scene(tmp_path, mode) as here:
        here.supervisor.start(order_of())
        assert (await here.failure()).code == "runner_fault"


async def test_a_program_that_is_missing_fails_that_runner_alone(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.ready(runner=RunnerId("r-00000002"))
        broken = RunnerSettings(command=(str(tmp_path / "absent"),), environment={})
        here.supervisor._settings = broken  # pyright: ignore[reportPrivateUsage]
        here.supervisor.start(order_of())
        failure = await here.failure()
        assert failure.code == "runner_not_started"
        assert "absent" in failure.message
        assert not here.supervisor.local()[RunnerId("r-00000002")].ended


async def test_a_child_in_the_group_of_a_dead_runner_is_ended_too(tmp_path: Path) -> None:
    async with scene(tmp_path, "child") as here:
        ready = await here.ready()
        (grandchild,) = psutil.Process(ready.process_id).children()
        os.kill(ready.process_id, signal.SIGKILL)
        await here.failure()
        await eventually(lambda: gone(grandchild.pid))


# -- stopping --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["hang:starting", "stubborn"])
async def test_a_runner_that_ignores_everything_is_killed(tmp_path: Path, mode: str) -> None:
    async with scene(tmp_path, mode) as here:
        here.supervisor.start(order_of())
        wanted = RunnerPhase.READY if mode == "stubborn" else RunnerPhase.STARTING
        await here.phase(wanted)
        here.supervisor.stop(RUNNER)
        with anyio.fail_after(5.0):
            assert (await here.ended()).phase is RunnerPhase.STOPPED


async def test_a_node_stops_within_five_seconds_whatever_its_runners_do(tmp_path: Path) -> None:
    async with scene(tmp_path, "stubborn", RunnerLimits()) as here:
        runners = [RunnerId(f"r-{number:08x}") for number in range(3)]
        for runner in runners:
            await here.ready(runner=runner)
        with anyio.fail_after(5.0):
            await here.supervisor.stop_all()
        assert all(known.ended for known in here.supervisor.local().values())
        here.supervisor.start(order_of(attempt=2))
        assert all(known.ended for known in here.supervisor.local().values())


async def test_a_node_that_is_cancelled_leaves_no_runner(tmp_path: Path) -> None:
    made = Scene(tmp_path, "normal", QUICK)
    process_ids: list[int] = []
    with anyio.fail_after(10.0):
        async with anyio.create_task_group() as tasks:
            await tasks.start(made.supervisor.run)
            process_ids.append((await made.ready()).process_id)
            tasks.cancel_scope.cancel()
    assert [gone(process_id) for process_id in process_ids] == [True]
    assert list((tmp_path / "r").iterdir()) == []
    assert made.told[-1].phase is RunnerPhase.STOPPED
    assert made.files.read_all() == []


async def test_sockets_move_where_the_state_directory_is_too_deep(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    async with scene(deep) as here:
        await here.ready()
        path = here.files.socket(RUNNER)
        assert len(os.fsencode(path)) <= 103
        assert not path.is_relative_to(deep)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.parent.exists()


# -- logs ------------------------------------------------------------------------------------------


async def test_a_runner_that_says_too_much_has_a_bounded_log(tmp_path: Path) -> None:
    async with scene(tmp_path, "chatter,say:ready:the end") as here:
        await here.ready()
        log = here.files.log(RUNNER)
        here.supervisor.stop(RUNNER)
        await here.ended()
        old = log.with_name(log.name + ".1")
        assert log.stat().st_size <= 4 * 1024 * 1024
        assert old.stat().st_size <= 4 * 1024 * 1024
        assert sorted(log.parent.iterdir()) == [log, old]


async def test_a_flood_of_beats_holds_up_nobody(tmp_path: Path) -> None:
    async with scene(tmp_path, "flood") as here:
        await here.ready()
        with anyio.fail_after(5.0):
            items = [item async for item in here.supervisor.generate(request("20"))]
        assert len(items) == 21


# -- generations -----------------------------------------------------------------------------------


async def test_items_come_in_order_and_end(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.ready()
        items = [item async for item in here.supervisor.generate(request("5"))]
        assert [item.index for item in items if isinstance(item, Delta)] == [0, 1, 2, 3, 4]
        assert isinstance(items[-1], Finished)
        assert not here.supervisor.cancel(request("5").id)


async def test_closing_a_generation_cancels_it_in_the_runner(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.ready()
        async with aclosing(here.supervisor.generate(request("forever"))) as items:
            await anext(items)
        log = here.files.log(RUNNER)
        await eventually(lambda: "finished q-0000000000000001 cancelled" in log.read_text())


async def test_cancelling_ends_it_with_a_reason(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.ready()
        last = None
        async for item in here.supervisor.generate(request("forever")):
            here.supervisor.cancel(request("forever").id)
            last = item
        assert isinstance(last, Finished)
        assert last.reason is FinishReason.CANCELLED
        assert here.supervisor.cancel(RequestId("q-absent")) is False


async def test_a_slow_reader_loses_its_own_generation_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_generations, "REQUEST_ITEMS_MAX", 50)
    async with scene(tmp_path) as here:
        await here.ready()
        slow = here.supervisor.generate(request("forever", number=1))
        first = await anext(slow)
        others = [item async for item in here.supervisor.generate(request("200", number=2))]
        assert isinstance(others[-1], Finished)
        rest = [item async for item in slow]
        assert isinstance(first, Delta)
        assert len(rest) == 51
        last = rest[-1]
        assert isinstance(last, Failed)
        assert last.failure.code == "reader_too_slow"


async def test_generations_end_with_the_runner_that_dies(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.ready()
        items = [item async for item in here.supervisor.generate(request("die"))]
        assert isinstance(items[0], Delta)
        last = items[-1]
        assert isinstance(last, Failed)
        assert last.kind == "UnreachableError"
        assert last.failure.code == "runner_crashed"


async def test_generations_end_when_the_node_stops(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.ready()
        items = here.supervisor.generate(request("forever"))
        await anext(items)
        await here.supervisor.stop_all()
        last = [item async for item in items][-1]
        assert isinstance(last, Failed)
        assert last.failure.code == "runner_gone"


async def test_a_runner_that_stops_reading_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.services.runner_keeper.SEND_SECONDS", 0.3)
    async with scene(tmp_path, "deaf") as here:
        await here.ready()
        generations = here.supervisor._keepers[RUNNER].generations  # pyright: ignore[reportPrivateUsage]
        readers = [generations.open(request("x" * 1_000_000, number)) for number in range(3)]
        assert (await here.failure()).code == "runner_stuck"
        for reader in readers:
            reader.close()


async def test_requests_that_no_runner_can_take_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_generations, "REQUESTS_MAX", 2)
    async with scene(tmp_path) as here:
        with pytest.raises(NotFoundError):
            await anext(here.supervisor.generate(request("1")))
        here.supervisor.start(order_of())
        with pytest.raises(BusyError):
            await anext(here.supervisor.generate(request("1")))
        await here.phase(RunnerPhase.READY)
        other = request("1", instance=InstanceId("i-99999999"))
        with pytest.raises(NotFoundError):
            await anext(here.supervisor.generate(other))
        with pytest.raises(UsageError):
            await anext(here.supervisor.generate(request("x" * 17_000_000)))
        first = here.supervisor.generate(request("forever", number=1))
        await anext(first)
        with pytest.raises(ConflictError):
            await anext(here.supervisor.generate(request("1", number=1)))
        second = here.supervisor.generate(request("forever", number=2))
        await anext(second)
        with pytest.raises(BusyError):
            await anext(here.supervisor.generate(request("1", number=3)))
        await first.aclose()
        third = [item async for item in here.supervisor.generate(request("1", number=3))]
        assert isinstance(third[-1], Finished)
        await second.aclose()


async def test_the_least_busy_of_two_runners_generates(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.ready()
        other = RunnerId("r-00000002")
        await here.ready(runner=other, instance=InstanceId("i-00000002"))
        first = here.supervisor.generate(request("forever", number=1))
        await anext(first)
        second = here.supervisor.generate(request("forever", number=2))
        await anext(second)
        keepers = here.supervisor._keepers  # pyright: ignore[reportPrivateUsage]
        assert [len(keepers[runner].generations) for runner in (RUNNER, other)] == [1, 1]
        await first.aclose()
        await second.aclose()


async def test_a_refused_runner_is_failed_without_a_process(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        failure = Failure(code="model_not_found", message="not here" * 100_000)
        here.supervisor.refuse(order_of(), failure)
        told = await here.failure()
        assert (told.code, len(told.message) <= 4000) == ("model_not_found", True)
        assert here.told[-1].process_id == 0
