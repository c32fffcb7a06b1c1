"""From the loss of the master to the next accepted command; what a restart and a bad link cost.

Three real nodes on a network of their own (without namespaces only what needs none is measured).
Wall clock: the load of the machine is printed beside it.
"""

import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Self

import psutil

from tests.benchmarks.measure import line
from tests.chaos.field import MODEL, NAMES, Field
from tests.chaos.load import QUESTIONS, Load
from tests.chaos.schedule import NODES
from tests.fakes.http_call import Answer, CallFailed, call
from tests.fakes.model_files import convert_embedded_model
from tests.fakes.node_process import wait_for

ROUNDS = 30
SETTLE_SECONDS = 30.0
FLAPS = 100
FLAPPING_SECONDS = 60.0


@contextlib.contextmanager
def cluster(*, model: bool = False) -> Generator[Field]:
    """Three nodes, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="exoctl-bench-", ignore_cleanup_errors=True) as folder:
        models = Path(folder) / "models"
        models.mkdir()
        if model:
            convert_embedded_model(models / MODEL)
        field = Field(Path(folder), models, lambda _: None)
        try:
            field.build()
            yield field
        finally:
            field.remove()


def ask(field: Field, number: int, *, cordoned: bool = False) -> Answer:
    """A command at a node; its answer."""
    command = {"type": "CordonNode", "node": field.nodes[number].node, "cordoned": cordoned}
    place = field.place(number)
    return call(place, "POST", "/v1/cluster/commands", command, seconds=40, timeout=30)


def accepted_after(field: Field, asked: int, strike: Callable[[], object]) -> float:
    """Seconds from the strike until a command, sent right after it, is accepted."""
    started = time.monotonic()
    strike()
    answer = ask(field, asked)
    if answer.status != 200:
        raise AssertionError(f"no command is accepted any more: {answer.body}")
    return time.monotonic() - started


def is_settled(field: Field) -> bool:
    """Everybody is there, and where the others are."""
    try:
        routers = [field.router(number) for number in range(NODES)]
        state = field.state(0)
    except (CallFailed, KeyError, ValueError):
        return False
    places = {(each.get("index_applied"), each.get("state_hash")) for each in routers}
    lost = any(node["lost"] for node in state["nodes"].values())
    return len(places) == 1 and not lost and len(state["in_sync"]) == NODES


def settle(field: Field) -> None:
    """Wait until the cluster is whole."""
    wait_for(lambda: is_settled(field), "a whole cluster", seconds=SETTLE_SECONDS)


def measured(field: Field, strike: Callable[[int], object], undo: Callable[[int], object]) -> str:
    """Rounds of the same fault to whoever masters: median, 95 %, most."""
    values: list[float] = []
    for _ in range(ROUNDS):
        settle(field)
        master = field.master()
        asked = (master + 1) % NODES
        values.append(accepted_after(field, asked, lambda master=master: strike(master)))
        undo(master)
    values.sort()
    late = values[round(0.95 * len(values)) - 1]
    return f"{values[len(values) // 2]:.2f}, {late:.2f}, {values[-1]:.2f}"


def _step_down(field: Field, number: int) -> None:
    """What `exoctl master step-down` sends, at the master itself."""
    command = {"type": "StepDown"}
    answer = call(field.place(number), "POST", "/v1/cluster/commands", command, seconds=10)
    if answer.status != 200 or answer.item["type"] != "Accepted":
        raise AssertionError(f"no hand-over: {answer.body}")


def _end(field: Field, number: int) -> None:
    """Wait for the end of a node that was told to end, and start it again."""
    field.nodes[number].stop()
    field.start_again(number)


def measure_failover(field: Field) -> None:
    """Each way to lose a master."""

    def send(number: signal.Signals) -> Callable[[int], object]:
        return lambda victim: field.nodes[victim].process.send_signal(number)

    again: Callable[[int], object] = lambda number: _end(field, number)  # noqa: E731
    ways: list[tuple[str, Callable[[int], object], Callable[[int], object], str]] = [
        ("master killed", send(signal.SIGKILL), again, "p95 <= 1.5"),
        ("master frozen", send(signal.SIGSTOP), send(signal.SIGCONT), "p95 <= 4"),
        (
            "mastership handed over",
            lambda master: _step_down(field, master),
            lambda _: None,
            "p95 <= 0.3",
        ),
        ("master ended cleanly", send(signal.SIGTERM), again, "p95 <= 0.3"),
    ]
    lan = field.lan
    if lan is not None:
        ways.insert(2, ("master's cable pulled", lan.pull_cable, lan.plug_in, "p95 <= 4"))
    for name, strike, undo, limit in ways:
        line(f"{name}: s to the next command (n={ROUNDS})", measured(field, strike, undo), limit)


def measure_restarts(field: Field) -> None:
    """A restart of a node that does not master changes nothing; the master's own, only once."""
    followers = masters = 0
    for _ in range(5):
        settle(field)
        before = field.term()
        field.nodes[(field.master() + 1) % NODES].kill()
        field.start_again((field.master() + 1) % NODES)
        settle(field)
        followers += field.term() - before
        before = field.term()
        master = field.master()
        field.nodes[master].stop()
        field.start_again(master)
        settle(field)
        masters += field.term() - before
    line("master changes at 5 restarts of a follower", str(followers), "0")
    line("master changes at 5 restarts of the master", str(masters), "5")


