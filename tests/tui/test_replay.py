"""A recording is seen as it happened, at any speed, and nothing in it can be changed."""

from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from node.handle import StreamItem
from node.model.command import StopInstance, Wish
from node.model.errors import RefusedError, UsageError
from node.model.ids import InstanceId
from node.model.session import Entry
from node.model.state import Snapshot
from tests.fakes.cluster import three_node_cluster
from tests.fakes.handle import FakeHandle
from tests.fakes.history import trouble
from tests.fakes.snapshots import screen_text
from tui.app import ExoctlApp
from tui.app_options import AppOptions
from tui.bridge.node_thread import NodeThread
from tui.bridge.recording import line_of, read_recording, record
from tui.bridge.replay import ReplayClock, ReplayHandle, replaying


class Ticks:
    """A monotonic clock that the test turns."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def recording(path: Path, gap_seconds: float) -> int:
    """A recording with the cluster first and some entries after it; returns the last index."""
    state, registers = three_node_cluster()
    handle = FakeHandle((state, registers))
    entries = trouble(state)
    items: list[StreamItem] = [Snapshot(state=state), *registers.values()]
    lines = [line_of(item, 100.0) for item in items] + [line_of(handle.view, 100.0)]
    lines += [line_of(entry, 100.0 + gap_seconds) for entry in entries]
    path.write_bytes(b"".join(lines))
    handle.close()
    return entries[-1].index


async def test_items_come_when_they_are_due_and_the_clock_stops_with_the_last(
    tmp_path: Path,
) -> None:
    last = recording(tmp_path / "run", 5.0)
    ticks = Ticks()
    clock = ReplayClock(ticks, speed=2.0)
    handle = ReplayHandle(read_recording(tmp_path / "run"), clock, skip_seconds=4.9)
    seen: list[StreamItem] = []
    async with handle.subscribe(0) as stream:
        with anyio.fail_after(10):
            while handle.state.index < last:
                seen.append(await stream.receive())
                ticks.now += 0.01
            await anyio.lowlevel.checkpoint()
        while stream.statistics().current_buffer_used:
            seen.append(await stream.receive())
        ticks.now += 1000
        assert clock.wall() == 105.0
    assert isinstance(seen[0], Snapshot)
    assert isinstance(seen[-1], Entry)
    assert (await handle.local()).name == "studio-a"
    plans = await handle.plan(next(iter(handle.state.instances.values())).model, Wish())
    assert plans.candidates


def test_the_clock_of_a_recording_runs_as_fast_as_it_is_told() -> None:
    ticks = Ticks()
    clock = ReplayClock(ticks, speed=4.0)
    assert clock.wall() == 0.0
    clock.begin(100.0)
    ticks.now += 2.0
    assert clock.wall() == 108.0
    assert clock.seconds_until(116.0) == 2.0
    clock.end(109.0)
    ticks.now += 50.0
    assert clock.wall() == 109.0


async def test_nothing_in_a_recording_can_be_changed(tmp_path: Path) -> None:
    recording(tmp_path / "run", 0.0)
    clock = ReplayClock(Ticks(), 1.0)
    handle = ReplayHandle(read_recording(tmp_path / "run"), clock, 0.0)
    with pytest.raises(RefusedError, match="recording"):
        await handle.submit(StopInstance(instance=InstanceId("i-1")))
    with pytest.raises(RefusedError, match="recording"):
        await handle.leave()


async def test_the_app_over_a_recording_shows_its_end(tmp_path: Path) -> None:
    last = recording(tmp_path / "run", 0.05)
    clock = ReplayClock(anyio.current_time, 1.0)
    options = AppOptions(animations=False, source="replay", read_only=True)
    app = ExoctlApp(options, is_embedded=False, wall=clock.wall, zone_seconds=0.0)
    node = NodeThread(replaying(tmp_path / "run", clock, 0.0), app.inbox, is_embedded=False)
    app.attach(node)
    async with app.run_test(size=(120, 36)) as pilot:
        node.start()
        with anyio.fail_after(30):
            while f"{last:,}" not in screen_text(app).split("\n")[0]:
                await pilot.pause(0.02)
        shown = screen_text(app)
        assert "replay" in shown.split("\n")[0]
        assert "read-only" in shown.split("\n")[0]
    await anyio.to_thread.run_sync(node.close)


async def test_what_is_recorded_folds_to_what_the_node_has(tmp_path: Path) -> None:
    cluster = three_node_cluster()
    handle = FakeHandle(cluster)
    path = tmp_path / "run"
    with path.open("wb") as file:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(record, handle, file, lambda: 7.0)
            for entry in trouble(cluster[0]):
                handle.publish(entry)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    kinds = [type(recorded.item).__name__ for recorded in read_recording(path)]
    assert kinds[:2] == ["Snapshot", "LocalView"]
    assert kinds.count("Entry") == len(trouble(cluster[0]))
    assert kinds.count("Register") == len(cluster[1])
    handle.close()


def test_a_recording_that_was_cut_off_is_seen_up_to_there(tmp_path: Path) -> None:
    recording(tmp_path / "run", 0.0)
    whole = (tmp_path / "run").read_bytes()
    items = list(read_recording(tmp_path / "run"))
    (tmp_path / "run").write_bytes(whole[:-7])
    assert list(read_recording(tmp_path / "run")) == items[:-1]


async def test_an_empty_recording_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(b"")
    clock = ReplayClock(Ticks(), 1.0)
    with pytest.raises(BaseExceptionGroup) as raised:
        async with ReplayHandle(read_recording(tmp_path / "run"), clock, 0.0).subscribe():
            await anyio.sleep(5)
    assert raised.group_contains(UsageError, match="holds nothing")
