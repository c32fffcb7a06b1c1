"""Rows that are made of state and registers, and the words in them."""

import itertools
from typing import get_args

import msgspec
import pytest

from node.model.command import Wish
from node.model.errors import Failure
from node.model.event import (
    ClusterFounded,
    CommandDecided,
    DecisionWithdrawn,
    Event,
    InstancePlaced,
    InstanceRemoved,
    InstanceReplaced,
    InstanceStopping,
    InstanceStranded,
    NodeAdmitted,
    NodeCordoned,
    NodeDescribed,
    NodeLabelled,
    NodeLost,
    NodeNamed,
    NodeReturned,
    NodeRevoked,
    ProposalDropped,
    ProposalRejected,
    RunnerChanged,
    RunnerRestartRequested,
    SessionOpened,
    ViewChanged,
)
from node.model.ids import ClusterId, CommandId, ModelId, NodeId, RequestId, short
from node.model.instance import RunnerPhase
from node.model.register import DownloadFigures, ModelFigures, RequestFigures, RouterFigures
from node.model.request import RequestPhase, RequestRecord
from node.model.session import Entry, EventId, Session
from tests.fakes import cluster as fakes
from tests.fakes.cluster import GIB, NOW, node_id
from tests.fakes.history import entry, history
from tests.fakes.plans import plan_for
from tui.viewmodel import hues, matching, text
from tui.viewmodel.cluster import ClusterView
from tui.viewmodel.events import event_row, kind_of
from tui.viewmodel.leaving import consequences
from tui.viewmodel.plans import candidate_rows, move_boundary
from tui.viewmodel.rows import SYMBOLS


def view_of(cluster: fakes.Cluster) -> ClusterView:
    return ClusterView(*cluster, None, NOW)


def test_every_node_keeps_its_hue_when_others_come_and_the_eight_are_used_up_first() -> None:
    state, _ = fakes.five_node_cluster()
    records = list(state.nodes.values())
    few, all_five = hues.assign(records[:3]), hues.assign(records)
    assert all(all_five[node] == hue for node, hue in few.items())
    assert len(set(all_five.values())) == 5
    many = [
        msgspec.structs.replace(records[0], node=NodeId(f"{i:052d}"), admitted_index=i)
        for i in range(20)
    ]
    assert len(set(hues.assign(many).values())) == hues.HUES


def test_hues_that_are_hard_to_tell_apart_are_given_last() -> None:
    record = next(iter(fakes.five_node_cluster()[0].nodes.values()))
    for start in range(50):
        ids = [NodeId(f"{start * 7 + place:052d}"[::-1]) for place in range(3)]
        records = [
            msgspec.structs.replace(record, node=node, admitted_index=place)
            for place, node in enumerate(ids)
        ]
        given = [int(hue[-1]) for hue in hues.assign(records).values()]
        pairs = [frozenset(pair) for pair in itertools.combinations(given, 2)]
        assert not any(pair in hues.CLOSE for pair in pairs), given


def test_lag_is_against_the_node_that_has_most_and_not_against_the_newer_state() -> None:
    builder = fakes.three_node_builder()
    builder.amend(index=builder.state.index + 300)
    rows = view_of(builder.build()).nodes
    assert [row.lag for row in rows] == [0, 0, 0]


def test_a_lost_node_says_since_when_and_its_links_are_down() -> None:
    view = view_of(fakes.node_lost())
    row = next(row for row in view.nodes if row.name == "mini-1")
    assert row.level == "bad"
    assert row.notes[0].text == "lost 6.2s ago: no heartbeat for 3.0 s"
    ends = [link for pair, link in view.links.items() if row.node in pair]
    assert ends
    assert not any(link.up for link in ends)
    assert view.placements[0].level == "warn"


def test_each_level_has_a_symbol_of_its_own() -> None:
    assert len(set(SYMBOLS.values())) == len(SYMBOLS)


def test_a_failed_instance_carries_cause_and_remedy() -> None:
    rows = {row.model: row for row in view_of(fakes.five_node_cluster()).placements}
    failed = rows[ModelId("phi-4-4bit")]
    assert failed.level == "bad"
    assert "14.2 GB asked" in failed.failure
    assert "mini-2" in failed.remedy
    loading = rows[ModelId("llama-3.3-70b-4bit")]
    assert (loading.word, loading.layers_loaded) == ("LOADING", 40)
    assert loading.speed == 0.0


