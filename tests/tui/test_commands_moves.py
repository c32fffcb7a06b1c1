"""Nodes that are named and labelled, and instances that take each other's place."""

from pathlib import Path

import msgspec
import pytest

from node.model.command import (
    Accepted,
    Command,
    CordonNode,
    LabelNode,
    NameNode,
    PlaceInstance,
    Refused,
    StopInstance,
)
from node.model.errors import Failure, InternalError
from node.model.event import Event, NodeCordoned, SessionOpened
from node.model.ids import CommandId, InstanceId, RequestId
from node.model.register import LinkFigures, RequestFigures
from node.model.request import RequestPhase, RequestRecord
from node.model.session import NO_SESSION, Entry, EventId, Session
from tests.fakes.command_line import CommandLine
from tests.fakes.fake_handle import ALPHA, BETA, INSTANCE, MODEL, FakeHandle, make_link, make_state
from tests.tui.test_commands_changes import FoldingHandle

REQUEST = RequestId("q-9d76da20821d257f")
NO_FIT = Failure(code="no_fit", message="alpha lacks 3 GiB", remedy="add a node")


class CountingHandle(FoldingHandle):
    """As the folding one; each placement gets an id of its own, and what is too many is refused."""

    room = 9

    async def submit(
        self, command: Command, timeout_seconds: float = 30.0, command_id: CommandId | None = None
    ) -> Accepted | Refused:
        if isinstance(command, PlaceInstance):
            if len(self.state.instances) >= self.room:
                self.commands.append(command)
                return Refused(id=CommandId("c"), kind="NoFitError", failure=NO_FIT)
            subject = f"i-0000010{len(self.commands)}"
            self.answers.append(Accepted(id=CommandId("c"), index=30, subject=subject))
        return await super().submit(command, timeout_seconds, command_id)


@pytest.fixture
def handle() -> CountingHandle:
    return CountingHandle()


def entry(handle: FakeHandle, index: int, event: Event) -> Entry:
    return Entry(
        session=handle.state.session,
        index=index,
        id=EventId(ALPHA, 1, index),
        payload=msgspec.msgpack.encode(event),
        written_at=1_700_000_000.0,
    )


def kinds(handle: FakeHandle) -> list[type[Command]]:
    return [type(command) for command in handle.commands]


def labelled(handle: FakeHandle, **labels: str) -> None:
    nodes = dict(handle.state.nodes)
    nodes[BETA] = msgspec.structs.replace(nodes[BETA], labels=labels)
    handle.state = msgspec.structs.replace(handle.state, nodes=nodes)


def test_a_node_is_called_otherwise_and_labelled(line: CommandLine, handle: FakeHandle) -> None:
    assert line("node", "rename", "beta", "cellar").out == "beta is called cellar now\n"
    assert line("node", "rename", "beta", "").out == "beta has its own name again\n"
    assert line("node", "label", "beta", "room=cellar", "fast-").out == "beta has room=cellar\n"
    assert handle.commands == [
        NameNode(node=BETA, name="cellar"),
        NameNode(node=BETA, name=""),
        LabelNode(node=BETA, labels={"room": "cellar", "fast": ""}),
    ]
    for nonsense in ("room", "=x", "-", "room="):
        outcome = line("node", "label", "beta", nonsense)
        assert outcome.code == 2
        assert "write KEY=VALUE" in outcome.err


def test_labels_choose_nodes_of_lists_and_of_placements(
    line: CommandLine, handle: FakeHandle
) -> None:
    labelled(handle, room="cellar", fast="yes")
    assert line("node", "ls", "-l", "room=cellar,fast", "-q").lines == ["beta"]
    assert line("node", "ls", "-l", "room=attic", "-q").lines == []
    assert "room=cellar" in line("node", "ls", "-o", "wide").out
    line("load", "smollm2", "-l", "room=cellar")
    [command] = handle.commands
    assert isinstance(command, PlaceInstance)
    assert command.wish.exclude == (ALPHA,)
    outcome = line("load", "smollm2", "-l", "room=attic")
    assert (outcome.code, len(handle.commands)) == (3, 1)


def test_swap_stops_the_old_one_only_once_the_new_one_answers(
    line: CommandLine, handle: CountingHandle
) -> None:
    outcome = line("swap", INSTANCE, "smollm2", "--nodes", "beta")
    assert outcome.code == 0
    assert kinds(handle) == [PlaceInstance, StopInstance]
    assert INSTANCE not in handle.state.instances
    assert len(handle.state.instances) == 1


def test_swap_without_room_leaves_the_old_one_and_names_the_way(
    line: CommandLine, handle: CountingHandle
) -> None:
    handle.room = 1
    outcome = line("swap", INSTANCE, "smollm2")
    assert outcome.code == 6
    assert "--stop-first frees the memory" in outcome.err
    assert INSTANCE in handle.state.instances
    handle.commands.clear()
    assert line("swap", INSTANCE, "smollm2", "--stop-first").code == 0
    assert kinds(handle) == [StopInstance, PlaceInstance]


