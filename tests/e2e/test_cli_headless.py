"""A node without an app, as a real process: one line when ready, a clean stop on every way out."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from node.io.node_lock import read_lock

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
START_SECONDS = 60
STOP_SECONDS = 30
NODE = ("--port", "0", "--api-port", "0", "--bind", "127.0.0.1", "--no-discovery")


class Machine:
    """One state directory, and the processes that a test starts on it."""

    def __init__(self, directory: Path) -> None:
        self.state = directory / "state"
        self.started: list[subprocess.Popen[str]] = []
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("EXOCTL_")}
        self.environment |= {
            "EXOCTL_STATE_DIR": str(self.state),
            "EXOCTL_CONFIG": str(directory / "config.toml"),
            "EXOCTL_MODEL_DIR": str(directory / "models"),
            "TERM": "xterm",
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `exoctl` with these arguments and leave it running."""
        process = subprocess.Popen(
            (sys.executable, "-m", "tui", *arguments),
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def node(self, *arguments: str) -> tuple[subprocess.Popen[str], str]:
        """Start a node and wait for its ready line."""
        process = self.start("--no-ui", "--name", "attic", *NODE, *arguments)
        assert process.stdout is not None
        return process, process.stdout.readline()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `exoctl` to its end."""
        return subprocess.run(
            (sys.executable, "-m", "tui", *arguments),
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )

    def end(self) -> None:
        """Kill what a failed test has left."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait()

    def assert_clean(self) -> None:
        """No process of ours, no lock, no runner's record is left."""
        assert read_lock(self.state) is None
        assert list((self.state / "r").glob("*.json")) == []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            assert not any(str(self.state.parent) in word for word in words), words


@pytest.fixture
def machine(tmp_path: Path) -> Generator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_it_cleanly_with_code_0(machine: Machine, number: signal.Signals) -> None:
    process, ready = machine.node()
    assert ready.startswith("attic is ready: api http://127.0.0.1:")
    assert str(machine.state) in ready
    process.send_signal(number)
    out, err = process.communicate(timeout=STOP_SECONDS)
    assert process.returncode == 0
    assert out == ""
    assert f"{number.name}: stopping" in err
    assert "Traceback" not in err
    machine.assert_clean()


def test_the_commands_find_it_talk_to_it_and_end_it(machine: Machine) -> None:
    process, _ = machine.node("-v")
    status = machine.run("status", "-o", "json")
    assert status.returncode == 0, status.stderr
    item = json.loads(status.stdout)["items"][0]
    assert (item["state"], item["master_name"], item["nodes_up"]) == ("ok", "attic", 1)
    assert item["local"]["process_id"] == process.pid
    nodes = machine.run("node", "ls", "-q")
    assert nodes.stdout == "attic\n"
    assert machine.run("wait", "--for", "master").returncode == 0
    assert machine.run("node", "cordon", "attic").stdout == "attic cordoned\n"
    events = machine.run("events", "--type", "NodeCordoned", "-o", "ndjson").stdout.splitlines()
    assert [json.loads(each)["kind"] for each in events] == ["snapshot", "event"]
    assert "this node masters" in machine.run("logs").stdout
    refused = machine.run("load", "no-such-model", "-o", "json")
    assert refused.returncode == 3
    assert json.loads(refused.stderr)["error"]["code"]
    down = machine.run("down")
    assert (down.returncode, down.stdout) == (0, "attic stopped\n"), down.stderr
    assert process.wait(STOP_SECONDS) == 0
    assert machine.run("status").returncode == 2
    machine.assert_clean()


def test_a_second_node_on_the_same_state_directory_is_a_conflict(machine: Machine) -> None:
    process, _ = machine.node()
    second = machine.run("--no-ui", *NODE)
    assert second.returncode == 4
    assert f"process {process.pid}" in second.stderr
    assert machine.run("status").returncode == 0


def test_a_taken_port_is_a_conflict_that_names_it_and_leaves_nothing(
    machine: Machine, tmp_path: Path
) -> None:
    machine.node()
    record = read_lock(machine.state)
    assert record is not None
    assert record.api is not None
    other = str(tmp_path / "other")
    taken = machine.run("up", *NODE, "--state-dir", other, "--api-port", str(record.api.port))
    assert taken.returncode == 4
    assert str(record.api.port) in taken.stderr
    assert "Traceback" not in taken.stderr
    assert read_lock(Path(other)) is None


def test_it_stops_when_the_program_that_holds_its_stdin_is_gone(machine: Machine) -> None:
    process, _ = machine.node("--until-eof")
    assert process.stdin is not None
    process.stdin.write("ignored\n")
    process.stdin.flush()
    assert machine.run("status").returncode == 0
    process.stdin.close()
    assert process.wait(STOP_SECONDS) == 0
    machine.assert_clean()


def test_a_signal_while_it_starts_ends_it_without_a_trace(machine: Machine) -> None:
    process = machine.start("--no-ui", *NODE)
    while read_lock(machine.state) is None and not (machine.state / "node.lock").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=STOP_SECONDS)
    assert process.returncode in (0, 130), err
    assert "Traceback" not in out + err
    machine.assert_clean()


def test_ctrl_c_while_following_is_130_and_a_closed_pipe_is_quiet(machine: Machine) -> None:
    machine.node()
    follower = machine.start("events", "--since", "0", "-f")
    assert follower.stdout is not None
    assert "ClusterFounded" in follower.stdout.readline()
    follower.send_signal(signal.SIGINT)
    _, err = follower.communicate(timeout=STOP_SECONDS)
    assert (follower.returncode, err) == (130, "")

    pipe = subprocess.run(
        ("sh", "-c", f"{sys.executable} -m tui events --since 0 | head -1"),
        cwd=ROOT,
        env=machine.environment,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=True,
    )
    assert "ClusterFounded" in pipe.stdout
    assert pipe.stderr == ""


def test_json_says_ready_in_one_record(machine: Machine) -> None:
    _, ready = machine.node("-o", "json")
    whole = json.loads(ready)
    assert (whole["apiVersion"], whole["kind"]) == ("exoctl/v1", "Ready")
    assert whole["items"][0]["name"] == "attic"
