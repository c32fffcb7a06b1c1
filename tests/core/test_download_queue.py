import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.core import download_queue as dq
from node.core.download_queue import Job, Queue, Trouble
from node.core.refusal import Refusal
from node.model.download import PullModel
from node.model.errors import Failure
from node.model.ids import ModelId

A, B, C = ModelId("acme/a"), ModelId("acme/b"), ModelId("acme/c")
NOW = 1000.0
PASSING = Trouble(failure=Failure(code="hub_error", message="x"), is_passing=True)
LASTING = Trouble(failure=Failure(code="hub_gated", message="x"), is_passing=False)


def queue_of(*models: ModelId, **orders: int) -> Queue:
    queue = Queue()
    for model in models:
        queue = dq.add(queue, PullModel(model=model), NOW)
    return queue


def job(queue: Queue, model: ModelId) -> Job:
    found = queue.get(model)
    assert found is not None
    return found


def started(queue: Queue, running: tuple[ModelId, ...] = (), now: float = NOW) -> list[ModelId]:
    return [each.model for each in dq.plan(queue, running, now).start]


def changed(outcome: Queue | Refusal) -> Queue:
    assert isinstance(outcome, Queue)
    return outcome


def test_the_first_few_run_in_the_order_of_asking() -> None:
    queue = queue_of(A, B, C)
    assert started(queue) == [A, B]
    assert started(queue, (A,)) == [B]
    assert started(dq.note(queue, A, phase="complete"), (B,)) == [C]


def test_a_higher_priority_takes_the_place_of_one_that_runs() -> None:
    queue = changed(dq.prioritise(queue_of(A, B, C), C, 5))
    turn = dq.plan(queue, (A, B), NOW)
    assert [each.model for each in turn.start] == [C]
    assert turn.stop == (B,)


def test_priorities_are_bounded_and_need_a_download() -> None:
    assert job(changed(dq.prioritise(queue_of(A), A, 10**9)), A).priority == dq.PRIORITY_MAX
    assert isinstance(dq.prioritise(queue_of(A), B, 1), Refusal)


def test_pausing_stops_and_resuming_starts_again() -> None:
    queue = dq.note(queue_of(A), A, phase="downloading", bytes_done=5, bytes_total=10)
    paused = changed(dq.steer(queue, A, "pause"))
    assert dq.plan(paused, (A,), NOW).stop == (A,)
    assert dq.record(job(paused, A)).bytes_done == 5
    resumed = changed(dq.steer(paused, A, "resume"))
    assert started(resumed) == [A]
    assert dq.steer(queue, A, "resume") == queue


def test_a_passing_failure_waits_longer_each_time_and_bytes_forgive() -> None:
    queue, waits = queue_of(A), list[float]()
    for _ in range(4):
        queue = dq.failed(queue, A, PASSING, NOW)
        waits.append(job(queue, A).retry_at - NOW)
        assert started(queue) == []
    assert waits == [1, 2, 4, 8]
    assert dq.plan(queue, (), NOW).wake_at == NOW + 8
    assert started(queue, now=NOW + 8) == [A]
    queue = dq.note(queue, A, phase="downloading", bytes_done=1)
    assert job(queue, A).attempts == 0


def test_a_hub_that_asks_for_time_gets_it_within_reason() -> None:
    asked = Trouble(failure=PASSING.failure, is_passing=True, retry_after_seconds=90.0)
    assert job(dq.failed(queue_of(A), A, asked, NOW), A).retry_at == NOW + 90
    endless = Trouble(failure=PASSING.failure, is_passing=True, retry_after_seconds=1e9)
    failed = dq.failed(queue_of(A), A, endless, NOW)
    assert job(failed, A).retry_at == NOW + dq.RETRY_AFTER_SECONDS_MAX


def test_a_lasting_failure_stands_until_a_person_acts() -> None:
    queue = dq.failed(queue_of(A), A, LASTING, NOW)
    assert started(queue, now=NOW + 10**6) == []
    assert dq.record(job(queue, A)).failure == LASTING.failure
    assert started(dq.recovered(queue), now=NOW + 10**6) == []
    assert started(changed(dq.steer(queue, A, "retry"))) == [A]
    assert started(dq.add(queue, PullModel(model=A), NOW)) == [A]


def test_a_clock_set_back_does_not_put_a_retry_off_for_ever() -> None:
    queue = dq.failed(queue_of(A), A, PASSING, NOW + 10**7)
    assert started(queue) == [A]


