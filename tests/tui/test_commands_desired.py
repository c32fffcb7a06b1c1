"""A cluster as a file says it, the state at an index, and what a helper is given."""

import tarfile
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from node.model.command import CordonNode, PlaceInstance, StopInstance, Wish
from node.model.errors import UsageError
from tests.fakes.cluster import five_node_cluster, three_node_cluster
from tests.fakes.command_line import CommandLine
from tests.fakes.handle import FakeHandle
from tests.fakes.surroundings import isolate
from tui.commands.bundle import Redactor
from tui.commands.desired import (
    Desired,
    Place,
    changes,
    current,
    read_desired,
    words_of,
    write_desired,
)


def test_what_is_exported_is_what_is_there_and_applying_it_does_nothing() -> None:
    state, _ = five_node_cluster()
    words = write_desired(current(state))
    again = read_desired(words, "file")
    assert again == current(state)
    assert changes(state, again, prune=True) == []


def test_tensor_parallel_and_room_for_several_requests_outlive_the_file() -> None:
    state, _ = five_node_cluster()
    first = next(each for each in state.instances.values() if len(each.shards) > 1)
    wish = Wish(strategy="tensor", requests=3)
    divided = msgspec.structs.replace(first, tensor=True, wish=wish)
    state = msgspec.structs.replace(state, instances={first.instance: divided})
    again = read_desired(write_desired(current(state)), "file")
    (wanted,) = again.instance
    assert (wanted.strategy, wanted.parallel, wanted.layers) == ("tensor", 3, ())
    assert changes(state, again, prune=True) == []
    plain = msgspec.structs.replace(state, instances={first.instance: first})
    assert [type(each) for each in changes(plain, again, prune=False)] == [Place]


def test_only_what_differs_is_done_and_stops_only_where_asked() -> None:
    state, _ = five_node_cluster()
    words = """
        [[instance]]
        model = "phi-4-4bit"
        replicas = 2
        [[instance]]
        model = "qwen3-235b-a22b-4bit"
        nodes = ["studio-a", "studio-b"]
        [[node]]
        name = "mini-1"
        cordoned = true
        [[node]]
        name = "mini-2"
    """
    desired = read_desired(words, "file")
    assert [words_of(each) for each in changes(state, desired, prune=False)] == [
        "~ mini-1: cordoned",
        "+ qwen3-235b-a22b-4bit on studio-a, studio-b",
        "+ phi-4-4bit",
    ]
    pruned = [words_of(each) for each in changes(state, desired, prune=True)]
    assert len([each for each in pruned if each.startswith("- ")]) == 2
    assert read_desired('{"instance": [{"model": "m"}]}', "file").instance[0].replicas == 1


@pytest.mark.parametrize(
    "words",
    [
        "[[instance]]\nmodle = 'x'\n",
        "[[instance]]\nmodel = 'x'\nlayers = [1]\n",
        "apiVersion = 'exoctl/v9'\n",
        "instance = 3\n",
        "{",
        '{"items": []}',
        "\x00",
    ],
)
def test_a_file_that_can_not_be_meant_is_refused_with_its_name(words: str) -> None:
    with pytest.raises(UsageError, match=r"some\.toml"):
        read_desired(words, "some.toml")


@pytest.fixture
def line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Generator[CommandLine]:
    isolate(monkeypatch, tmp_path)
    handle = FakeHandle(three_node_cluster())
    yield CommandLine(handle, capsys)
    handle.close()


def handle_of(line: CommandLine) -> FakeHandle:
    assert isinstance(line.handle, FakeHandle)
    return line.handle


