"""Commands that need no node."""

from pathlib import Path

import pytest

from node.io import doctor
from node.io.finding import Finding
from node.version import __version__
from tests.fakes.command_line import CommandLine
from tests.fakes.fake_handle import FakeHandle
from tests.fakes.surroundings import isolate


@pytest.fixture
def line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    isolate(monkeypatch, tmp_path)
    return CommandLine(FakeHandle(), capsys)


def test_version(line: CommandLine) -> None:
    assert line.bare("version").out.startswith(f"exoctl {__version__} (Python 3.")
    assert line.bare("version", "--json").json["items"][0]["version"] == __version__
    assert line.bare("version", "-q").out == f"{__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_back_with_the_shell_s_protocol(
    line: CommandLine, shell: str
) -> None:
    script = line.bare("completion", shell).out
    assert f"complete_{shell}" in script
    assert "_EXOCTL_COMPLETE" in script


def test_completion_of_an_unknown_shell_is_a_usage_error(line: CommandLine) -> None:
    assert line.bare("completion", "csh").code == 2


def test_the_shell_is_given_the_commands(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_EXOCTL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "exoctl node un")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit):
        line.bare()
    assert line.capsys.readouterr().out.split() == ["uncordon"]


def test_config_path_says_whether_the_file_is_there(line: CommandLine, tmp_path: Path) -> None:
    shown = line.bare("config", "path")
    assert shown.out == f"{tmp_path / 'config.toml'}\n"
    assert "no such file yet" in shown.err
    (tmp_path / "config.toml").write_text("")
    assert line.bare("config", "path").err == ""
    assert line.bare("config", "path", "-o", "json").json["items"][0]["exists"] is True


def test_config_get_shows_what_a_node_would_have(line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[node]\nname = "attic"\napi_token = "hush-hush"\n')
    assert line.bare("config", "get", "name").out == "attic\n"
    assert line.bare("config", "get", "api-port", "--api-port", "0").out == "0\n"
    assert line.bare("config", "get", "peers", "--peer", "a:1", "--peer", "b:2").out == "a:1, b:2\n"
    shown = line.bare("config", "get")
    assert "hush-hush" not in shown.out
    assert "(set)" in shown.out
    item = line.bare("config", "get", "-o", "json", "--no-discovery").json["items"][0]
    assert item["discovery"] is False
    assert item["model_directories"] == [str(tmp_path / "models")]
    assert line.bare("config", "get", "colour").code == 3


@pytest.mark.parametrize("text", ["[node\n", "[node]\nnme = 1\n", '[node]\napi_port = "x"\n'])
def test_a_config_file_that_is_off_is_told_with_its_path(
    line: CommandLine, tmp_path: Path, text: str
) -> None:
    (tmp_path / "config.toml").write_text(text)
    outcome = line.bare("config", "get")
    assert outcome.code == 2
    assert str(tmp_path / "config.toml") in outcome.err


def test_a_config_file_of_no_text_is_told(line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "config.toml").mkdir()
    assert line.bare("ps").code == 2


def test_doctor_is_0_where_all_is_well_and_1_else(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Finding(name="python", state="ok", reason="3.11")]
    asked: list[bool] = []

    async def examine(config: object, *, network: bool) -> list[Finding]:
        asked.append(network)
        return found

    monkeypatch.setattr(doctor, "examine", examine)
    assert line.bare("doctor").code == 0
    found.append(Finding(name="disk", state="fail", reason="0.1 GB free", remedy="free some"))
    outcome = line.bare("doctor", "--network")
    assert outcome.code == 1
    assert "0.1 GB free" in outcome.out
    assert "! disk: free some" in outcome.err
    assert asked == [False, True]
    whole = line.bare("doctor", "--json")
    assert whole.code == 1
    assert whole.json["kind"] == "Finding"
    assert whole.json["items"][1]["remedy"] == "free some"
    assert line.bare("doctor", "-q").out == "disk\n"
