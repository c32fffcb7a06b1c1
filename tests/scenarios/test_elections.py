"""Runs the scenarios in the text files beside this module, line by line.

nodes a b c          the cluster; `a` founds it, the others join
settle               wait until one masters, the others follow, and all states are equal
run 2                let seconds pass
write a hello        node a writes an event
kill a               its process ends, and everybody sees it
power off a          the same, and nobody sees it
start a
part a / b c         cut the network into groups, silently
cut a b              cut one link, silently
mend                 the network is whole again
hand over a          a steps down as planned
sleep a 60           a's machine slept for seconds
-> master b          one of the nodes named masters, and nobody else
-> masters 2         so many master
-> within 1.5        so many seconds have passed since the last fault, at most
-> state a: x, y     what a's state holds, in order
-> holds a: x, y     the same in any order
-> states equal
-> terms 2           the highest term
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from node.model.ids import NodeId
from tests.fakes.replica_cluster import ReplicaCluster

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


class Script:
    """One scenario on its way."""

    def __init__(self) -> None:
        self._cluster = ReplicaCluster("a")
        self._fault_at = 0.0
        self._actions: dict[str, Callable[[list[str]], None]] = {
            "nodes": self._nodes,
            "settle": lambda _: self._settle(),
            "run": lambda words: self._cluster.run(float(words[0])),
            "write": self._write,
            "kill": lambda words: self._fault(self._cluster.kill, words[0]),
            "power": lambda words: self._fault(self._cluster.power_off, words[1]),
            "start": lambda words: self._cluster.start(words[0]),
            "part": self._part,
            "cut": self._cut,
            "mend": lambda _: self._mend(),
            "hand": lambda words: self._fault(self._hand_over, words[1]),
            "sleep": self._sleep,
            "->": self._expect,
        }

    def line(self, line: str) -> None:
        """Do, or check, what a line says."""
        first, *words = line.split()
        self._actions[first](words)

    def _nodes(self, words: list[str]) -> None:
        self._cluster = ReplicaCluster(*words)

    def _settle(self) -> None:
        self._cluster.settle()

    def _write(self, words: list[str]) -> None:
        self._cluster.publish(words[0], " ".join(words[1:]))

    def _fault(self, fault: Callable[[str], None], name: str) -> None:
        self._fault_at = self._cluster.now
        fault(name)

    def _part(self, words: list[str]) -> None:
        self._fault_at = self._cluster.now
        self._cluster.part(*" ".join(words).split("/"))

    def _cut(self, words: list[str]) -> None:
        self._fault_at = self._cluster.now
        self._cluster.cut |= {(words[0], words[1]), (words[1], words[0])}

    def _mend(self) -> None:
        self._fault_at = self._cluster.now
        self._cluster.mend()

    def _hand_over(self, name: str) -> None:
        node = self._cluster.nodes[name]
        node.call(node.replica.step_down(self._cluster.now))

    def _sleep(self, words: list[str]) -> None:
        self._fault_at = self._cluster.now
        node = self._cluster.nodes[words[0]]
        node.call(node.replica.woke(self._cluster.now, float(words[1])))

    def _expect(self, words: list[str]) -> None:
        cluster = self._cluster
        kind, *rest = words
        if kind == "master":
            (master,) = cluster.masters()
            assert master in rest
        elif kind == "masters":
            assert len(cluster.masters()) == int(rest[0])
        elif kind == "within":
            assert cluster.now - self._fault_at <= float(rest[0])
        elif kind in ("state", "holds"):
            texts = " ".join(rest[1:])
            state = cluster.nodes[NodeId(rest[0].removesuffix(":"))].text()
            wanted = [text.strip() for text in texts.split(",")] if texts else []
            assert (state == wanted) if kind == "state" else sorted(state) == sorted(wanted)
        elif kind == "states":
            states = [node.text() for node in cluster.running()]
            assert all(state == states[0] for state in states)
        elif kind == "terms":
            assert max(node.replica.session.term for node in cluster.running()) == int(rest[0])
        else:
            raise AssertionError(f"nothing is expected by {kind!r}")


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    script = Script()
    checks = 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        checks += line.startswith("->")
        try:
            script.line(line)
        except AssertionError as failure:
            raise AssertionError(f"{path.name}:{number}: {line}: {failure}") from failure
    assert checks, "a scenario has to expect something"


def test_a_scenario_that_expects_the_wrong_thing_fails() -> None:
    script = Script()
    script.line("nodes a b")
    script.line("settle")
    with pytest.raises(AssertionError):
        script.line("-> master b")
    with pytest.raises(AssertionError):
        script.line("-> state a: something")