def test_diff_and_apply_go_by_their_codes(line: CommandLine, tmp_path: Path) -> None:
    exported = line("export")
    (tmp_path / "is.toml").write_text(exported.out)
    assert line("diff", "-f", str(tmp_path / "is.toml"), "--prune").code == 0
    (tmp_path / "is.json").write_text(line("export", "-o", "json").out)
    assert line("diff", "-f", str(tmp_path / "is.json"), "--prune").code == 0
    wanted = '[[instance]]\nmodel = "phi-4-4bit"\n[[node]]\nname = "mini-1"\ncordoned = true\n'
    path = tmp_path / "want.toml"
    path.write_text(wanted)
    assert line("diff", "-f", str(path)).code == 1
    assert line("apply", "-f", str(path), "--dry-run").code == 0
    assert handle_of(line).submitted == []
    assert line.bare("--read-only", "--host", "h:1", "apply", "-f", str(path)).code == 5
    assert line("apply", "-f", str(path), "--prune").code == 2  # nobody is there to be asked
    assert line("apply", "-f", str(path), "--prune", "-y", "--no-wait").code == 0
    kinds = [type(command) for command in handle_of(line).submitted]
    assert kinds == [CordonNode, StopInstance, PlaceInstance]
    assert handle_of(line).submitted[-1] == PlaceInstance(model="phi-4-4bit", wish=Wish())  # type: ignore[arg-type]
    assert line("apply", "-f", str(tmp_path / "none")).code == 2


def test_the_start_of_a_name_means_what_is_placed_already(
    line: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "short.toml"
    path.write_text('[[instance]]\nmodel = "llama-3.3"\n')
    assert line("diff", "-f", str(path), "--prune").code == 0
    assert line("apply", "-f", str(path), "--prune").code == 0
    assert handle_of(line).submitted == []


def test_what_is_to_happen_when_a_node_is_lost_is_exported_too() -> None:
    state, *_ = three_node_cluster()
    (instance,) = state.instances.values()
    lasting = msgspec.structs.replace(instance, wish=Wish(restart="always"))
    state = msgspec.structs.replace(state, instances={lasting.instance: lasting})
    (wanted,) = read_desired(write_desired(current(state)), "itself").instance
    assert wanted.restart == "always"
    empty = msgspec.structs.replace(state, instances={})
    (change,) = changes(empty, Desired(instance=(wanted,)), prune=False)
    assert change == Place(wanted)
    assert changes(state, Desired(instance=(wanted,)), prune=True) == []


def test_a_bundle_holds_what_helps_and_no_secret(
    line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXOCTL_TOKEN", "s3cret-token")
    monkeypatch.setenv("HOME", str(tmp_path))
    log = tmp_path / "state" / "logs" / "node.log"
    log.parent.mkdir(parents=True)
    log.write_text(
        f"code 7KQ2M-XW4DA-P3RTE-9HBNC, s3cret-token, {tmp_path}/models, hf_abcdefghij\n"
    )
    path = tmp_path / "bundle.tar.gz"
    done = line("support-bundle", str(path))
    assert done.code == 0, done.err
    with tarfile.open(path) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers()}
        whole = b"".join(
            file.read() for member in archive if (file := archive.extractfile(member)) is not None
        ).decode()
    assert {"state.json", "registers.json", "log.txt", "versions.json", "doctor.json"} <= names
    assert "code (code), (secret), ~/models, (token)" in whole
    assert "s3cret-token" not in whole
    assert str(tmp_path) not in whole
    assert path.stat().st_mode & 0o077 == 0
    assert line("support-bundle", str(path)).code == 2


def test_a_redactor_counts_and_leaves_the_rest() -> None:
    redact = Redactor(("longsecret", "", 'quo"ted'), "/home/me")
    assert redact("GET /x?token=abc&b=1 Bearer abc.def") == "GET /x?token=(token)&b=1 (token)"
    assert redact("plain words in /home/me/x") == "plain words in ~/x"
    assert redact.count == 2
    assert redact('{"a": "quo\\"ted"}') == '{"a": "(secret)"}'
    assert redact("via http://me:pass@proxy:1/x") == "via http://(login)@proxy:1/x"
    assert redact("send exoctl-0123456789abcdef01") == "send (token)"