class Steady:
    """Commands and chats from the master's node, and those that failed."""

    def __init__(self, field: Field, number: int) -> None:
        self.field, self.number = field, number
        self.load = Load(field, 0)
        self.commands = 0
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=each, daemon=True) for each in (self._command, self._chat)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _command(self) -> None:
        while not self._stop.wait(0.1):
            self.commands += 1
            try:
                answer = ask(self.field, self.number, cordoned=self.commands % 2 == 0)
            except CallFailed as error:
                self.failed.append(f"command: {error}")
                continue
            if answer.status != 200 or answer.item["type"] != "Accepted":
                self.failed.append(f"command: {answer.body}")

    def _chat(self) -> None:
        while not self._stop.wait(0.1):
            chat = self.load.chat(self.number, MODEL, QUESTIONS[0])
            if chat.failure:
                self.failed.append(f"chat: {chat.failure}")


def reset_link(field: Field, one: int, other: int) -> None:
    """Break every connection between two nodes at once."""
    assert field.lan is not None
    for near, far in ((one, other), (other, one)):
        subprocess.run(
            ["ip", "netns", "exec", field.lan.names[near], "ss", "-K", "dst", field.lan.host(far)],
            check=True, capture_output=True, timeout=10,
        )  # fmt: skip


def flap(field: Field, one: int, other: int) -> float:
    """Break and cut the path between two nodes, and mend it, again and again; seconds taken."""
    assert field.lan is not None
    paths = [(one, other), (other, one)]
    started = time.monotonic()
    for count in range(FLAPS):
        reset_link(field, one, other)
        field.lan.cut(paths)
        time.sleep(FLAPPING_SECONDS / FLAPS / 3)
        field.lan.mend(paths)
        time.sleep(max(0.0, started + (count + 1) * FLAPPING_SECONDS / FLAPS - time.monotonic()))
    return time.monotonic() - started


def measure_flaps(field: Field) -> None:
    """The link between the master, which is asked, and the node that runs the model."""
    settle(field)
    master = field.master()
    runs = (master + 1) % NODES
    node = field.nodes[master]
    node.cli("wait", "--for", f"model={MODEL}", "--timeout", "60")
    loaded = node.cli("load", MODEL, "--nodes", NAMES[runs], "--timeout", "90")
    if loaded.returncode != 0:
        raise AssertionError(loaded.stderr)
    before = field.term()
    with Steady(field, master) as steady:
        seconds = flap(field, master, runs)
    changes = field.term() - before
    line(f"{FLAPS} flaps in {seconds:.0f} s: master changes", str(changes), "0")
    asked = f"{steady.commands} commands, {len(steady.load.chats)} chats"
    line(f"  failed of {asked}", str(len(steady.failed)), "0")
    for each in steady.failed[:5]:
        print(f"    {each}", file=sys.stderr)


def run() -> None:
    """All of it."""
    with cluster() as field:
        measure_failover(field)
        measure_restarts(field)
    with cluster(model=True) as field:
        if field.lan is None:
            line("flaps of a link", "not measured", field.no_network)
        else:
            measure_flaps(field)
    line(
        "load of the machine (1 min), cores", f"{psutil.getloadavg()[0]:.1f}, {psutil.cpu_count()}"
    )
