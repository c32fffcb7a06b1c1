"""`exoctl token` and `exoctl node ping`."""

from pathlib import Path

from node.io.token_file import TokenFile
from node.model.errors import UnreachableError
from tests.fakes.command_line import CommandLine
from tests.fakes.fake_handle import FakeHandle


def test_a_token_is_shown_once_listed_and_revoked(line: CommandLine, tmp_path: Path) -> None:
    assert line("token", "ls").code == 0
    made = line("token", "create", "laptop", "--expires", "1h")
    token = made.out.strip()
    assert token.startswith("exoctl-")
    assert TokenFile(tmp_path / "state").scope_of(token.encode(), 0.0) == "inference"
    item = line("token", "ls", "-o", "json").json["items"][0]
    assert (item["name"], item["scope"], item["state"]) == ("laptop", "inference", "ok")
    assert token not in line("token", "ls").out
    assert line("token", "create", "laptop").code == 4
    owner = line("token", "create", "owner", "--scope", "admin", "-o", "json").json["items"][0]
    assert owner["expires_at"] is None
    assert TokenFile(tmp_path / "state").scope_of(owner["token"].encode(), 0.0) == "admin"
    assert line("token", "revoke", "laptop").out == "laptop revoked\n"
    assert line("token", "revoke", "laptop").code == 3
    assert TokenFile(tmp_path / "state").scope_of(token.encode(), 0.0) is None


def test_ping_measures_every_other_node(line: CommandLine, handle: FakeHandle) -> None:
    shown = line("node", "ping", "--bw").out
    assert "0.25 ms" in shown
    assert "940 Mb/s" in shown
    assert "ethernet" in shown
    item = line("node", "ping", "beta", "-o", "json").json["items"][0]
    assert (item["name"], item["bits_per_second"]) == ("beta", None)
    assert line("node", "ping", "alpha").code == 4
    handle.failing["ping"] = UnreachableError.because("no_link", "beta did not answer")
    failed = line("node", "ping")
    assert failed.code == 1
    assert "beta did not answer" in failed.out


def test_rotate_says_what_it_withdrew_and_where_the_secret_is(line: CommandLine) -> None:
    assert line("cluster", "rotate").code == 2  # nobody is there to ask
    done = line("cluster", "rotate", "-y")
    assert done.out == "withdrawn: 2; members told: 1\n"
    assert "/etc/exoctl/secret" in done.err
    assert line("cluster", "rotate", "-y", "-o", "json").json["items"][0]["withdrawn"] == 2
