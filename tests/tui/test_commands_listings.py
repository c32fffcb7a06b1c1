"""Listings: tables that fit, and the JSON contract."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from node.model.errors import Failure
from node.model.ids import ModelId, RequestId
from node.model.instance import WeightFormat
from node.model.register import RequestFigures
from node.model.request import RequestPhase, RequestRecord
from node.model.topology import Candidate, Hop, NodeShare, Plan
from tests.fakes.cluster import (
    GIB,
    NOW,
    Cluster,
    electing,
    five_node_cluster,
    lone_node,
    node_id,
    node_lost,
    three_node_cluster,
)
from tests.fakes.command_line import CommandLine
from tests.fakes.fake_handle import ALPHA, BETA, INSTANCE, MODEL, FakeHandle
from tests.fakes.surroundings import isolate, pretend_terminal

Run = Any


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Make a command line over a fake cluster."""
    isolate(monkeypatch, tmp_path)

    def make(cluster: Cluster) -> CommandLine:
        state, registers = cluster
        handle = FakeHandle(state)
        handle.registers = dict(registers)
        return CommandLine(handle, capsys)

    return make


@pytest.fixture
def small(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    isolate(monkeypatch, tmp_path)
    return CommandLine(FakeHandle(), capsys)


@pytest.mark.parametrize(
    ("command", "kind", "count"),
    [
        (("node", "ls"), "Node", 5),
        (("model", "ls"), "Model", 5),
        (("ps",), "Instance", 3),
        (("req", "ls", "--all"), "Request", 3),
        (("cluster", "status"), "Member", 5),
        (("status",), "Status", 1),
    ],
)
def test_every_listing_keeps_the_json_contract(
    run: Run, command: tuple[str, ...], kind: str, count: int
) -> None:
    line = run(five_node_cluster())
    whole = line(*command, "-o", "json").json
    assert whole["apiVersion"] == "exoctl/v1"
    assert whole["kind"] == kind
    assert whole["index"] == 182_441
    assert len(whole["items"]) == count
    records = line(*command, "-o", "ndjson").records
    assert records == whole["items"]
    names = line(*command, "-o", "name").lines
    assert len(names) == count
    assert all(name and " " not in name for name in names)


@pytest.mark.parametrize("command", [("node", "ls"), ("model", "ls"), ("ps",), ("req", "ls", "-a")])
def test_tables_fit_the_terminal_and_wide_ones_say_more(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    line = run(five_node_cluster())
    piped = line(*command).lines
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    pretend_terminal(monkeypatch)
    narrow = line(*command).lines
    assert max(map(len, narrow)) <= 80 < max(map(len, piped))
    assert len(narrow) == len(piped)
    wide = line(*command, "-o", "wide").lines
    assert len(wide[0]) >= len(piped[0])


def test_states_are_coloured_on_a_terminal_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    line = run(five_node_cluster())
    assert "\x1b" not in line("ps").out
    pretend_terminal(monkeypatch)
    assert "\x1b[31mFAILED" in line("ps").out
    assert "\x1b" not in line("ps", "--no-color").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in line("ps").out
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in line("ps").out


def test_ps_says_where_each_instance_is_and_how_it_does(run: Run) -> None:
    line = run(five_node_cluster())
    shown = line("ps")
    serving, loading, failed = shown.lines[1:]
    assert "RUNNING" in serving
    assert "pipeline 5" in serving
    assert "studio-a 0-27, studio-b 28-55, mbp-max 56-73, mini-1 74-84, mini-2 85-93" in serving
    assert " 31.4 " in serving
    assert "LOADING" in loading
    assert "FAILED" in failed
    item = line("ps", "-o", "json").json["items"][0]
    assert item["instance"] == "i-7f2c81d0"
    assert item["ready"] is True
    assert item["tokens_per_second"] == 31.4
    assert item["shards"][0]["node_name"] == "studio-a"
    assert [shard["layers"] for shard in item["shards"]][-1] == "85-93"
    assert item["placed_at"].endswith("Z")


def test_an_empty_listing_says_so_on_stderr_and_writes_nothing(run: Run) -> None:
    line = run(lone_node())
    shown = line("ps")
    assert (shown.code, shown.out) == (0, "")
    assert "nothing is loaded" in shown.err
    assert line("ps", "-o", "json").json["items"] == []
    assert line("req", "ls").err == "nothing is running; --all shows what ended\n"


def test_node_ls_shows_role_memory_and_lag(run: Run) -> None:
    line = run(three_node_cluster())
    shown = line("node", "ls", "-o", "wide")
    assert shown.lines[0].split()[:4] == ["NAME", "ID", "STATE", "ROLE"]
    assert "master" in shown.lines[1]
    assert "Apple M3 Ultra" in shown.lines[1]
    assert "98 GiB / 192 GiB" in shown.lines[1]
    item = line("node", "ls", "--json").json["items"][0]
    assert item["name"] == "studio-a"
    assert item["lag"] == 0
    assert item["figures"]["type"] == "MachineFigures"
    assert item["addresses"] == ["10.0.0.11:52416"]


def test_node_show_names_links_models_and_instances(run: Run) -> None:
    line = run(three_node_cluster())
    text = line("node", "show", "studio").out
    assert "mbp-max  up  thunderbolt  0.06 ms  58.9 Gb/s" in text
    assert "phi-4-4bit" in text
    assert "i-5a11c0de  llama-3.3-70b-4bit  RUNNING" in text
    whole = line("node", "show", node_id("mini-1")[:8], "-o", "json").json
    assert [item["name"] for item in whole["items"]] == ["mini-1"]


def test_a_lost_node_is_shown_with_since_when_and_why(run: Run) -> None:
    line = run(node_lost())
    assert "lost" in line("node", "ls").lines[3]
    assert "no heartbeat for 3.0 s" in line("node", "show", "mini-1").out


def test_model_ls_and_show(run: Run) -> None:
    line = run(five_node_cluster())
    shown = line("model", "ls").out
    row = next(each for each in shown.splitlines() if each.startswith("qwen3"))
    assert "complete" in row
    assert "132 GB" in row
    assert "235B" in row
    facts = line("model", "show", "qwen3").out
    assert "94" in facts
    assert "i-7f2c81d0  RUNNING" in facts
    item = line("model", "show", "QWEN3-235B", "--json").json["items"][0]
    assert item["card"]["layer_count"] == 94
    assert "layers" not in item["card"]
    assert len(item["nodes"]) == 5
    rows = line("model", "show", "qwen3", "--fit").lines[-6:]
    fit = line("model", "show", "qwen3", "--fit", "--json").json["fit"]
    assert [each["name"] for each in fit] == [
        *(row.split()[0] for row in rows[:-1]),
        "all together",
    ]
    assert all(each["fits"] == row.endswith("yes") for each, row in zip(fit, rows, strict=True))
    missing = line("model", "show", "nothing-like-it")
    assert missing.code == 3
    assert "exoctl model ls" in missing.err


def test_a_download_is_a_model_on_its_way(run: Run) -> None:
    line = run(five_node_cluster())
    row = next(each for each in line("model", "ls").lines if each.startswith("gpt-oss"))
    assert "queued" in row or "downloading" in row
    item = line("model", "show", "gpt-oss-120b", "-o", "json").json["items"][0]
    assert {each["phase"] for each in item["downloads"]} == {"queued", "downloading"}


def test_status_of_a_well_cluster_is_0_and_of_a_degraded_one_1(run: Run) -> None:
    assert run(three_node_cluster())("status").code == 0
    for cluster, told in (
        (node_lost(), "mini-1: lost: no heartbeat for 3.0 s"),
        (five_node_cluster(), "i-0b1d9e21 (phi-4-4bit): FAILED: runner r-0b1d9e00 ended"),
    ):
        outcome = run(cluster)("status")
        assert outcome.code == 1
        assert told in outcome.err
        assert "degraded" in outcome.out
        whole = run(cluster)("status", "-o", "json")
        assert whole.code == 1
        assert whole.json["items"][0]["state"] == "degraded"
        assert whole.json["items"][0]["problems"]


def test_status_says_what_is_being_waited_for(run: Run) -> None:
    line = run(electing())
    handle = line.handle
    assert isinstance(handle, FakeHandle)
    waiting = ("no master: electing for 0.3 s",)
    handle.local_view = msgspec.structs.replace(handle.local_view, waiting=waiting)
    outcome = line("status")
    assert outcome.code == 1
    assert "no master: electing for 0.3 s" in outcome.err


def test_status_shouts_where_anyone_is_admitted(small: CommandLine) -> None:
    assert isinstance(small.handle, FakeHandle)
    view = small.handle.local_view
    small.handle.local_view = msgspec.structs.replace(view, trust="lan")
    assert "ANYONE" in small("status").out


def test_a_name_that_holds_escape_sequences_can_not_move_the_cursor(small: CommandLine) -> None:
    assert isinstance(small.handle, FakeHandle)
    state = small.handle.state
    evil = msgspec.structs.replace(state.nodes[ALPHA], name="evil\x1b[2J\r\n")
    small.handle.state = msgspec.structs.replace(state, nodes={**state.nodes, ALPHA: evil})
    for command in (("node", "ls"), ("ps",), ("status",), ("cluster", "status")):
        outcome = small(*command)
        assert "\x1b" not in outcome.out + outcome.err
        assert "\r" not in outcome.out + outcome.err


def make_plan(*, fits: bool) -> Plan:
    share = NodeShare(
        node=ALPHA,
        name="alpha",
        first_layer=0,
        end_layer=20,
        bytes_used=2 * GIB,
        bytes_added=3 * GIB,
        bytes_limit=8 * GIB,
    )
    other = msgspec.structs.replace(
        share, node=BETA, name="beta", first_layer=20, end_layer=30, held=False
    )
    refusal = Failure(code="no_fit", message="beta lacks 1.5 GiB", remedy="unload i-1 there")
    good = Candidate(
        strategy="pipeline",
        transport="tcp",
        weight_format=WeightFormat.AS_STORED,
        shares=(share, other),
        hops=(Hop(source=ALPHA, target=BETA, medium="ethernet", rtt_seconds=0.0003),),
        context_tokens=32768,
        predicted_tokens_per_second=21.5,
        predicted_first_token_seconds=0.4,
        fits=fits,
        refusal=None if fits else refusal,
        warnings=("beta has to fetch 1.1 GB",),
    )
    return Plan(model=MODEL, candidates=(good,), refusal=None if fits else refusal)


def test_plan_shows_candidates_and_explains_them(small: CommandLine) -> None:
    assert isinstance(small.handle, FakeHandle)
    small.handle.plans[MODEL] = make_plan(fits=True)
    shown = small("plan", "smollm2")
    assert shown.code == 0
    assert "alpha 0-19, beta 20-29" in shown.out
    assert "6.0 GiB" in shown.out
    assert "32k" in shown.out
    text = small("plan", "smollm2", "--explain").out
    for told in (
        "hop alpha -> beta  ethernet  0.30 ms  ?",
        "warning: beta has to fetch",
        "to fetch",
        "3.0 GiB",
    ):
        assert told in text


def test_a_plan_without_a_fit_is_code_6_and_still_shown(small: CommandLine) -> None:
    assert isinstance(small.handle, FakeHandle)
    small.handle.plans[MODEL] = make_plan(fits=False)
    outcome = small("plan", MODEL, "-o", "json")
    assert outcome.code == 6
    assert outcome.json["refusal"]["message"] == "beta lacks 1.5 GiB"
    assert outcome.json["items"][0]["shares"][0]["bytes_slack"] == 3 * GIB
    assert outcome.error["reason"] == "NoFitError"
    assert "beta lacks 1.5 GiB" in small("plan", MODEL).out


def test_the_wish_of_a_plan_is_what_was_typed(small: CommandLine) -> None:
    assert isinstance(small.handle, FakeHandle)
    small.handle.plans[MODEL] = make_plan(fits=True)
    small(
        *("plan", MODEL, "--nodes", "beta,alp", "--layers", "10,20", "--ctx", "8k"),
        *("--strategy", "pipeline", "--weights", "dense", "--min-nodes", "2"),
    )
    small("plan", MODEL, "--exclude", "beta")
    first, second = (wish for _, wish in small.handle.planned)
    assert first.nodes == (BETA, ALPHA)
    assert first.layers == (10, 20)
    assert first.context_tokens == 8192
    assert (first.strategy, first.weight_format, first.nodes_min) == ("pipeline", "dense", 2)
    assert second.exclude == (BETA,)


def test_an_unknown_model_is_code_3(small: CommandLine) -> None:
    outcome = small("plan", "nothing-like-it")
    assert outcome.code == 3


def request(number: int, phase: RequestPhase) -> RequestRecord:
    return RequestRecord(
        request=RequestId(f"q-{number:016x}"),
        model=MODEL,
        instance=INSTANCE,
        taken_by=ALPHA,
        phase=phase,
        prompt_tokens=12,
        output_tokens=34,
        started_at=NOW - 9,
        first_token_seconds=0.41,
        tokens_per_second=9.7,
        ended_at=NOW if phase is RequestPhase.DONE else 0.0,
    )


def test_req_ls_shows_what_runs_and_with_all_what_ended(small: CommandLine) -> None:
    assert isinstance(small.handle, FakeHandle)
    small.handle.set_register(
        ALPHA,
        RequestFigures(requests=(request(1, RequestPhase.DECODE), request(2, RequestPhase.DONE))),
    )
    assert small("req", "ls", "-o", "name").lines == ["q-0000000000000001"]
    rows = small("req", "ls", "-a").lines
    assert len(rows) == 3
    assert "0.41 s" in rows[1]
    assert " 9.7 " in rows[1]
    item = small("req", "ls", "-o", "ndjson").records[0]
    assert item["taken_by_name"] == "alpha"
    assert item["phase"] == "decode"
    assert item["ended_at"] is None


def test_two_models_with_the_same_start_are_both_named(run: Run) -> None:
    line = run(five_node_cluster())
    handle = line.handle
    assert isinstance(handle, FakeHandle)
    placed = next(iter(handle.state.instances.values()))
    twin = msgspec.structs.replace(placed, instance="i-00000002", model=ModelId("qwen3-twin"))
    handle.state = msgspec.structs.replace(
        handle.state, instances={**handle.state.instances, twin.instance: twin}
    )
    outcome = line("model", "show", "qwen3")
    assert outcome.code == 2
    assert "qwen3-235b-a22b-4bit" in outcome.err
    assert "qwen3-twin" in outcome.err
