"""Events and logs: lines for people, NDJSON for programs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream

from node.handle import LogLine, StreamItem
from node.model.event import NodeLost
from node.model.session import Rewind, SessionStarted
from tests.fakes.cluster import five_node_cluster, node_id, three_node_cluster
from tests.fakes.command_line import CommandLine
from tests.fakes.fake_handle import FakeHandle
from tests.fakes.history import entry, history
from tests.fakes.surroundings import isolate
from tui.commands import event_writer
from tui.commands import events as events_module
from tui.commands.events import EVENT_TYPES
from tui.commands.logs import lines_after


@pytest.fixture
def handle() -> FakeHandle:
    state, registers = five_node_cluster()
    made = FakeHandle(state)
    made.registers = dict(registers)
    made.entries = history(state)
    return made


@pytest.fixture
def line(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    handle: FakeHandle,
) -> CommandLine:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setattr(events_module, "QUIET_SECONDS", 0.2)
    return CommandLine(handle, capsys)


def test_events_end_at_the_present_and_begin_with_what_is_kept(
    line: CommandLine, handle: FakeHandle
) -> None:
    shown = line("events")
    assert shown.code == 0
    assert len(shown.lines) == len(handle.entries)
    assert f"{handle.state.index}" in shown.lines[-1]
    assert "SessionOpened" in shown.lines[0]
    assert "studio-a masters" in shown.lines[0]


def test_events_since_an_index(line: CommandLine, handle: FakeHandle) -> None:
    assert len(line("events", "--since", str(handle.state.index - 3)).lines) == 4
    nothing = line("events", "--since", str(handle.state.index + 1))
    assert nothing.out == ""
    assert (
        f"no event among those asked for; the log is at index {handle.state.index}" in nothing.err
    )
    for kind in ("json", "ndjson", "name"):
        assert line("events", "--since", str(handle.state.index + 1), "-o", kind).err == ""


def test_events_since_a_time_ago(
    line: CommandLine, handle: FakeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = max(entry.written_at for entry in handle.entries)
    monkeypatch.setattr("tui.commands.events.clock.wall", lambda: newest + 1)
    expected = [each for each in handle.entries if each.written_at >= newest - 2]
    assert len(line("events", "--since", "3s").lines) == len(expected) > 0
    assert line("events", "--since", "0s").out == ""


def test_events_can_be_chosen_by_type_and_node(line: CommandLine) -> None:
    placed = line("events", "--type", "instanceplaced", "-o", "json").json
    assert placed["kind"] == "Event"
    assert {item["type"] for item in placed["items"]} == {"CommandDecided"}
    assert len(placed["items"]) == 3
    only = line("events", "--type", "RunnerChanged,NodeAdmitted", "-o", "ndjson").records
    assert {record["type"] for record in only[1:]} == {"RunnerChanged", "NodeAdmitted"}
    about = line("events", "--node", "mini-2", "-o", "json").json["items"]
    identity = node_id("mini-2")
    assert about
    for item in about:
        assert identity in msgspec.json.encode(item).decode()


class EndingHandle(FakeHandle):
    """Plays its items to whoever subscribes, waits a little, and then ends the stream."""

    items: tuple[StreamItem, ...] = ()
    seconds = 0.0

    @asynccontextmanager
    async def subscribe(
        self, since: int | None = None
    ) -> AsyncGenerator[MemoryObjectReceiveStream[StreamItem]]:
        async with anyio.create_task_group() as tasks, super().subscribe(since) as stream:
            tasks.start_soon(self._play)
            yield stream

    async def _play(self) -> None:
        for item in self.items:
            self.push(item)
        await anyio.sleep(self.seconds)
        for send in list(self._subscribers):
            send.close()


def test_ndjson_begins_with_a_snapshot_and_counts_up(line: CommandLine, handle: FakeHandle) -> None:
    records = line("events", "-o", "ndjson").records
    assert records[0]["kind"] == "snapshot"
    assert all(record["apiVersion"] == "exoctl/v1" for record in records)
    indices = [record["index"] for record in records]
    assert indices == sorted(set(indices))
    assert records[0]["index"] == records[1]["index"] - 1
    assert records[-1]["index"] == handle.state.index
    assert records[1]["at"].endswith("Z")
    assert records[1]["event"]["session"]["term"] == 12


def test_following_as_ndjson_gives_the_state_then_events_then_heartbeats(
    line: CommandLine, handle: FakeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_writer, "HEARTBEAT_SECONDS", 0.05)
    lost = entry(
        handle.state, handle.state.index + 1, 0, NodeLost(node=node_id("mini-2"), reason="x")
    )
    watched = EndingHandle(handle.state)
    watched.items = (lost, SessionStarted(handle.state.session), Rewind(7))
    watched.seconds = 0.3
    records = CommandLine(watched, line.capsys)("events", "-f", "-o", "ndjson").records
    kinds = [record["kind"] for record in records]
    assert kinds[:4] == ["snapshot", "event", "session", "rewind"]
    assert kinds.count("heartbeat") >= 2
    assert records[0]["state"]["cluster_name"] == "lab"
    assert records[1]["event"] == {
        "type": "NodeLost",
        "node": node_id("mini-2"),
        "reason": "x",
        "at": None,
        "stopped": False,
    }


def test_a_followed_stream_that_ends_is_told(line: CommandLine, handle: FakeHandle) -> None:
    outcome = CommandLine(EndingHandle(handle.state), line.capsys)("events", "-f")
    assert outcome.code == 2
    assert "the node ended the stream" in outcome.err


def test_an_event_of_a_newer_version_is_shown_as_unknown(
    line: CommandLine, handle: FakeHandle
) -> None:
    strange = msgspec.structs.replace(
        handle.entries[-1], payload=msgspec.msgpack.encode({"type": "FromTheFuture"})
    )
    handle.entries[-1] = strange
    assert "written by a newer version" in line("events").lines[-1]
    assert line("events", "-o", "json").json["items"][-1]["type"] == "Unknown"


def test_every_event_type_can_be_asked_for() -> None:
    assert "RunnerChanged" in EVENT_TYPES.values()
    assert len(EVENT_TYPES) >= 16


def log(number: int, level: str = "info", source: str = "worker") -> LogLine:
    return LogLine(at=1_790_000_000.0 + number, level=level, source=source, text=f"line {number}")


def test_logs_show_the_last_lines_of_a_level_and_a_source(
    line: CommandLine, handle: FakeHandle
) -> None:
    levels = ["debug", "info", "warning", "error"]
    handle.log_lines = [log(n, levels[n % 4], "worker" if n % 2 else "router") for n in range(20)]
    assert len(line("logs", "-n", "3").lines) == 3
    assert line("logs").lines[-1].endswith("line 19")
    errors = line("logs", "--level", "error")
    assert [each.split()[-1] for each in errors.lines] == ["3", "7", "11", "15", "19"]
    assert all("router" in each for each in line("logs", "--source", "router").lines)
    unknown = line("logs", "--source", "kitchen")
    assert unknown.code == 3
    assert "router, worker" in unknown.err
    item = line("logs", "-n", "1", "-o", "json").json["items"][0]
    assert item["text"] == "line 19"
    assert item["at"].endswith("Z")
    assert line("logs", "-n", "2", "-o", "ndjson").records[0]["text"] == "line 18"


def test_a_log_line_can_not_drive_the_terminal(line: CommandLine, handle: FakeHandle) -> None:
    handle.log_lines = [msgspec.structs.replace(log(1), text="a\x1b[2Jb\r")]
    assert "\x1b" not in line("logs").out


def test_lines_after_the_end_of_what_was_seen() -> None:
    lines = [log(n) for n in range(6)]
    assert lines_after([], lines) == lines
    assert lines_after(lines[:4], lines) == lines[4:]
    assert lines_after(lines, lines) == []
    assert lines_after(lines[:4], lines[2:]) == lines[4:]
    assert lines_after(lines[:1], lines[3:]) == lines[3:]
    same = [log(1), log(1)]
    assert lines_after(same, [*same, log(1)]) in ([log(1)], [])


def test_three_nodes_have_their_events_too(capsys: pytest.CaptureFixture[str]) -> None:
    state, _ = three_node_cluster()
    made = FakeHandle(state)
    made.entries = history(state)
    assert CommandLine(made, capsys)("events").code == 0
