"""Three real nodes on a network of their own, and what is done to them."""

import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
import psutil

from tests.chaos.schedule import NODES, Fault, Kind
from tests.fakes.http_call import Answer, CallFailed, call
from tests.fakes.lan import Lan
from tests.fakes.network import reason_to_skip
from tests.fakes.node_process import NodeProcess, NodeProcesses, wait_for

NAMES = ("one", "two", "three")
PORT, API_PORT = 52416, 52415
JOIN_SECONDS = 60.0
MODEL, SPLIT_MODEL = "smollm2-135m-instruct", "smollm2-135m-split"
"""The same files under two names: one runs on one node, the other on two."""


class Affliction(msgspec.Struct):
    """A node under a fault, on the monotonic clock; `end` is infinite while it lasts."""

    node: int
    kind: Kind
    begin: float
    end: float = float("inf")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Field:
    """The cluster; threads ask it for nodes, one thread afflicts them."""

    def __init__(self, root: Path, models: Path, say: Callable[[str], None]) -> None:
        self.processes = NodeProcesses(root, models)
        self.no_network = reason_to_skip()
        """Why there is no network of its own; empty where there is one."""
        self.lan = None if self.no_network else Lan(NODES, "chaos")
        self.nodes: list[NodeProcess] = []
        self.afflictions: list[Affliction] = []
        self.skipped = 0
        self.trouble: list[str] = []
        self._say = say
        self._busy: set[int] = set()
        self._lock = threading.Lock()
        self._ports = [(PORT, API_PORT)] * NODES
        if self.lan is None:
            self._ports = [(_free_port(), _free_port()) for _ in range(NODES)]

    # -- beginning and end -------------------------------------------------------------------------

    def build(self) -> None:
        """Start the nodes and make one cluster of them."""
        if self.lan is not None:
            self.lan.build()
        self.nodes = [self._start(number) for number in range(NODES)]
        for node in self.nodes:
            node.wait_ready()
        host = self.lan.host(0) if self.lan is not None else "127.0.0.1"
        peer = f"{host}:{self._ports[0][0]}"
        for node in self.nodes[1:]:
            code = self.nodes[0].json("cluster", "invite")["items"][0]["code"]
            joined = node.cli("cluster", "join", code, "--peer", peer, "--timeout", "60")
            if joined.returncode != 0:
                raise AssertionError(f"{node.name} can't join: {joined.stderr}")

    def _start(self, number: int) -> NodeProcess:
        namespace = self.lan.names[number] if self.lan is not None else ""
        return self.processes.start(NAMES[number], ports=self._ports[number], namespace=namespace)

    def remove(self) -> None:
        """Leave nothing, whatever state it is in."""
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.send_signal(signal.SIGCONT)
        self.processes.close()
        if self.lan is not None:
            self.lan.remove()
        shutil.rmtree(self.processes.root, ignore_errors=True)

    # -- asking ------------------------------------------------------------------------------------

    def place(self, number: int) -> tuple[str, str]:
        """Where a node's API is: namespace and address."""
        namespace = self.lan.names[number] if self.lan is not None else ""
        return namespace, f"127.0.0.1:{self._ports[number][1]}"

    def ask(self, number: int, path: str, seconds: float = 10.0) -> Answer:
        """GET from a node."""
        return call(self.place(number), "GET", path, seconds=seconds)

    def state(self, number: int, seconds: float = 10.0) -> dict[str, Any]:
        """A node's state."""
        found: dict[str, Any] = self.ask(number, "/v1/cluster/state?exact=1", seconds).item
        return found

    def term(self) -> int:
        """The highest term that any node is in: each change of master raises it."""
        return max(self.state(number)["session"][0] for number in range(NODES))

    def router(self, number: int) -> dict[str, Any]:
        """A node's own figures about its log; empty before it has any."""
        registers = self.ask(number, f"/v1/cluster/nodes/{self.nodes[number].node}").item[
            "registers"
        ]
        found: dict[str, Any] = registers.get("RouterFigures", {})
        return found

    def master(self) -> int:
        """Which node masters, as any that answers says; 0 while none does."""
        ids = [node.node for node in self.nodes]
        for number in range(NODES):
            try:
                master = self.ask(number, "/v1/cluster", 1.0).item["master"]
            except (CallFailed, KeyError, ValueError):
                continue
            if master in ids:
                return ids.index(master)
        return 0

    def afflicted_seconds(self, node: int, begin: float, end: float) -> float:
        """For how long of that time the node was under a fault."""
        spans = [
            (max(begin, each.begin), min(end, each.end))
            for each in self.afflictions
            if each.node == node
        ]
        return sum(max(0.0, last - first) for first, last in spans)

    # -- faults ------------------------------------------------------------------------------------

    def perform(self, fault: Fault) -> threading.Thread | None:
        """Do it, and undo it in a thread of its own; None where the node is not well yet."""
        node = self.master() if fault.of_master else fault.node
        other = fault.other if fault.other != node else (node + 1) % NODES
        struck = set(range(NODES)) if fault.kind is Kind.POWER else {node}
        with self._lock:
            if struck & self._busy:
                self.skipped += 1
                return None
            self._busy |= struck
        thread = threading.Thread(
            target=self._run,
            args=(fault, node, other, struck),
            name=f"fault {fault.kind.value}",
            daemon=True,
        )
        thread.start()
        return thread

    def _run(self, fault: Fault, node: int, other: int, struck: set[int]) -> None:
        begin = time.monotonic()
        spans = [Affliction(each, fault.kind, begin) for each in sorted(struck)]
        self.afflictions += spans
        path = f" from {NAMES[other]}" if fault.kind in (Kind.PAIR, Kind.ONE_WAY) else ""
        who = ", ".join(NAMES[each] for each in sorted(struck))
        self._say(f"{fault.kind.value}: {who}{path}, {fault.seconds:.1f} s")
        try:
            self._strike(fault, node, other)
        except Exception as error:  # noqa: BLE001 - the run goes on and fails at its end
            self.trouble.append(f"{fault.kind.value} of {NAMES[node]}: {error!r}")
        finally:
            for span in spans:
                span.end = time.monotonic()
            with self._lock:
                self._busy -= struck

    def _strike(self, fault: Fault, node: int, other: int) -> None:
        match fault.kind:
            case Kind.KILL:
                self._restart((node,), fault.seconds, lambda victim: victim.kill())
            case Kind.POWER:
                self._restart(range(NODES), fault.seconds, lambda victim: victim.kill())
            case Kind.RESTART:
                self._restart((node,), fault.seconds, self._stop_cleanly)
            case Kind.STOP:
                self._freeze([self.nodes[node].process.pid], fault.seconds)
            case Kind.KILL_RUNNER:
                for pid in self.nodes[node].runner_ids().values():
                    _signal(pid, signal.SIGKILL)
            case Kind.STOP_RUNNER:
                self._freeze(list(self.nodes[node].runner_ids().values()), fault.seconds)
            case Kind.CABLE | Kind.ALONE | Kind.PAIR | Kind.ONE_WAY:
                self._disturb_network(fault, node, other)

    def _disturb_network(self, fault: Fault, node: int, other: int) -> None:
        assert self.lan is not None
        if fault.kind is Kind.CABLE:
            self.lan.pull_cable(node)
            time.sleep(fault.seconds)
            self.lan.plug_in(node)
            return
        paths = {
            Kind.ALONE: [pair for pair in permutations(range(NODES), 2) if node in pair],
            Kind.PAIR: [(node, other), (other, node)],
            Kind.ONE_WAY: [(other, node)],
        }[fault.kind]
        with self._lock:
            self.lan.cut(paths)
        time.sleep(fault.seconds)
        with self._lock:
            self.lan.mend(paths)

    def _restart(
        self, numbers: Iterable[int], seconds: float, end: Callable[[NodeProcess], object]
    ) -> None:
        for number in numbers:
            end(self.nodes[number])
        time.sleep(seconds)
        self.start_again(*numbers)

    def start_again(self, *numbers: int) -> None:
        """Start nodes that have ended, on their state; returns when they are ready."""
        for number in numbers:
            self.nodes[number] = self._start(number)
        for number in numbers:
            self.nodes[number].wait_ready()

    def _stop_cleanly(self, node: NodeProcess) -> None:
        code = node.stop()
        if code != 0:
            self.trouble.append(f"{node.name} ended with {code} when it was asked to stop")

    def _freeze(self, pids: list[int], seconds: float) -> None:
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        time.sleep(seconds)
        for pid in pids:
            _signal(pid, signal.SIGCONT)

    def heal(self) -> None:
        """The network is whole; every node runs (the faults' own threads have ended)."""
        if self.lan is not None:
            self.lan.heal()
        wait_for(self._all_answer, "every node to answer", seconds=60)

    def _all_answer(self) -> bool:
        try:
            return all(self.ask(number, "/health").status == 200 for number in range(NODES))
        except CallFailed:
            return False

    def live_runners(self) -> list[psutil.Process]:
        """Every process of this run that is no node."""
        nodes = {node.process.pid for node in self.nodes}
        return [each for each in self.processes.processes() if each.pid not in nodes]


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
