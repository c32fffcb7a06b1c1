"""Real nodes as child processes on loopback, for tests of the whole."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import psutil

ROOT = Path(__file__).parents[2]
READY_SECONDS = 60.0
STOP_SECONDS = 20.0


class NodeProcess:
    """One headless node; its directories lie under `root`."""

    def __init__(
        self,
        root: Path,
        name: str,
        models: Path,
        *options: str,
        ports: tuple[int, int] = (0, 0),
        namespace: str = "",
    ) -> None:
        """A node in a network namespace binds every address of it and looks for others."""
        self.name = name
        self.state_directory = root / name
        self.environment = {
            key: value for key, value in os.environ.items() if not key.startswith("EXOCTL_")
        } | {
            "EXOCTL_STATE_DIR": str(self.state_directory),
            "EXOCTL_MODEL_DIR": str(models),
            "EXOCTL_CONFIG": str(root / "no-config.toml"),
            "PYTHONPATH": str(ROOT),
        }
        self._log = (root / f"{name}.log").open("ab")
        cluster_port, api_port = ports
        self._within = ("ip", "netns", "exec", namespace) if namespace else ()
        loopback = () if namespace else ("--bind", "127.0.0.1", "--no-discovery")
        self.process = subprocess.Popen(
            [
                *self._within,
                *(sys.executable, "-m", "tui", "--no-ui", "-o", "json", "--name", name),
                *("--port", str(cluster_port), "--api-port", str(api_port)),
                *loopback,
                *options,
            ],
            env=self.environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self.api = ""
        self.cluster_address = ""
        self.node = ""

    def wait_ready(self) -> "NodeProcess":
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], READY_SECONDS)
        if not readable:
            raise AssertionError(f"{self.name} is not ready in {READY_SECONDS:g} s")
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait(STOP_SECONDS)
            raise AssertionError(f"{self.name} ended with {code}: {self.log_text()[-2000:]}")
        ready: dict[str, Any] = json.loads(line)["items"][0]
        self.api, self.cluster_address = ready["api"], ready["cluster_address"]
        self.node = ready["node"]
        return self

    @property
    def url(self) -> str:
        return f"http://{self.api}"

    def log_text(self) -> str:
        self._log.flush()
        return Path(str(self._log.name)).read_text(errors="replace")

    def cli(
        self, *arguments: str, timeout_seconds: float = 90.0
    ) -> subprocess.CompletedProcess[str]:
        """Run `exoctl ARGUMENTS` against this node."""
        return subprocess.run(
            [*self._within, sys.executable, "-m", "tui", *arguments],
            env=self.environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        run = self.cli(*arguments, "-o", "json")
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    def state(self) -> dict[str, Any]:
        return httpx2.get(f"{self.url}/v1/cluster/state", timeout=10).json()["items"][0]

    def runner_ids(self) -> dict[str, int]:
        """Process ids of this node's runners, by runner."""
        found: dict[str, int] = {}
        for path in (self.state_directory / "r").glob("*.json"):
            record = json.loads(path.read_bytes())
            found[record["runner"]] = record["process_id"]
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it cleanly by a signal and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.reap()

    def kill(self) -> None:
        self.process.kill()
        self.reap()

    def reap(self) -> int:
        """Wait for its end; its exit code."""
        code = self.process.wait(STOP_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._log.close()
        return code


class NodeProcesses:
    """Nodes of one test; whatever they leave running is ended and named."""

    def __init__(self, root: Path, models: Path) -> None:
        self.root = root
        self.models = models
        self.nodes: list[NodeProcess] = []

    def start(
        self, name: str, *options: str, ports: tuple[int, int] = (0, 0), namespace: str = ""
    ) -> NodeProcess:
        node = NodeProcess(self.root, name, self.models, *options, ports=ports, namespace=namespace)
        self.nodes.append(node)
        return node

    def cluster(self, *names: str, models: Path | None = None) -> list[NodeProcess]:
        """Nodes joined by invites into one cluster; each with its own models below `models`."""
        nodes: list[NodeProcess] = []
        for name in names:
            if models is not None:
                self.models = models / name
            nodes.append(self.start(name))
        for node in nodes:
            node.wait_ready()
        for other in nodes[1:]:
            code = nodes[0].json("cluster", "invite")["items"][0]["code"]
            run = other.cli("cluster", "join", code, "--peer", nodes[0].cluster_address)
            assert run.returncode == 0, run.stderr
        return nodes

    def close(self) -> None:
        running = [node for node in self.nodes if node.process.poll() is None]
        for node in running:
            node.process.send_signal(signal.SIGTERM)
        for node in running:
            node.reap()
        for process in self.processes():
            process.kill()

    def processes(self) -> list[psutil.Process]:
        """Every live process that names this test's directory."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            try:
                if str(self.root) in " ".join(process.cmdline()) and process.pid != os.getpid():
                    found.append(process)
            except psutil.Error:
                continue
        return found


def wait_for(holds: Any, what: str, seconds: float = 20.0) -> Any:
    """Poll from outside a process until `holds()` is true, and return what it gave."""
    deadline = time.monotonic() + seconds
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)