def test_scale_places_what_is_missing_and_stops_the_newest_that_are_over(
    line: CommandLine, handle: CountingHandle
) -> None:
    assert line("scale", "smollm2", "3").code == 0
    assert kinds(handle) == [PlaceInstance, PlaceInstance]
    assert len(handle.state.instances) == 3
    handle.commands.clear()
    assert line("scale", "smollm2", "1").code == 0
    assert kinds(handle) == [StopInstance, StopInstance]
    assert list(handle.state.instances) == [INSTANCE]
    assert "has 1 already" in line("scale", "smollm2", "1").err
    assert line("scale", "smollm2", "0").code == 0
    assert not handle.state.instances


def test_drain_cordons_and_moves_what_the_node_holds(
    line: CommandLine, handle: CountingHandle
) -> None:
    outcome = line("node", "drain", "alpha", "-o", "json")
    assert outcome.code == 0
    assert kinds(handle) == [CordonNode, PlaceInstance, StopInstance]
    placed = handle.commands[1]
    assert isinstance(placed, PlaceInstance)
    assert placed.wish.exclude == (ALPHA,)
    [item] = outcome.json["items"]
    assert (item["outcome"], item["instance"]) == ("moved", INSTANCE)


def test_drain_leaves_what_fits_nowhere_else_unless_forced(
    line: CommandLine, handle: CountingHandle
) -> None:
    handle.room = 1
    outcome = line("node", "drain", "alpha")
    assert outcome.code == 1
    assert "stays" in outcome.out
    assert "alpha lacks 3 GiB" in outcome.out
    assert INSTANCE in handle.state.instances
    assert line("node", "drain", "alpha", "--force").code == 2  # nobody is there to ask
    forced = line("node", "drain", "alpha", "--force", "-y")
    assert (forced.code, "stopped" in forced.out) == (0, True)
    assert not handle.state.instances


def test_topology_shows_each_link_once_and_draws_it(line: CommandLine, handle: FakeHandle) -> None:
    assert "no end knows of it" in line("topology").out
    handle.set_register(ALPHA, LinkFigures(links=(make_link(BETA, bandwidth=True),)))
    handle.set_register(BETA, LinkFigures(links=(make_link(ALPHA),)))
    whole = line("topology", "-o", "json").json
    [item] = whole["items"]
    assert (whole["kind"], item["names"], item["up"]) == ("Link", ["alpha", "beta"], True)
    assert "alpha" in line("topology").lines[1]
    drawn = line("topology", "--dot").lines
    assert drawn[0] == "graph exoctl {"
    assert any(f'"{ALPHA}" -- "{BETA}"' in each for each in drawn)
    assert drawn[-1] == "}"


def test_master_show_tells_who_decides_and_who_follows(line: CommandLine) -> None:
    whole = line("master", "show", "-o", "json").json
    assert whole["master"] == ALPHA
    assert [item["role"] for item in whole["items"]] == ["master", "follower"]
    assert line("master", "show", "-q").lines == ["alpha"]
    assert "masters" in line("master", "show").err


def test_master_show_without_a_master_ends_with_1(line: CommandLine, handle: FakeHandle) -> None:
    handle.state = msgspec.structs.replace(handle.state, session=NO_SESSION)
    assert line("master", "show").code == 1


def test_master_history_lists_the_sessions_of_the_log(
    line: CommandLine, handle: FakeHandle
) -> None:
    later = Session(term=2, master=BETA, incarnation=1)
    handle.entries = [
        entry(handle, 18, SessionOpened(session=handle.state.session, reason="founded")),
        entry(handle, 19, NodeCordoned(node=BETA, cordoned=True)),
        entry(handle, 20, SessionOpened(session=later, reason="alpha lost")),
    ]
    items = line("master", "history", "-o", "json").json["items"]
    assert [(item["name"], item["index"]) for item in items] == [("alpha", 18), ("beta", 20)]
    assert "alpha lost" in line("master", "history").out


def test_a_request_is_shown_with_its_route(line: CommandLine, handle: FakeHandle) -> None:
    record = RequestRecord(
        request=REQUEST,
        model=MODEL,
        instance=InstanceId(INSTANCE),
        taken_by=BETA,
        phase=RequestPhase.DECODE,
        prompt_tokens=40,
        prefilled_tokens=40,
        output_tokens=7,
        started_at=1_700_000_000.0,
    )
    handle.set_register(BETA, RequestFigures(requests=(record,)))
    shown = line("req", "show", REQUEST[2:6]).out
    assert "alpha 0-29" in shown
    assert "40 of 40 tokens read" in shown
    item = line("req", "show", REQUEST, "-o", "json").json["items"][0]
    assert [stage["node_name"] for stage in item["route"]] == ["alpha"]
    assert line("req", "show", "q-ffff").code == 3


def test_diff_never_says_difference_where_it_failed(
    line: CommandLine, handle: FakeHandle, tmp_path: Path
) -> None:
    file = tmp_path / "wanted.toml"
    file.write_text(f'[[instance]]\nmodel = "{MODEL}"\n')
    handle.state = make_state()
    assert line("diff", "-f", str(file)).code == 0
    file.write_text('[[instance]]\nmodel = "another"\n')
    assert line("diff", "-f", str(file)).code == 1
    line.unreachable = InternalError.because("broken", "the node broke", "")
    assert line("diff", "-f", str(file)).code == 2
