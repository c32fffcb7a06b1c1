import pytest

from node.core.runner_watch import RunnerLimits, RunnerWatch
from node.model.ids import RunnerId
from node.model.instance import RunnerPhase
from node.model.register import RunnerProgress

LIMITS = RunnerLimits()


def progress(*, layers: int = 0, steps: int = 0) -> RunnerProgress:
    return RunnerProgress(runner=RunnerId("r-00000001"), layers_loaded=layers, steps=steps)


def first_overdue(watch: RunnerWatch, begin: float, end: float) -> float | None:
    """Look every second, as a supervisor does; when it was first overdue."""
    moment = begin
    while moment <= end:
        if watch.overdue(moment, 1.0) is not None:
            return moment
        moment += 1.0
    return None


@pytest.mark.parametrize(
    ("phase", "limit"),
    [
        (RunnerPhase.STARTING, 60),
        (RunnerPhase.CONNECTING, 90),
        (RunnerPhase.WARMING_UP, 120),
        (RunnerPhase.STOPPING, 5),
        (RunnerPhase.FAILED, 5),
    ],
)
def test_each_phase_has_its_deadline(phase: RunnerPhase, limit: int) -> None:
    watch = RunnerWatch(LIMITS, 0, 0.0)
    watch.enter(phase, 0.0)
    assert first_overdue(watch, 0.0, 500.0) == limit + 1


def test_entering_a_phase_begins_its_deadline() -> None:
    watch = RunnerWatch(LIMITS, 0, 0.0)
    assert first_overdue(watch, 0.0, 50.0) is None
    watch.enter(RunnerPhase.CONNECTING, 50.0)
    assert first_overdue(watch, 51.0, 500.0) == 141.0


def test_loading_may_take_longer_the_more_bytes_there_are() -> None:
    watch = RunnerWatch(LIMITS, 5_000_000_000, 0.0)
    watch.enter(RunnerPhase.LOADING, 0.0)
    assert first_overdue(watch, 0.0, 500.0) == 161.0


def test_loading_goes_on_as_long_as_layers_come() -> None:
    watch = RunnerWatch(LIMITS, 0, 0.0)
    watch.enter(RunnerPhase.LOADING, 0.0)
    for layer in range(1, 9):
        assert first_overdue(watch, 50.0 * layer - 49, 50.0 * layer) is None
        watch.beat(progress(layers=layer), busy=False, now=50.0 * layer)
    assert first_overdue(watch, 401.0, 900.0) == 461.0


def test_an_idle_runner_that_beats_is_never_overdue() -> None:
    watch = RunnerWatch(LIMITS, 0, 0.0)
    watch.enter(RunnerPhase.READY, 0.0)
    for moment in range(1, 1000):
        watch.beat(progress(steps=7), busy=False, now=float(moment))
        assert watch.overdue(float(moment), 1.0) is None


def test_a_silent_runner_is_stuck() -> None:
    watch = RunnerWatch(LIMITS, 0, 0.0)
    watch.enter(RunnerPhase.READY, 0.0)
    assert first_overdue(watch, 0.0, 100.0) == 31.0


def test_a_busy_runner_without_a_step_is_stuck_however_much_it_beats() -> None:
    watch = RunnerWatch(LIMITS, 0, 0.0)
    watch.enter(RunnerPhase.READY, 0.0)
    watch.overdue(99.0, 20.0)
    stuck_at = None
    for moment in range(100, 200):
        watch.beat(progress(steps=7), busy=True, now=float(moment))
        if watch.overdue(float(moment), 1.0) is not None:
            stuck_at = moment
            break
    assert stuck_at == 131


def test_steps_and_pauses_are_progress() -> None:
    watch = RunnerWatch(LIMITS, 0, 0.0)
    watch.enter(RunnerPhase.READY, 0.0)
    steps = 0
    for moment in range(1, 400):
        steps += moment % 20 == 0
        watch.beat(progress(steps=steps), busy=moment % 60 != 0, now=float(moment))
        assert watch.overdue(float(moment), 1.0) is None


def test_slow_steps_are_given_more_time() -> None:
    watch = RunnerWatch(LIMITS, 0, 0.0)
    watch.enter(RunnerPhase.READY, 0.0)
    for step in range(10):
        watch.beat(progress(steps=step), busy=True, now=4.0 * step)
    assert watch.stall_seconds == pytest.approx(80.0)
    watch.overdue(36.0, 10.0)
    stuck_at = None
    for moment in range(37, 200):
        watch.beat(progress(steps=9), busy=True, now=float(moment))
        if watch.overdue(float(moment), 1.0) is not None:
            stuck_at = moment
            break
    assert stuck_at == 117


def test_many_steps_between_two_beats_count_each() -> None:
    watch = RunnerWatch(LIMITS, 0, 0.0)
    watch.enter(RunnerPhase.READY, 0.0)
    watch.beat(progress(steps=0), busy=True, now=0.0)
    for moment in range(1, 10):
        watch.beat(progress(steps=10 * moment), busy=True, now=20.0 * moment)
    assert watch.stall_seconds == pytest.approx(40.0)


def test_a_node_that_was_held_up_itself_does_not_blame_its_runner() -> None:
    watch = RunnerWatch(LIMITS, 0, 0.0)
    watch.enter(RunnerPhase.READY, 0.0)
    watch.beat(progress(), busy=True, now=1.0)
    assert watch.overdue(1.0, 1.0) is None
    assert watch.overdue(1000.0, 1.0) is None
    assert first_overdue(watch, 1001.0, 2000.0) == 1031.0


def test_the_failure_says_what_and_how_long() -> None:
    watch = RunnerWatch(LIMITS, 0, 0.0)
    assert first_overdue(watch, 0.0, 60.0) is None
    failure = watch.overdue(61.0, 1.0)
    assert failure is not None
    assert failure.code == "runner_starting_timeout"
    assert "61 s" in failure.message