def test_speed_counts_only_while_requests_run() -> None:
    builder = fakes.three_node_builder()
    split = {"studio-a": 48, "mbp-max": 22, "mini-1": 10}
    instance = builder.place("5a11c0de", "llama-3.3-70b-4bit", split, fakes.RunnerPhase.READY)
    builder.progress(instance, running=0, speed=31.4)
    assert view_of(builder.build()).placements[0].speed == 0.0


def test_downloads_that_need_someone_come_first_and_a_pause_keeps_its_part() -> None:
    rows = view_of(fakes.five_node_cluster()).downloads
    assert [row.phase for row in rows] == [
        "failed",
        "downloading",
        "downloading",
        "queued",
        "complete",
    ]
    assert rows[1].seconds_left == pytest.approx(62.1e9 * 0.58 / 118e6, rel=0.01)
    assert rows[3].seconds_left is None
    builder = fakes.three_node_builder()
    held = fakes.five_node_cluster()[1][node_id("mini-1"), "DownloadFigures"].value
    assert isinstance(held, DownloadFigures)
    paused = msgspec.structs.replace(held.downloads[0], phase="paused", bytes_per_second=0.0)
    builder.put("mini-1", DownloadFigures(downloads=(paused,)))
    assert view_of(builder.build()).downloads[0].fraction == pytest.approx(0.42)


def test_a_model_says_where_it_fits_now() -> None:
    rows = {row.model: row for row in view_of(fakes.five_node_cluster()).models}
    assert rows[ModelId("phi-4-4bit")].fits == "one node"
    assert rows[ModelId("qwen3-235b-a22b-4bit")].fits == "2 nodes"
    builder = fakes.Builder(("mini-2",))
    builder.hold("mini-2", "qwen3-235b-a22b-4bit")
    row = view_of(builder.build()).models[0]
    assert row.level == "bad"
    assert row.fits.startswith("short 1")
    held = builder.registers[node_id("mini-2"), "ModelFigures"].value
    assert isinstance(held, ModelFigures)
    half = msgspec.structs.replace(held.held[0], complete=False, fraction=0.42)
    builder.put("mini-2", ModelFigures(held=(half,)))
    assert view_of(builder.build()).models[0].places[node_id("mini-2")] == "42%"


def test_registers_of_strangers_and_empty_states_give_rows_without_error() -> None:
    _, registers = fakes.five_node_cluster()
    view = ClusterView(fakes.State(), registers, None, NOW)
    assert view.nodes == []
    assert view.links == {}
    assert view.downloads == []
    assert view.header.session_word == "no master yet"
    assert view.notices == []


def every_event() -> list[Event]:
    state, _ = fakes.five_node_cluster()
    node = next(iter(state.nodes.values()))
    instance = next(iter(state.instances.values()))
    runner = state.runners[instance.shards[0].runner]
    machine = node.machine
    assert machine is not None
    command = CommandId("c-0000000000000001")
    failure = Failure(code="x", message="it does not fit")
    placed = InstancePlaced(instance=instance)
    return [
        ClusterFounded(cluster=ClusterId("5f" * 16), name="lab", founder=node.node),
        SessionOpened(session=state.session, reason="first start"),
        ViewChanged(in_sync=(node.node,)),
        NodeAdmitted(node=node.node, name=node.name, admitted_by=node.node),
        NodeRevoked(node=node.node, reason="removed"),
        NodeDescribed(
            node=node.node, name=node.name, machine=machine, version="0.1.0", incarnation=1
        ),
        NodeLost(node=node.node, reason="no heartbeat for 3.0 s"),
        NodeReturned(node=node.node),
        NodeCordoned(node=node.node, cordoned=True),
        NodeNamed(node=node.node, name="cellar"),
        NodeNamed(node=node.node, name=""),
        NodeLabelled(node=node.node, labels={"room": "cellar"}),
        NodeLabelled(node=node.node, labels={}),
        placed,
        InstanceStopping(instance=instance.instance),
        InstanceRemoved(instance=instance.instance),
        InstanceReplaced(instance=instance.instance, by=instance, reason="mini-1 is lost"),
        InstanceStranded(instance=instance.instance, failure=failure),
        RunnerChanged(runner=runner),
        RunnerRestartRequested(instance=instance.instance, attempt=2, reason="asked for"),
        CommandDecided(command=command, asked_by=node.node, events=(placed, placed)),
        DecisionWithdrawn(command=command),
        ProposalDropped(id=EventId(node.node, 1, 1)),
        ProposalRejected(id=EventId(node.node, 1, 1), asked_by=node.node, failure=failure),
    ]


