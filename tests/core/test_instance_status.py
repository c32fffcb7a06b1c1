"""One word for an instance, from the phases of its runners."""

import pytest

from node.core.instance_status import InstanceStatus, status
from node.model.errors import Failure
from node.model.event import (
    InstancePlaced,
    InstanceStopping,
    NodeAdmitted,
    NodeLost,
    NodeRevoked,
    RunnerChanged,
    RunnerRestartRequested,
)
from node.model.ids import InstanceId, NodeId
from node.model.instance import RunnerPhase
from node.model.register import MachineFigures, Register, RunnerFigures, RunnerProgress
from node.model.state import State
from tests.fakes.fleet import figures, fold, instance, progress, runner

I1 = InstanceId("i-00000001")
A, B = NodeId("a"), NodeId("b")


def placed(*phases: RunnerPhase | None) -> State:
    """An instance with a stage on each node, their runners in the given phases."""
    names = ("a", "b", "c")[: len(phases)]
    admitted = [NodeAdmitted(node=NodeId(n), name=f"mac-{n}", admitted_by=A) for n in names]
    changes = [
        RunnerChanged(runner=runner(name, phase))
        for name, phase in zip(names, phases, strict=True)
        if phase is not None
    ]
    return fold(State(), *admitted, InstancePlaced(instance=instance(names)), *changes)


def reported(**runners: RunnerProgress) -> dict[tuple[NodeId, str], Register]:
    return {
        (NodeId(name), RunnerFigures.__name__): Register(
            node=NodeId(name), incarnation=1, sequence=1, value=RunnerFigures(runners=(done,))
        )
        for name, done in runners.items()
    }


WORDS = {
    RunnerPhase.STARTING: "PREPARING",
    RunnerPhase.CONNECTING: "CONNECTING",
    RunnerPhase.LOADING: "LOADING",
    RunnerPhase.WARMING_UP: "WARMING UP",
    RunnerPhase.READY: "READY",
    RunnerPhase.STOPPING: "DEGRADED",
    RunnerPhase.STOPPED: "DEGRADED",
    RunnerPhase.FAILED: "FAILED",
}


@pytest.mark.parametrize("phase", list(RunnerPhase), ids=lambda phase: phase.value)
def test_every_phase_has_its_word(phase: RunnerPhase) -> None:
    found = status(placed(phase), I1, {})
    assert found.word == WORDS[phase]
    assert found.ready == (phase is RunnerPhase.READY)
    assert found.layers_total == 10


def test_nothing_reported_yet_is_preparing() -> None:
    assert status(placed(None), I1, {}) == InstanceStatus(word="PREPARING", layers_total=10)


@pytest.mark.parametrize(
    ("phases", "word", "detail"),
    [
        ((RunnerPhase.READY, None), "PREPARING", "on mac-b"),
        ((RunnerPhase.CONNECTING, RunnerPhase.READY), "CONNECTING", "on mac-a"),
        ((RunnerPhase.WARMING_UP, RunnerPhase.READY), "WARMING UP", "on mac-a"),
        ((RunnerPhase.READY, RunnerPhase.READY), "READY", ""),
    ],
)
def test_the_least_advanced_runner_gives_the_word(
    phases: tuple[RunnerPhase | None, ...], word: str, detail: str
) -> None:
    found = status(placed(*phases), I1, {})
    assert (found.word, found.detail) == (word, detail)


def test_loading_counts_the_layers_of_all_stages() -> None:
    state = placed(RunnerPhase.WARMING_UP, RunnerPhase.LOADING, RunnerPhase.LOADING)
    found = status(state, I1, reported(b=progress("b", layers_loaded=4)))
    assert (found.word, found.detail) == ("LOADING", "14/30 layers")
    assert (found.layers_loaded, found.layers_total) == (14, 30)


def test_more_layers_than_the_stage_has_are_not_believed() -> None:
    state = placed(RunnerPhase.LOADING)
    found = status(state, I1, reported(a=progress("a", layers_loaded=99)))
    assert found.layers_loaded == 10


