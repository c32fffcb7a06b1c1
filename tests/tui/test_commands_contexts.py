"""Clusters by name, YAML, lists that are watched, and programs that are pointed at the cluster."""

import json
import os
from pathlib import Path

import anyio
import pytest

from node.model.errors import UnreachableError
from node.model.machine import Address
from tests.fakes.command_line import CommandLine
from tests.fakes.fake_handle import FakeHandle, make_state, without_instances
from tui.commands.yaml_text import yaml_lines


def test_a_named_cluster_is_where_commands_go(line: CommandLine, tmp_path: Path) -> None:
    added = line.bare("context", "add", "lab", "http://10.0.0.7:52415", "--token", "secret")
    assert (added.code, added.out) == (0, "lab is http://10.0.0.7:52415\n")
    line.bare("context", "add", "den", "10.0.0.9")
    assert line.bare("ps").code == 2  # nothing is chosen, and no node runs here
    assert line.bare("-C", "lab", "ps").code == 0
    assert line.connections[-1][:2] == (Address("10.0.0.7", 52415), "secret")
    assert line.bare("context", "use", "den").code == 0
    line.bare("ps")
    assert line.connections[-1][:2] == (Address("10.0.0.9", 52415), "")
    line.bare("ps", "--cluster", "lab", "--token", "other")
    assert line.connections[-1][:2] == (Address("10.0.0.7", 52415), "other")
    line.bare("--host", "10.0.0.1:9", "ps")
    assert line.connections[-1][0] == Address("10.0.0.1", 9)
    assert line.bare("-C", "-", "ps").code == 2
    file = tmp_path / "contexts.json"
    assert file.stat().st_mode & 0o077 == 0
    listed = line.bare("context", "ls", "-o", "json")
    assert "secret" not in listed.out
    assert [item["current"] for item in listed.json["items"]] == [False, True]


def test_names_of_clusters_are_changed_and_forgotten(line: CommandLine) -> None:
    line.bare("context", "add", "lab", "10.0.0.7", "--use")
    line.bare("context", "add", "lab", "10.0.0.8")
    assert line.bare("context", "ls", "-q").lines == ["lab"]
    line.bare("ps")
    assert line.connections[-1][0] == Address("10.0.0.8", 52415)
    assert line.bare("context", "rm", "lab").code == 0
    assert line.bare("context", "rm", "lab").code == 3
    assert line.bare("context", "use", "lab").code == 3
    assert line.bare("-C", "lab", "ps").code == 3
    assert line.bare("context", "add", "a b", "10.0.0.7").code == 2
    assert line.bare("context", "add", "lab", "https://x").code == 2


def test_a_broken_file_of_clusters_says_which(line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "contexts.json").write_text("{")
    outcome = line.bare("ps")
    assert outcome.code == 2
    assert "contexts.json" in outcome.err


def test_yaml_says_the_same_as_json() -> None:
    empty: dict[str, str] = {}
    value: object = {
        "kind": "Node",
        "items": [
            {"name": "studio a", "up": True, "tags": [], "links": [{"to": "b", "rtt": 0.5}]},
            {"name": "yes", "note": "a: b # c", "none": None, "empty": empty, "size": 3},
            ["x", ["y"]],
        ],
    }
    assert list(yaml_lines(value)) == [
        "kind: Node",
        "items:",
        "- name: studio a",
        "  up: true",
        "  tags: []",
        "  links:",
        "  - to: b",
        "    rtt: 0.5",
        '- name: "yes"',
        '  note: "a: b # c"',
        "  none: null",
        "  empty: {}",
        "  size: 3",
        "- - x",
        '  - - "y"',
    ]


def test_yaml_is_a_form_of_every_list(line: CommandLine) -> None:
    lines = line("node", "ls", "-o", "yaml").lines
    assert lines[:2] == ["apiVersion: exoctl/v1", "kind: Node"]
    assert "  name: alpha" in lines


def test_a_watched_list_comes_again_until_it_is_ended(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(anyio, "sleep", sleep)
    outcome = line("ps", "--watch", "-q")
    assert (outcome.code, outcome.lines) == (130, ["i-00000001"] * 3)
    assert waits == [2.0, 2.0, 2.0]


def test_a_program_is_told_where_to_ask(
    line: CommandLine, handle: FakeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = line("launch", "--print-env")
    assert "export OPENAI_BASE_URL=http://127.0.0.1:1/v1" in shown.lines
    assert "export ANTHROPIC_MODEL=smollm2-135m-instruct" in shown.lines
    started: list[tuple[str, list[str], dict[str, str]]] = []

    def start(path: str, arguments: list[str], environment: dict[str, str]) -> None:
        started.append((path, arguments, environment))

    monkeypatch.setattr(os, "execve", start)
    assert line("--token", "k", "launch", "--", "env", "-0").code == 0
    [(path, arguments, environment)] = started
    assert (Path(path).name, arguments) == ("env", ["env", "-0"])
    assert environment["OPENAI_API_KEY"] == environment["ANTHROPIC_AUTH_TOKEN"] == "k"
    assert environment["PATH"] == os.environ["PATH"]
    assert line("launch", "--", "no-such-program-here").code == 3
    handle.state = without_instances(make_state())
    assert line("launch", "--model", "smollm2", "--print-env").code == 3
    line.unreachable = UnreachableError.because("gone", "no node answers", "")
    outcome = line("launch", "--print-env", "-o", "json")
    assert (outcome.code, json.loads(outcome.err)["error"]["code"]) == (2, "gone")
