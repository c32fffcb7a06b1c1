"""What the master does by itself: finish stops, and restart what failed, within a budget."""

from node.core.follow_up import (
    REFILL_SECONDS,
    REPLACE_SECONDS,
    RETELL_SECONDS,
    RETRY_SECONDS,
    Memo,
    follow_up,
)
from node.model.errors import Failure
from node.model.event import (
    Event,
    InstancePlaced,
    InstanceRemoved,
    InstanceStopping,
    NodeAdmitted,
    NodeLost,
    NodeReturned,
    NodeRevoked,
    RunnerChanged,
    RunnerRestartRequested,
)
from node.model.ids import InstanceId, NodeId
from node.model.instance import RunnerPhase
from node.model.state import State
from tests.fakes.fleet import fold, instance, runner

I1 = InstanceId("i-00000001")
B = NodeId("b")
FAILED, READY = RunnerPhase.FAILED, RunnerPhase.READY
STOPPED, STOPPING = RunnerPhase.STOPPED, RunnerPhase.STOPPING


class Master:
    """A master that looks at the state and writes what it is told to."""

    def __init__(self, *nodes: str) -> None:
        admitted = [NodeAdmitted(node=NodeId(n), name=n, admitted_by=NodeId("a")) for n in nodes]
        self.state = fold(State(), *admitted, InstancePlaced(instance=instance(nodes)))
        self.memo = Memo()
        self.wake_at: float | None = None

    def told(self, *events: Event) -> None:
        self.state = fold(self.state, *events)

    def report(self, name: str, phase: RunnerPhase, attempt: int = 1) -> None:
        failure = Failure(code="x", message="it broke") if phase is FAILED else None
        self.told(RunnerChanged(runner=runner(name, phase, attempt=attempt, failure=failure)))

    def look(self, now: float) -> tuple[Event, ...]:
        found = follow_up(self.state, now, self.memo)
        self.memo, self.wake_at = found.memo, found.wake_at
        return found.events

    def act(self, now: float) -> tuple[Event, ...]:
        events = self.look(now)
        self.told(*events)
        return events


def test_a_stopping_instance_goes_once_all_its_runners_are_over() -> None:
    master = Master("a", "b")
    master.report("a", STOPPED)
    master.told(InstanceStopping(instance=I1))
    assert master.look(0) == (), "b has not reported anything yet"
    master.report("b", STOPPING)
    assert master.look(0) == ()
    master.report("b", FAILED)
    removed = InstanceRemoved(instance=I1, reason="stopped")
    assert master.look(0) == (removed,)
    assert master.look(1) == (), "offered already"
    assert master.wake_at == RETELL_SECONDS
    assert master.look(RETELL_SECONDS) == (removed,), "it got lost on its way"
    master.told(removed)
    assert master.look(2) == ()
    assert master.memo == Memo()


def test_the_runners_of_lost_and_removed_nodes_count_as_over() -> None:
    master = Master("a", "b", "c")
    master.told(InstanceStopping(instance=I1), NodeLost(node=B, reason="r"))
    master.told(NodeRevoked(node=NodeId("c"), reason="r"))
    master.report("a", STOPPED)
    assert master.look(0) == (InstanceRemoved(instance=I1, reason="stopped"),)


def test_an_instance_on_a_node_that_was_removed_is_stopped_once() -> None:
    master = Master("a", "b")
    master.told(NodeRevoked(node=B, reason="r"))
    assert master.look(0) == (InstanceStopping(instance=I1),)
    assert master.look(1) == ()
    master.told(InstanceStopping(instance=I1))
    master.report("a", STOPPED)
    assert master.look(2) == (InstanceRemoved(instance=I1, reason="stopped"),)


def test_a_failed_runner_restarts_the_whole_instance_after_a_back_off() -> None:
    master = Master("a", "b")
    master.report("a", READY)
    master.report("b", FAILED)
    assert master.look(10.0) == ()
    assert master.wake_at == 10.0 + RETRY_SECONDS[0]
    (restart,) = master.look(10.0 + RETRY_SECONDS[0])
    assert isinstance(restart, RunnerRestartRequested)
    assert (restart.instance, restart.attempt) == (I1, 2)
    assert restart.reason == "restart 1 of 3 after runner r-b on b ended: it broke"
    assert master.look(20.0) == (), "asked for already"
    master.told(restart)
    assert master.look(21.0) == (), "the failure is of the attempt before"
    assert master.wake_at is None


