"""An instance that has lost a node: where it goes instead, or why it stays and waits."""

from msgspec.structs import replace

from node.core.decide import Decided, decide
from node.core.facts import Facts
from node.core.follow_up import REPLACE_SECONDS, Memo, follow_up
from node.core.instance_status import status
from node.core.replacement import REFILL_SECONDS, REPLACEMENTS_MAX, replacement
from node.core.telling import in_words
from node.core.work_plan import LocalRunner, StartRunner, StopRunner, plan
from node.model.command import PlaceInstance, Wish
from node.model.event import (
    InstanceReplaced,
    InstanceStranded,
    NodeLost,
    NodeReturned,
    RunnerChanged,
)
from node.model.ids import InstanceId, NodeId, RunnerId
from node.model.instance import Instance, RunnerPhase
from node.model.register import RunnerProgress
from node.model.state import State
from tests.fakes.fleet import GIB, MIB, card, counted, fleet, fold, request, runner

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
MODEL = card((GIB // 4,) * 8, kv_per_token=1024, embedding_bytes=MIB)
ROOM = {"a": 8 * GIB, "b": 12 * GIB, "c": 10 * GIB}
LOST = NodeLost(node=B, reason="no answer on any link")


class Cluster:
    """Three nodes that hold the model; it was placed by a wish, and `b` is lost."""

    def __init__(self, wish: Wish | None = None, lost: NodeLost = LOST) -> None:
        self.state, self.facts = fleet(ROOM, MODEL)
        self.ids = counted()
        command = PlaceInstance(model=MODEL.model, wish=wish or Wish())
        made = decide(self.state, request(command), self.facts, self.ids)
        assert isinstance(made, Decided), made
        self.state = fold(self.state, *made.events, lost)
        (self.first,) = self.state.instances.values()

    @property
    def instance(self) -> Instance:
        (living,) = [each for each in self.state.instances.values() if not each.removing]
        return living

    def look(self) -> InstanceReplaced | InstanceStranded | None:
        found = replacement(self.state, self.instance, self.facts, self.ids)
        if found is not None:
            self.state = fold(self.state, found)
        return found

    def holds_not(self, node: NodeId) -> None:
        self.facts = replace(
            self.facts, held={key: held for key, held in self.facts.held.items() if key != node}
        )


def test_it_is_placed_anew_on_a_node_that_holds_the_files() -> None:
    cluster = Cluster()
    assert cluster.first.nodes == (B,), "the one with the most room"
    found = cluster.look()
    assert isinstance(found, InstanceReplaced)
    assert found.by.nodes == (C,)
    assert (found.by.replaces, found.by.replacements) == (cluster.first.instance, 1)
    assert found.by.wish == cluster.first.wish
    assert cluster.state.instances[cluster.first.instance].removing
    assert "b is lost" in found.reason


def test_nodes_without_the_files_are_passed_over() -> None:
    cluster = Cluster()
    cluster.holds_not(C)
    found = cluster.look()
    assert isinstance(found, InstanceReplaced)
    assert found.by.nodes == (A,)


def test_where_nothing_fits_it_is_said_once_with_the_numbers() -> None:
    cluster = Cluster()
    for node in (A, C):
        cluster.holds_not(node)
    found = cluster.look()
    assert isinstance(found, InstanceStranded)
    assert found.failure.message
    assert cluster.look() is None
    shown = status(cluster.state, cluster.first.instance, {})
    assert shown.word == "DEGRADED"
    assert shown.failure is not None
    assert found.failure.message in shown.failure.message


def test_named_nodes_are_kept_to_unless_always_is_asked() -> None:
    named = Cluster(Wish(nodes=(A, B)))
    stranded = named.look()
    assert isinstance(stranded, InstanceStranded)
    assert stranded.failure.code == "nodes_named"
    assert "--restart always" in stranded.failure.remedy
    always = Cluster(Wish(nodes=(A, B), restart="always"))
    moved = always.look()
    assert isinstance(moved, InstanceReplaced)
    assert B not in moved.by.nodes


def test_what_the_instance_holds_on_the_nodes_that_are_left_counts_as_free() -> None:
    cluster = Cluster(Wish(nodes=(A, B), restart="always"))
    cluster.holds_not(C)
    shard = next(shard for shard in cluster.first.shards if shard.node == A)
    machine = replace(cluster.facts.machines[A], memory_bytes_available=2 * GIB)
    held = RunnerProgress(runner=shard.runner, memory_bytes=4 * GIB)
    machines = {**cluster.facts.machines, A: machine}
    cluster.facts = replace(cluster.facts, machines=machines)
    assert isinstance(
        replacement(cluster.state, cluster.first, cluster.facts, cluster.ids), InstanceStranded
    )
    cluster.facts = replace(cluster.facts, runners={shard.runner: held})
    found = cluster.look()
    assert isinstance(found, InstanceReplaced)
    assert found.by.nodes == (A,)


def test_a_run_of_replacements_has_an_end_and_time_gives_them_back() -> None:
    cluster = Cluster()
    for count in range(1, REPLACEMENTS_MAX + 1):
        found = cluster.look()
        assert isinstance(found, InstanceReplaced)
        assert found.by.replacements == count
        cluster.state = fold(
            cluster.state,
            *(NodeReturned(node=node) for node in cluster.state.nodes),
            NodeLost(node=found.by.nodes[0], reason="r"),
        )
    stranded = cluster.look()
    assert isinstance(stranded, InstanceStranded)
    assert stranded.failure.code == "replacements_used_up"
    cluster.facts = replace(cluster.facts, now_wall=cluster.facts.now_wall + REFILL_SECONDS)
    again = cluster.look()
    assert isinstance(again, InstanceReplaced)
    assert again.by.replacements == 1


def test_it_is_replaced_once_whoever_says_so_again() -> None:
    cluster = Cluster()
    found = cluster.look()
    assert isinstance(found, InstanceReplaced)
    other = replace(found, by=replace(found.by, instance=InstanceId("i-99999999")))
    assert fold(cluster.state, other).instances.keys() == cluster.state.instances.keys()


def looks(state: State, *moments: float) -> list[tuple[InstanceId, ...]]:
    memo = Memo()
    found: list[tuple[InstanceId, ...]] = []
    for now in moments:
        made = follow_up(state, now, memo)
        memo = made.memo
        found.append(made.stranded)
    return found


def test_another_place_is_looked_for_after_a_while_and_then_from_time_to_time() -> None:
    cluster = Cluster()
    key, wait = cluster.first.instance, REPLACE_SECONDS
    moments = (0.0, wait - 0.1, wait, wait + 1, 2 * wait)
    assert looks(cluster.state, *moments) == [(), (), (key,), (), (key,)]


def test_never_means_neither_another_place_nor_a_restart() -> None:
    cluster = Cluster(Wish(restart="never"))
    assert looks(cluster.state, 0.0, 100.0) == [(), ()]
    (shard,) = cluster.first.shards
    failed = runner("b", RunnerPhase.FAILED, key=cluster.first.instance)
    failed = replace(failed, runner=shard.runner)
    back = fold(cluster.state, NodeReturned(node=B), RunnerChanged(runner=failed))
    assert follow_up(back, 100.0, Memo()).events == ()


def test_a_node_that_was_stopped_in_order_is_not_called_lost() -> None:
    cluster = Cluster(lost=NodeLost(node=B, reason="it was stopped", stopped=True))
    shown = status(cluster.state, cluster.first.instance, {})
    assert shown.failure is not None
    assert shown.failure.code == "node_stopped"
    assert cluster.state.nodes[B].stopped
    back = fold(cluster.state, NodeReturned(node=B))
    assert not back.nodes[B].stopped


def test_runners_start_once_those_of_what_they_replace_have_ended() -> None:
    cluster = Cluster(Wish(nodes=(A, B), restart="always"))
    cluster.holds_not(C)
    found = cluster.look()
    assert isinstance(found, InstanceReplaced)
    shard = next(shard for shard in cluster.first.shards if shard.node == A)
    record = replace(
        runner("a", RunnerPhase.READY, key=cluster.first.instance), runner=shard.runner
    )
    local: dict[RunnerId, LocalRunner] = {shard.runner: LocalRunner(record=record)}
    kinds = [type(chore) for chore in plan(cluster.state, A, local)]
    assert StopRunner in kinds
    assert StartRunner not in kinds
    local = {shard.runner: LocalRunner(record=record, ended=True)}
    assert StartRunner in [type(chore) for chore in plan(cluster.state, A, local)]


def test_the_facts_of_a_cluster_without_the_model_say_so() -> None:
    cluster = Cluster()
    cluster.facts = Facts()
    found = cluster.look()
    assert isinstance(found, InstanceStranded)
    assert found.failure.code == "model_not_found"


def test_a_log_says_in_words_what_became_of_an_instance() -> None:
    cluster = Cluster()
    before, first = cluster.state, cluster.first.instance
    placed = cluster.look()
    assert placed is not None
    (living,) = [key for key in cluster.state.instances if key != first]
    assert in_words(before, placed) == f"{first} is placed anew as {living} on c: b is lost"
    waiting = Cluster()
    waiting.holds_not(A)
    waiting.holds_not(C)
    stranded = waiting.look()
    assert stranded is not None
    words = in_words(waiting.state, stranded)
    assert words.startswith(f"{first} has lost a node and is not placed anew: ")
    assert "InstanceStranded" not in words
    assert len(words.rpartition("anew: ")[2]) > 20