def test_every_kind_of_event_has_words() -> None:
    kinds = {type(event) for event in every_event()}
    assert kinds == set(get_args(Event))
    view = view_of(fakes.five_node_cluster())
    for event in every_event():
        row = event_row(entry(view.state, 1, 0, event), view.names)
        assert row.kind == kind_of(event)
        assert row.summary
        assert len(row.summary) > 3


def test_an_entry_names_nodes_that_it_speaks_of_by_id_and_nodes_that_are_gone() -> None:
    builder = fakes.three_node_builder()
    gone, lost = node_id("mini-1"), node_id("studio-a")
    builder.amend(
        nodes={key: held for key, held in builder.state.nodes.items() if key != gone},
        former={gone: "cellar"},
    )
    session = Session(term=13, master=node_id("mbp-max"), incarnation=1)
    names = view_of(builder.build()).names
    opened = SessionOpened(session=session, reason=f"master {short(lost)} lost")
    assert event_row(entry(builder.state, 7, 0, opened), names).summary == (
        "mbp-max masters: master studio-a lost"
    )
    removed = event_row(entry(builder.state, 8, 0, NodeRevoked(node=gone, reason="sold")), names)
    assert (removed.subject, removed.summary) == ("cellar", "sold")


def test_opposite_things_are_not_told_under_one_kind() -> None:
    state, _ = fakes.five_node_cluster()
    node = next(iter(state.nodes))
    assert kind_of(NodeCordoned(node=node, cordoned=True)) == "NodeCordoned"
    assert kind_of(NodeCordoned(node=node, cordoned=False)) == "NodeUncordoned"
    assert kind_of(NodeLost(node=node, reason="was stopped", stopped=True)) == "NodeStopped"
    assert kind_of(NodeLost(node=node, reason="no heartbeat")) == "NodeLost"


def test_a_decision_with_one_effect_is_shown_as_that_effect() -> None:
    state, _ = fakes.three_node_cluster()
    view = view_of(fakes.three_node_cluster())
    rows = [event_row(item, view.names) for item in history(state)]
    placed = [row for row in rows if row.kind == "InstancePlaced"]
    assert len(placed) == 1
    assert placed[0].subject == "i-5a11c0de"
    assert "studio-a L0" in placed[0].summary


def test_an_entry_of_a_newer_version_is_shown_and_not_feared() -> None:
    view = view_of(fakes.three_node_cluster())
    for payload in (b"", b"\xff\x00", msgspec.msgpack.encode({"type": "CometSeen", "node": "x"})):
        unknown = Entry(Session(1, NodeId("x"), 1), 7, EventId(NodeId("y" * 52), 1, 1), payload)
        row = event_row(unknown, view.names)
        assert row.kind == "unknown"
        assert row.origin == "y" * 12


def test_leaving_names_shards_mastership_and_the_last_node() -> None:
    state, _ = fakes.three_node_cluster()
    said = consequences(state, node_id("studio-a"))
    assert any("2 other nodes will wait" in line for line in said)
    assert any("elect a new one" in line for line in said)
    assert consequences(state, node_id("mbp-max"))[0].startswith("llama-3.3-70b-4bit stops")
    idle, _ = fakes.no_placement()
    assert consequences(idle, node_id("mini-1")) == []
    alone, _ = fakes.lone_node()
    assert consequences(alone, node_id("studio-a")) == []


def test_candidates_carry_numbers_for_every_node_and_a_reason() -> None:
    view = view_of(fakes.five_node_cluster())
    rows = candidate_rows(plan_for(view.state, ModelId("x"), Wish()), view.hues)
    assert [row.fits for row in rows] == sorted((row.fits for row in rows), reverse=True)
    for row in rows:
        assert sum(run.layer_count for run in row.runs) == 61
        assert all(share.limit > 0 and share.added > 0 for share in row.shares)
        assert row.fits == (not row.why_not)
    refused = rows[-1]
    assert refused.verdict.startswith("short")
    assert "GiB" in refused.why_not
    assert refused.remedy


def test_moving_a_boundary_never_changes_the_sum_nor_empties_a_node() -> None:
    for seed in range(1000):
        count = 2 + seed % 6
        counts = tuple(1 + (seed * (place + 3)) % 17 for place in range(count))
        boundary = seed % (count + 1)
        step = (seed * 7) % 41 - 20
        moved = move_boundary(counts, boundary, step)
        assert sum(moved) == sum(counts)
        assert min(moved) >= 1
        assert len(moved) == count


