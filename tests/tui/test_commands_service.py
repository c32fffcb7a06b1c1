"""The node as a service: what is written, what is run, and that nothing happens unasked."""

import plistlib
import stat
from pathlib import Path

import pytest

from tests.fakes.command_line import CommandLine
from tests.fakes.fake_handle import FakeHandle
from tests.fakes.surroundings import isolate
from tui.commands.service_files import launchd_plan, systemd_plan

CALLS = """#!/bin/sh
echo "$@" >> "{log}"
case "$*" in
*is-active*) test -e "{log}.up";;
*" enable "*) touch "{log}.up";;
*" disable "*) rm -f "{log}.up";;
esac
"""


@pytest.fixture
def line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("EXOCTL_CONFIG", str(tmp_path / "config.toml"))
    return CommandLine(FakeHandle(), capsys)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `systemctl` that only remembers; a home of its own."""
    log = tmp_path / "calls"
    control = tmp_path / "bin" / "systemctl"
    control.parent.mkdir()
    control.write_text(CALLS.format(log=log))
    control.chmod(control.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{control.parent}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    return log


def test_install_status_and_uninstall_are_one_round(line: CommandLine, calls: Path) -> None:
    assert line("service", "status").code == 1
    done = line("service", "install", "-y", "--name", "studio", "--port", "0", "--json")
    assert done.code == 0, done.err
    unit = Path(done.json["items"][0]["path"])
    words = unit.read_text()
    assert "ExecStart=" in words
    assert "--name studio --port 0" in words
    assert "KillMode=process" in words
    assert "enable --now exoctl.service" in calls.read_text()
    found = line("service", "status", "--name", "studio", "--port", "0", "--json")
    assert found.code == 0
    assert found.json["items"][0]["running"] is True
    assert found.json["items"][0]["differs"] is False
    assert line("service", "status", "--json").json["items"][0]["differs"] is True
    calls.unlink()
    assert line("service", "install", "-y", "--name", "other").code == 0
    assert "--name other" in unit.read_text()
    said = calls.read_text().splitlines()
    assert said.index("--user disable --now exoctl.service") < said.index(
        "--user enable --now exoctl.service"
    )
    assert line("service", "uninstall", "-y").code == 0
    assert not unit.exists()
    assert "disable --now exoctl.service" in calls.read_text()
    assert "there is no service" in line("service", "uninstall", "-y").err


def test_nothing_is_installed_unless_somebody_says_yes(line: CommandLine, calls: Path) -> None:
    done = line("service", "install")
    assert done.code == 2
    assert "say yes with -y" in done.err
    assert not (calls.parent / "home" / ".config" / "systemd").exists()
    assert line.bare("--read-only", "service", "install", "-y").code == 5


def test_a_token_is_never_written_where_others_can_read_it(line: CommandLine, calls: Path) -> None:
    done = line("service", "install", "-y", "--token", "s3cret")
    assert done.code == 2
    assert "config set node.api_token" in done.err
    assert "s3cret" not in done.err


def test_a_system_without_its_supervisor_is_told_so(
    line: CommandLine, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(calls.parent / "nothing"))
    done = line("service", "install", "-y")
    assert done.code == 2
    assert "there is no systemctl here" in done.err


def test_a_service_keeps_the_secret_of_its_fleet_and_its_hub(
    line: CommandLine, calls: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "fleet"
    secret.write_text("x" * 40)
    secret.chmod(0o600)
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.lan")
    done = line("service", "install", "-y", "--cluster-secret-file", str(secret), "--json")
    assert done.code == 0, done.err
    words = Path(done.json["items"][0]["path"]).read_text()
    assert f"--cluster-secret-file {secret}" in words
    assert "Environment=HF_ENDPOINT=http://hub.lan\n" in words


def test_words_with_spaces_and_percents_reach_the_node_as_they_are() -> None:
    plan = systemd_plan(("/opt/my apps/exoctl", "up", "--name", "50%"), {"A": "b $c"}, Path("/c"))
    words = plan.words.decode()
    assert 'ExecStart="/opt/my apps/exoctl" up --name 50%%\n' in words
    assert 'Environment="A=b $c"\n' in words  # a dollar means nothing there
    dollar = systemd_plan(("/bin/exoctl", "$x"), {}, Path("/c")).words.decode()
    assert "ExecStart=/bin/exoctl $$x\n" in dollar
    assert plan.path == Path("/c/systemd/user/exoctl.service")


def test_a_launchd_agent_restarts_after_a_failure_alone() -> None:
    plan = launchd_plan(("/bin/exoctl", "up"), {"EXOCTL_STATE_DIR": "/s"}, Path("/Users/a"), 501)
    content = plistlib.loads(plan.words)
    assert content["ProgramArguments"] == ["/bin/exoctl", "up"]
    assert content["KeepAlive"] == {"SuccessfulExit": False}
    assert content["AbandonProcessGroup"] is True
    assert plan.path == Path("/Users/a/Library/LaunchAgents/dev.exoctl.node.plist")
    assert plan.install == (("launchctl", "bootstrap", "gui/501", str(plan.path)),)


@pytest.mark.parametrize(
    "said",
    [
        "Failed to connect to bus: No medium found",
        "Failed to connect to user scope bus via local transport: No such file or directory",
    ],
)
def test_where_systemd_runs_nothing_of_the_user_that_is_said(
    line: CommandLine, calls: Path, tmp_path: Path, said: str
) -> None:
    (tmp_path / "bin" / "systemctl").write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    done = line("service", "install", "-y")
    assert done.code == 2
    assert "runs no session of this user" in done.err
    assert "enable-linger" in done.err
