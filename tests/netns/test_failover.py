"""Three real nodes on a switch: what the others do when one dies, freezes, or is cut off."""

import secrets
import signal
import time
from collections.abc import Generator
from itertools import permutations

import pytest

from tests.chaos.field import Field
from tests.chaos.schedule import NODES
from tests.fakes.http_call import CallFailed, call
from tests.fakes.node_process import wait_for
from tests.fakes.tools import missing

pytestmark = [pytest.mark.netns, pytest.mark.e2e]
PATIENCE_SECONDS = 30.0
UNNOTICED_SECONDS = 1.0
"""A node that is away for less has not founded a session of its own meanwhile."""


class Cluster:
    """Three nodes, and one of them to be struck."""

    def __init__(self, field: Field, *, of_master: bool) -> None:
        self.field = field
        self.master = field.master()
        self.victim = self.master if of_master else (self.master + 1) % NODES
        self.survivor = (self.victim + 1) % NODES if of_master else self.master
        self.session = field.state(self.survivor)["session"]
        self.accepted: set[str] = set()
        self.began = time.monotonic()

    def ask(self, number: int) -> None:
        """Have a command accepted, asked there, within the patience."""
        command_id = "c-" + secrets.token_hex(8)
        node = self.field.nodes[self.survivor].node
        command = {"type": "CordonNode", "node": node, "cordoned": secrets.randbelow(2) == 1}
        answer = call(
            self.field.place(number), "POST", "/v1/cluster/commands", command,
            seconds=PATIENCE_SECONDS + 10, timeout=PATIENCE_SECONDS, id=command_id,
        )  # fmt: skip
        assert answer.status == 200, answer.body
        assert answer.item["type"] == "Accepted", answer.item
        self.accepted.add(command_id)

    def check(self, *, of_master: bool) -> None:
        """All are one cluster again, with everything that was accepted, or a word about it; and
        the session is the one before, unless the master was struck.
        """
        wait_for(self._same_state, "one state on all nodes", seconds=PATIENCE_SECONDS)
        wait_for(self._all_told, "a word about all that was accepted", seconds=PATIENCE_SECONDS)
        state = self.field.state(self.survivor)
        assert not any(node["lost"] for node in state["nodes"].values())
        if not of_master:
            assert state["session"] == self.session

    def _all_told(self) -> bool:
        """What one side decided and the other did not is decided anew after they are one."""
        state = self.field.state(self.survivor)
        rejected = {rejection["command"] for rejection in state["rejections"]}
        answered = {id_ for chunk in (state["answers"], *state["answers_before"]) for id_ in chunk}
        return self.accepted <= answered | rejected

    def _same_state(self) -> bool:
        try:
            routers = [self.field.router(number) for number in range(NODES)]
            nodes = self.field.state(self.survivor)["nodes"]
        except (CallFailed, KeyError, ValueError):
            return False
        places = {(each.get("index_applied"), each.get("state_hash")) for each in routers}
        return len(places) == 1 and not any(node["lost"] for node in nodes.values())


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Generator[Field]:
    root = tmp_path_factory.mktemp("n")
    (root / "models").mkdir()
    made = Field(root, root / "models", lambda _: None)
    if made.no_network:
        missing(made.no_network)
    try:
        made.build()
        yield made
    finally:
        made.remove()


both = pytest.mark.parametrize("of_master", [True, False], ids=["master", "follower"])


@both
def test_a_killed_node_is_replaced_and_comes_back(field: Field, *, of_master: bool) -> None:
    cluster = Cluster(field, of_master=of_master)
    field.nodes[cluster.victim].kill()
    cluster.ask(cluster.survivor)
    field.start_again(cluster.victim)
    cluster.check(of_master=of_master)


@both
def test_a_frozen_node_holds_nobody_up(field: Field, *, of_master: bool) -> None:
    cluster = Cluster(field, of_master=of_master)
    process = field.nodes[cluster.victim].process
    process.send_signal(signal.SIGSTOP)
    try:
        cluster.ask(cluster.survivor)
    finally:
        process.send_signal(signal.SIGCONT)
    noticed = time.monotonic() - cluster.began > UNNOTICED_SECONDS
    cluster.check(of_master=of_master or noticed)


@both
def test_a_node_without_its_cable_holds_nobody_up(field: Field, *, of_master: bool) -> None:
    assert field.lan is not None
    cluster = Cluster(field, of_master=of_master)
    field.lan.pull_cable(cluster.victim)
    try:
        cluster.ask(cluster.survivor)
    finally:
        field.lan.plug_in(cluster.victim)
    noticed = time.monotonic() - cluster.began > UNNOTICED_SECONDS
    cluster.check(of_master=of_master or noticed)


@both
def test_both_sides_of_a_partition_decide_and_are_one_after(
    field: Field, *, of_master: bool
) -> None:
    assert field.lan is not None
    cluster = Cluster(field, of_master=of_master)
    paths = [pair for pair in permutations(range(NODES), 2) if cluster.victim in pair]
    field.lan.cut(paths)
    try:
        cluster.ask(cluster.survivor)
        cluster.ask(cluster.victim)
    finally:
        field.lan.mend(paths)
    cluster.check(of_master=True)


def test_a_link_that_is_cut_between_two_followers_changes_nothing(field: Field) -> None:
    assert field.lan is not None
    cluster = Cluster(field, of_master=True)
    one, two = ((cluster.master + step) % NODES for step in (1, 2))
    field.lan.cut([(one, two), (two, one)])
    try:
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            cluster.ask(one)
            cluster.ask(two)
    finally:
        field.lan.mend([(one, two), (two, one)])
    cluster.check(of_master=False)
