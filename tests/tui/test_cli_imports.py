"""A command that draws no app never pays for one, and nothing but a runner pays for mlx."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tui import command_line

HELP_MODULES_MAX = 600
"""What `exoctl --help` loads, the interpreter's own included: its time, a benchmark's business,
goes with it."""
_PROBE = """
import json, sys
from tui.command_line import execute, connect_over_http
code = execute(sys.argv[1:], connect_over_http)
sys.stdout.flush()
print(json.dumps({
    "code": code,
    "count": len(sys.modules),
    "modules": sorted({name.partition(".")[0] for name in sys.modules}),
    "own": sorted(name for name in sys.modules if name.startswith(("node.", "tui."))),
}), file=sys.stderr)
"""


class Found(msgspec.Struct):
    """What the probed process says of itself."""

    code: int
    count: int
    modules: set[str]
    own: set[str]


def probe(directory: Path, *arguments: str) -> Found:
    environment = {key: value for key, value in os.environ.items() if "EXOCTL" not in key}
    environment["EXOCTL_STATE_DIR"] = str(directory / "state")
    environment["EXOCTL_CONFIG"] = str(directory / "config.toml")
    done = subprocess.run(
        (sys.executable, "-c", _PROBE, *arguments),
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return msgspec.json.decode(done.stderr.splitlines()[-1], type=Found)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--help",), 0),
        (("ps", "--help"), 0),
        (("ps",), 2),
        (("version",), 0),
        (("config", "get"), 0),
        (("--no-ui", "--port", "-7"), 2),
        ((), 2),
    ],
)
def test_no_command_imports_the_app_or_mlx(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    found = probe(tmp_path, *arguments)
    assert found.code == code
    assert not {"textual", "mlx", "mlx_lm", "transformers"} & found.modules
    assert not {"tui.app", "node.runtime"} & found.own


def test_a_client_command_imports_no_server(tmp_path: Path) -> None:
    found = probe(tmp_path, "ps", "--host", "127.0.0.1:1")
    assert found.code == 2
    assert "node.client" in found.own
    assert not {"node.runtime", "node.api.server", "node.io.mesh"} & found.own


def test_help_loads_little(tmp_path: Path) -> None:
    assert probe(tmp_path, "--help").count <= HELP_MODULES_MAX


_INTERRUPTED = """
import os, signal, sys, time
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        return None
signal.signal(signal.SIGINT, signal.default_int_handler)
from tui.cli import main
sys.meta_path.insert(0, Finder())
sys.argv = ["exoctl", "version"]
main()
"""


@pytest.mark.parametrize(
    ("module", "code"),
    [("tui.command_line", -signal.SIGINT), ("tui.commands.chat", -signal.SIGINT)],
)
def test_ctrl_c_while_it_loads_ends_it_without_a_word(module: str, code: int) -> None:
    done = subprocess.run(
        (sys.executable, "-c", _INTERRUPTED.format(module=module)),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_ctrl_c_while_the_commands_are_put_together_is_an_interruption(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tui.command_line.build", interrupted)
    assert command_line.execute(["ps"], command_line.connect_over_http) == 130