def test_a_failure_of_what_was_paused_meanwhile_changes_nothing() -> None:
    paused = changed(dq.steer(queue_of(A), A, "pause"))
    assert dq.failed(paused, A, LASTING, NOW) == paused
    assert dq.failed(paused, B, LASTING, NOW) == paused


def test_what_ran_before_a_restart_is_in_line_again_and_what_was_paused_stays_so() -> None:
    queue = dq.note(queue_of(A, B), A, phase="verifying", bytes_done=7)
    queue = dq.recovered(changed(dq.steer(queue, B, "pause")))
    assert job(queue, A).phase == "queued"
    assert job(queue, A).bytes_done == 7
    assert job(queue, B).phase == "paused"


def test_asking_again_changes_the_wishes_and_not_the_place() -> None:
    queue = dq.add(queue_of(A, B), PullModel(model=A, bytes_per_second=9), NOW)
    assert [each.model for each in dq.in_order(queue)] == [A, B]
    assert job(queue, A).bytes_per_second_max == 9
    other = dq.add(queue, PullModel(model=A, revision="v2"), NOW)
    assert job(other, A).revision == "v2"
    assert [each.model for each in dq.in_order(other)] == [B, A]


def test_cancel_forgets_and_what_is_unknown_or_done_is_refused_with_what_there_is() -> None:
    queue = queue_of(A, B)
    assert changed(dq.steer(queue, A, "cancel")).get(A) is None
    unknown = dq.steer(queue, C, "pause")
    assert isinstance(unknown, Refusal)
    assert "acme/a, acme/b" in unknown.failure.remedy
    done = dq.steer(dq.note(queue, A, phase="complete"), A, "pause")
    assert isinstance(done, Refusal)
    assert done.failure.code == "download_complete"
    assert isinstance(dq.steer(queue, A, "explode"), Refusal)


def test_bounds_are_checked_and_one_alone_may_change() -> None:
    queue = changed(dq.limit(Queue(), 1, None))
    queue = changed(dq.limit(queue, None, 500))
    assert (queue.at_once, queue.bytes_per_second_max) == (1, 500)
    assert isinstance(dq.limit(queue, 0, None), Refusal)
    assert isinstance(dq.limit(queue, None, -1), Refusal)


def test_a_full_queue_drops_finished_ones_only() -> None:
    queue = Queue()
    for number in range(dq.JOBS_MAX):
        queue = dq.add(queue, PullModel(model=ModelId(f"m/{number}")), NOW)
    queue = dq.note(queue, ModelId("m/5"), phase="complete")
    queue = dq.add(queue, PullModel(model=A), NOW)
    assert len(queue.jobs) == dq.JOBS_MAX
    assert queue.get(ModelId("m/5")) is None
    assert queue.get(A) is not None


def test_progress_never_shows_more_than_all() -> None:
    queue = dq.note(queue_of(A), A, bytes_done=15, bytes_total=10)
    assert dq.record(job(queue, A)).bytes_done == 10
    assert dq.note(queue, B, bytes_done=1) == queue


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "pause", "resume", "retry", "cancel", "fail", "stay", "done"]),
            st.sampled_from([A, B, C]),
            st.floats(0, 400),
        ),
        max_size=30,
    ),
    st.integers(1, 3),
)
def test_whatever_happens_no_more_run_than_may_and_none_is_stuck(
    steps: list[tuple[str, ModelId, float]], at_once: int
) -> None:
    queue, now = Queue(at_once=at_once), NOW
    for what, model, seconds in steps:
        now += seconds
        match what:
            case "add":
                queue = dq.add(queue, PullModel(model=model), now)
            case "fail":
                queue = dq.failed(queue, model, PASSING, now)
            case "stay":
                queue = dq.failed(queue, model, LASTING, now)
            case "done":
                queue = dq.note(queue, model, phase="complete")
            case action:
                outcome = dq.steer(queue, model, action)
                queue = queue if isinstance(outcome, Refusal) else outcome
        turn = dq.plan(queue, (), now)
        assert len(turn.start) <= at_once
        waiting = [each for each in queue.jobs if each.phase == "failed" and each.retry_at]
        runnable = [each for each in queue.jobs if each.phase in dq.RUNNABLE]
        assert bool(turn.start) or not runnable
        assert turn.wake_at is not None or not waiting
        stands = [each for each in queue.jobs if each.phase == "failed"]
        assert all(each.failure is not None for each in stands)


@pytest.mark.parametrize("phase", ["paused", "complete", "failed"])
def test_what_does_not_run_is_stopped(phase: str) -> None:
    queue = dq.note(queue_of(A), A, phase=phase)
    assert dq.plan(queue, (A,), NOW).stop == (A,)