def test_a_restart_that_got_lost_on_its_way_is_asked_for_again() -> None:
    master = Master("a")
    master.report("a", FAILED)
    master.look(0.0)
    (restart,) = master.look(RETRY_SECONDS[0])
    assert master.wake_at == RETRY_SECONDS[0] + RETELL_SECONDS
    assert master.look(RETELL_SECONDS) == ()
    assert master.look(RETRY_SECONDS[0] + RETELL_SECONDS) == (restart,)
    master.told(restart)
    master.report("a", FAILED, attempt=2)
    now = RETRY_SECONDS[0] + RETELL_SECONDS + 1
    assert master.look(now) == ()
    assert master.wake_at == now + RETRY_SECONDS[1]


def test_after_three_restarts_it_stays_failed_until_a_person_acts() -> None:
    master = Master("a")
    now = 0.0
    for number, pause in enumerate(RETRY_SECONDS):
        master.report("a", FAILED, attempt=number + 1)
        assert master.act(now) == ()
        assert master.wake_at == now + pause
        now += pause
        assert len(master.act(now)) == 1
    master.report("a", FAILED, attempt=4)
    assert master.look(now + 1000) == ()
    assert master.wake_at is None
    asked = RunnerRestartRequested(instance=I1, attempt=5, reason="asked for")
    master.told(asked)
    assert master.look(now + 1001) == ()
    master.report("a", FAILED, attempt=5)
    assert master.look(now + 1002) == ()
    assert master.wake_at == now + 1002 + RETRY_SECONDS[0]


def used_up_one() -> Master:
    master = Master("a")
    master.report("a", FAILED)
    master.act(0.0)
    assert len(master.act(RETRY_SECONDS[0])) == 1
    master.report("a", READY, attempt=2)
    master.act(10.0)
    return master


def test_being_ready_for_long_gives_the_restarts_back() -> None:
    master = used_up_one()
    master.act(10.0 + REFILL_SECONDS / 2)
    master.report("a", FAILED, attempt=2)
    now = 10.0 + REFILL_SECONDS
    master.look(now)
    assert master.wake_at == now + RETRY_SECONDS[0]


def test_being_ready_for_a_moment_does_not() -> None:
    master = used_up_one()
    master.report("a", FAILED, attempt=2)
    now = 9.0 + REFILL_SECONDS
    master.look(now)
    assert master.wake_at == now + RETRY_SECONDS[1]


def test_a_restart_waits_until_the_lost_node_is_back_and_its_budget_is_whole() -> None:
    master = Master("a", "b")
    master.report("a", FAILED)
    master.act(0.0)
    master.act(RETRY_SECONDS[0])
    master.report("a", FAILED, attempt=2)
    master.told(NodeLost(node=B, reason="r"))
    assert master.look(50.0) == ()
    assert master.wake_at == 50.0 + REPLACE_SECONDS
    master.told(NodeReturned(node=B))
    assert master.look(60.0) == ()
    assert master.wake_at == 60.0 + RETRY_SECONDS[0]


def test_a_runner_that_stopped_unasked_is_started_again() -> None:
    master = Master("a")
    master.report("a", STOPPED)
    master.look(0.0)
    (restart,) = master.look(RETRY_SECONDS[0])
    assert isinstance(restart, RunnerRestartRequested)
    assert restart.reason.endswith("it is stopped")


def test_a_failure_that_clears_by_itself_is_forgotten() -> None:
    master = Master("a")
    master.report("a", FAILED)
    master.look(0.0)
    master.report("a", RunnerPhase.LOADING)
    assert master.look(0.5) == ()
    assert master.wake_at is None


def test_a_new_master_begins_with_an_empty_memo_and_raises_the_attempt_further() -> None:
    master = Master("a")
    master.report("a", FAILED, attempt=4)
    master.look(0.0)
    (restart,) = master.look(RETRY_SECONDS[0])
    assert isinstance(restart, RunnerRestartRequested)
    assert restart.attempt == 5
