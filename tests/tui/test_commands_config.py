"""Settings: each is explained, one can be set, and a mistake is told with what helps."""

from pathlib import Path

import msgspec
import pytest

from node.config import AppFileSettings, FileSettings, parse_config
from node.model.errors import UsageError
from tests.fakes.cluster import three_node_cluster
from tests.fakes.command_line import CommandLine
from tests.fakes.fake_handle import FakeHandle
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import screen_text, settle
from tests.fakes.surroundings import isolate
from tui.actions.keymap import Keymap, clashes, read_keymap
from tui.app_options import AppOptions
from tui.commands.config import APP_WORDS, NODE_WORDS


@pytest.fixture
def line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("EXOCTL_CONFIG", str(tmp_path / "config.toml"))
    return CommandLine(FakeHandle(), capsys)


def test_every_setting_there_is_is_explained(line: CommandLine) -> None:
    assert set(NODE_WORDS) == set(FileSettings.__struct_fields__)
    assert set(APP_WORDS) == set(AppFileSettings.__struct_fields__)
    shown = line.bare("config")
    assert shown.code == 0
    for name in NODE_WORDS:
        assert f"node.{name} " in shown.out
    items = line.bare("config", "explain", "--json").json["items"]
    assert line.bare("config", "--json").json["items"] == items
    assert line.bare("config", "--json", "keys").json["kind"] == "Key"
    assert {item["name"] for item in items} == set(NODE_WORDS) | set(APP_WORDS)


def test_the_template_is_a_settings_file_that_changes_nothing(line: CommandLine) -> None:
    words = line.bare("config", "template").out
    assert parse_config(words, "template") == parse_config("", "nothing")
    bare = "\n".join(
        row.removeprefix("# ")
        for row in words.splitlines()
        if not row.startswith("#") or " = " in row
    )
    read = parse_config(bare, "template")
    assert read.app == AppFileSettings()
    assert read.node.cluster_port == 52416


def test_a_settings_file_that_is_a_link_stays_one(line: CommandLine, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text("")
    (tmp_path / "config.toml").symlink_to(real)
    assert line.bare("config", "set", "node.name", "linked").code == 0
    assert (tmp_path / "config.toml").is_symlink()
    assert real.read_text() == '[node]\nname = "linked"\n'


def test_a_setting_is_set_and_the_rest_of_the_file_stays(line: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('# mine\n[node]\nname = "old"  # here\n\n[app]\nascii = true\n')
    assert line.bare("config", "set", "node.name", "new name").code == 0
    assert line.bare("config", "set", "node.api_port", "0").code == 0
    assert line.bare("config", "set", "keys.placements.stop", '["ctrl+d", "f4"]').code == 0
    assert path.read_text() == (
        '# mine\n[node]\nname = "new name"\napi_port = 0\n\n[app]\nascii = true\n'
        '\n[keys]\n"placements.stop" = ["ctrl+d", "f4"]\n'
    )
    wrong = line.bare("config", "set", "node.api_port", "70000")
    assert wrong.code == 2
    assert "65535" in wrong.err
    assert line.bare("config", "set", "node.nothing", "1").code == 3
    assert "api_port = 0" in path.read_text()


def test_clashing_keys_are_told_and_not_taken(line: CommandLine, tmp_path: Path) -> None:
    assert list(clashes(Keymap())) == []
    keymap = read_keymap({"placements.stop": "q", "events.follow": "w", "nodes.fly": "x"})
    assert dict(keymap.keys) == {"events.follow": ("w",)}
    assert any("'q'" in fault and "global.quit" in fault for fault in keymap.faults)
    assert any("nodes.fly" in fault for fault in keymap.faults)
    assert read_keymap({"events.follow": ""}).faults
    swapped = read_keymap({"placements.stop": "R", "placements.restart": "x"})
    assert not swapped.faults
    (tmp_path / "config.toml").write_text('[keys]\n"placements.stop" = "q"\n')
    shown = line.bare("config", "keys")
    assert shown.code == 1
    assert "also that of" in shown.err
    assert line.bare("config", "set", "keys.placements.stop", "q").code == 2


async def test_a_key_of_ones_own_acts_and_help_tells_it() -> None:
    keymap = read_keymap({"global.pause": ["f5", "^y"], "nodes.fly": "x"})
    options = AppOptions(animations=False, keymap=keymap)
    play = Screenplay(three_node_cluster(), options)
    async with play.app.run_test(size=(140, 50), notifications=True) as pilot:
        play.start()
        await settle(play, pilot)
        assert "nodes.fly" in screen_text(play.app)
        await pilot.press("p")
        await settle(play, pilot)
        assert "held" not in screen_text(play.app).split("\n")[0]
        await pilot.press("f5")
        await settle(play, pilot)
        assert "held" in screen_text(play.app).split("\n")[0]
        await pilot.press("ctrl+y", "question_mark")
        await settle(play, pilot)
        shown = screen_text(play.app)
        assert "held" not in shown.split("\n")[0]
        assert "f5 ^y" in shown
    play.close()


def test_a_table_that_does_not_exist_is_named() -> None:
    with pytest.raises(UsageError, match="colours"):
        parse_config("[colours]\nred = 1\n", "file")
    assert msgspec.structs.fields(AppFileSettings)