def test_a_ready_instance_that_generates_is_running() -> None:
    state = placed(RunnerPhase.READY)
    busy = status(state, I1, reported(a=progress("a", requests_running=1)))
    assert (busy.word, busy.ready, busy.layers_loaded) == ("RUNNING", True, 10)
    idle = status(state, I1, reported(a=progress("other", requests_running=1)))
    assert (idle.word, idle.ready) == ("READY", True)


def test_a_register_of_another_kind_under_that_name_is_not_believed() -> None:
    value: MachineFigures = figures(0)
    odd = Register(node=A, incarnation=1, sequence=1, value=value)
    assert status(placed(RunnerPhase.READY), I1, {(A, "RunnerFigures"): odd}).word == "READY"


def test_a_failed_runner_is_told_with_its_cause_and_node() -> None:
    cause = Failure(code="out_of_memory", message="killed", remedy="less")
    state = placed(RunnerPhase.READY, RunnerPhase.STARTING)
    state = fold(state, RunnerChanged(runner=runner("b", RunnerPhase.FAILED, failure=cause)))
    found = status(state, I1, {})
    assert (found.word, found.detail, found.ready) == ("FAILED", "on mac-b", False)
    assert found.failure == Failure(
        code="out_of_memory", message="killed", remedy="less", node="mac-b"
    )


def test_a_failure_that_names_its_node_is_told_as_it_is() -> None:
    cause = Failure(code="x", message="m", node="elsewhere")
    state = fold(placed(None), RunnerChanged(runner=runner("a", RunnerPhase.FAILED, failure=cause)))
    assert status(state, I1, {}).failure == cause


def test_a_failure_of_an_earlier_attempt_is_over() -> None:
    restart = RunnerRestartRequested(instance=I1, attempt=2, reason="r")
    state = fold(placed(RunnerPhase.FAILED), restart)
    assert status(state, I1, {}).word == "PREPARING"


def test_a_lost_node_comes_before_the_failures_that_follow_from_it() -> None:
    state = placed(RunnerPhase.FAILED, RunnerPhase.READY)
    found = status(fold(state, NodeLost(node=B, reason="no answer")), I1, {})
    assert (found.word, found.detail) == ("DEGRADED", "lost mac-b (1 of 2)")
    assert found.failure is not None
    assert found.failure.message.startswith("mac-b is lost: no answer; another place")
    silent = status(fold(state, NodeLost(node=B, reason="")), I1, {})
    assert silent.failure is not None
    assert silent.failure.message == (
        "mac-b is lost: it is not heard; another place is looked for unless it is back soon"
    )


def test_a_removed_node_degrades_its_instances() -> None:
    state = fold(placed(None, None), NodeRevoked(node=B, reason="sold"))
    found = status(state, I1, {})
    assert (found.word, found.detail) == ("DEGRADED", "lost mac-b (1 of 2)")
    assert found.failure is not None
    assert "sold" in found.failure.message


def test_a_runner_that_ended_unasked_degrades() -> None:
    found = status(placed(RunnerPhase.READY, RunnerPhase.STOPPED), I1, {})
    assert (found.word, found.detail) == ("DEGRADED", "stopped on mac-b")
    assert not found.ready


def test_an_instance_that_is_removed_counts_its_stopped_runners() -> None:
    phases = (RunnerPhase.STOPPED, RunnerPhase.STOPPING, RunnerPhase.FAILED)
    state = fold(placed(*phases), InstanceStopping(instance=I1))
    found = status(state, I1, {})
    assert (found.word, found.detail) == ("STOPPING", "2/3 runners stopped")
    alone = fold(placed(RunnerPhase.STOPPING), InstanceStopping(instance=I1))
    assert status(alone, I1, {}).detail == ""


def test_an_instance_that_is_gone_is_stopping() -> None:
    assert status(State(), I1, {}) == InstanceStatus(word="STOPPING", detail="gone")
