"""The demo, as real processes: what it promises, and that nothing of it is ever left."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
SECONDS = 300


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model is made ready once for all tests here."""
    return tmp_path_factory.mktemp("models")


class Stage:
    """Starts demos in a temporary directory of their own."""

    def __init__(self, directory: Path, models: Path) -> None:
        self.directory = directory
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("EXOCTL_")}
        self.environment |= {
            "EXOCTL_STATE_DIR": str(directory / "state"),
            "EXOCTL_CONFIG": str(directory / "config.toml"),
            "EXOCTL_MODEL_DIR": str(models),
            "TMPDIR": str(directory),
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a demo."""
        return subprocess.Popen(
            (sys.executable, "-m", "tui", "demo", *arguments),
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a demo to its end: exit code, stdout, stderr."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
        return process.returncode, out, err

    def processes(self) -> list[list[str]]:
        """Command lines of everything that runs in the directory."""
        found: list[list[str]] = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            if any(str(self.directory) in word for word in words):
                found.append(words)
        return found

    def assert_nothing_is_left(self) -> None:
        """No process, no directory."""
        assert self.processes() == []
        assert list(self.directory.glob("exoctl-demo-*")) == []


@pytest.fixture
def stage(tmp_path: Path, models: Path) -> Stage:
    return Stage(tmp_path, models)


def facts_of(out: str) -> dict[str, Any]:
    whole = json.loads(out)
    assert (whole["apiVersion"], whole["kind"]) == ("exoctl/v1", "Demo")
    return whole["items"][0]


def test_two_nodes_answer_and_the_stream_outlives_the_master(stage: Stage) -> None:
    code, out, err = stage.run("--nodes", "2", "-o", "json")
    assert code == 0, out + err
    facts = facts_of(out)
    assert facts["held"] is True
    assert "Paris" in facts["answer"]
    assert facts["tokens_per_second"] > 0
    assert 0 < facts["first_token_seconds"] < 60
    assert "demo-1" in facts["placement"]
    assert "demo-2" in facts["placement"]
    failover = facts["failover"]
    survivor = {"demo-1": "demo-2", "demo-2": "demo-1"}[failover["killed"]]
    assert failover["leader"] == survivor
    assert failover["placement"] == f"{survivor} 0-29"
    assert failover["term"] > 1
    assert 0 < failover["failover_seconds"] < 10
    assert failover["output_tokens"] > failover["tokens_before_kill"]
    assert len(failover["runner_process_ids"]) == 1
    assert facts["left_over"] == []
    stage.assert_nothing_is_left()


def test_three_nodes_told_to_a_person(stage: Stage) -> None:
    code, out, err = stage.run("--nodes", "3")
    assert code == 0, out + err
    for told in (
        "demo-3 is in after",
        "The capital of France is Paris.",
        "tok/s",
        "killed",
        "leads now",
        "the answer went on to its end",
        "the same runners as before the kill",
        "nothing is left",
        "everything held",
    ):
        assert told in out
    assert err == ""
    stage.assert_nothing_is_left()


def test_one_node_answers_and_has_no_one_to_take_over(stage: Stage) -> None:
    code, out, err = stage.run("--nodes", "1", "-o", "json")
    assert code == 0, out + err
    facts = facts_of(out)
    assert "Paris" in facts["answer"]
    assert facts["failover"] is None
    stage.assert_nothing_is_left()


def test_a_failing_step_says_why_shows_the_logs_and_ends_with_1(stage: Stage) -> None:
    code, out, err = stage.run("--nodes", "1", "--model", "no-such-model")
    assert code == 1
    assert "no node knows the model 'no-such-model'" in err
    assert "the end of demo-1's log" in err
    assert "this node masters" in err
    assert "everything held" not in out
    stage.assert_nothing_is_left()


@pytest.mark.parametrize("told", ["starting", "ready after", "over 2 nodes", "killed"])
def test_ctrl_c_at_any_moment_leaves_nothing(stage: Stage, told: str) -> None:
    process = stage.start("--nodes", "2")
    assert process.stdout is not None
    for line in process.stdout:
        if told in line:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "Traceback" not in err
    stage.assert_nothing_is_left()


def test_a_killed_demo_takes_its_nodes_with_it(stage: Stage) -> None:
    process = stage.start("--nodes", "2")
    assert process.stdout is not None
    for line in process.stdout:
        if "is in after" in line:
            break
    process.kill()
    process.communicate(timeout=60)
    deadline = time.monotonic() + 60
    while stage.processes() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert stage.processes() == []


def test_a_kept_cluster_can_be_talked_to_and_ended(stage: Stage) -> None:
    code, out, err = stage.run("--nodes", "1", "--keep", "-o", "json")
    assert code == 0, out + err
    root = Path(facts_of(out)["kept"])
    command = (sys.executable, "-m", "tui", "--state-dir", str(root / "n1"))
    try:
        for words, expected in ((("status",), 0), (("down",), 0), (("status",), 2)):
            done = subprocess.run(
                (*command, *words),
                cwd=ROOT,
                env=stage.environment,
                capture_output=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == expected, done.stderr
    finally:
        for words in stage.processes():
            subprocess.run((*command, "down"), cwd=ROOT, timeout=60, check=False)
            raise AssertionError(f"still running: {words}")