def test_text_of_figures() -> None:
    assert text.memory(98 * GIB) == "98 GiB"
    assert text.memory(int(5.4 * GIB)) == "5.4 GiB"
    assert text.memory_pair(98 * GIB, 192 * GIB) == "98/192G"
    assert text.size(40_100_000_000) == "40.1 GB"
    assert text.size(999_960_000) == "1.0 GB"
    assert text.rate(118e6) == "118 MB/s"
    assert text.rate(0) == text.UNKNOWN
    assert text.bandwidth(61.2e9) == "61.2 Gb/s"
    assert text.bandwidth(None) == "?"
    assert text.round_trip(0.00005) == "0.05 ms"
    assert text.round_trip(0.25) == "250 ms"
    assert text.duration(0.42) == "0.4s"
    assert text.duration(432) == "7m12s"
    assert text.duration(11_280) == "3h08m"
    assert text.duration(190_000) == "2d04h"
    assert text.duration(-3) == "0.0s"
    assert text.count(182_441) == "182,441"
    assert text.count(-1) == text.UNKNOWN
    assert text.middle("studio-ultra-long-name", 9) == "stud…name"
    assert text.shorten("abcdef", 4) == "abc…"
    assert text.clock(45_667.5, milliseconds=True) == "12:41:07.500"
    assert text.clock(0) == text.UNKNOWN
    assert text.wrap("one two three", 7) == ["one two", "three"]
    assert text.wrap("abcdefghij", 4) == ["abcd", "efgh", "ij"]
    assert max(len(line) for line in text.wrap("word " * 40, 13)) <= 13


def test_filters_combine_words_negation_and_expressions() -> None:
    matches = matching.matcher("runner !ready /l0b1|r-7f/")
    assert matches("RunnerChanged r-7f2c loading")
    assert not matches("RunnerChanged r-7f2c ready")
    assert not matches("RunnerChanged r-02de loading")
    assert matching.matcher("")("anything")
    with pytest.raises(ValueError, match="unterminated"):
        matching.matcher("/[/")


def test_a_gap_is_told_with_its_numbers() -> None:
    builder = fakes.three_node_builder()
    held = builder.registers[node_id("mini-1"), "RouterFigures"].value
    assert isinstance(held, RouterFigures)
    builder.put(
        "mini-1",
        msgspec.structs.replace(held, gap_first=182_403, gap_last=182_414, replay_attempts=3),
    )
    view = view_of(builder.build())
    notice = next(notice for notice in view.notices if notice.title == "mini-1")
    assert notice.text == "gap 182,403 to 182,414, replay asked 3 times"
    assert notice.level == "warn"


def test_a_stuck_disk_is_told_on_every_node() -> None:
    builder = fakes.three_node_builder()
    held = builder.registers[node_id("mini-1"), "RouterFigures"].value
    assert isinstance(held, RouterFigures)
    builder.put("mini-1", msgspec.structs.replace(held, disk_trouble="no answer for 2 s"))
    view = view_of(builder.build())
    row = next(row for row in view.nodes if row.name == "mini-1")
    assert (row.level, row.word) == ("bad", "disk stuck")
    assert any("no answer for 2 s" in notice.text for notice in view.notices)


def test_what_was_measured_stands_beside_what_was_predicted_for_the_same_prompt() -> None:
    builder = fakes.three_node_builder()
    placed = builder.place(
        "5a11c0de",
        "phi-4-4bit",
        {"studio-a": 40},
        RunnerPhase.READY,
        predicted_prompt_tokens_per_second=300.0,
    )
    done = RequestRecord(
        request=RequestId("q-1"),
        model=ModelId("phi-4-4bit"),
        instance=placed,
        taken_by=node_id("studio-a"),
        phase=RequestPhase.DONE,
        prompt_tokens=90,
        cached_tokens=60,
        output_tokens=40,
        started_at=NOW - 9,
        ended_at=NOW,
        first_token_seconds=0.2,
        tokens_per_second=31.0,
    )
    builder.put("studio-a", RequestFigures(requests=(done,)))
    (row,) = view_of(builder.build()).placements
    assert (row.speed, row.last_speed, row.predicted_speed) == (0.0, 31.0, 29.0)
    assert (row.first_token_seconds, row.last_prompt_tokens) == (0.2, 30)
    assert row.predicted_first_seconds == pytest.approx(30 / 300 + 1 / 29)
