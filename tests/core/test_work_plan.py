import itertools
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.core.work_plan import (
    ConnectRunner,
    ForgetRunner,
    LocalRunner,
    ReportRunner,
    StartRunner,
    StopReason,
    StopRunner,
    plan,
)
from node.model.errors import Failure
from node.model.ids import InstanceId, ModelId, NodeId, RunnerId
from node.model.instance import Instance, RunnerPhase, RunnerRecord, Shard, StageAddress
from node.model.state import State

HERE, THERE = NodeId("here"), NodeId("there")
INSTANCE = InstanceId("i-00000001")
LIVING = [phase for phase in RunnerPhase if phase not in (RunnerPhase.STOPPED, RunnerPhase.FAILED)]
OVER = [RunnerPhase.STOPPED, RunnerPhase.FAILED]


def runner_id(rank: int, instance: int = 1) -> RunnerId:
    return RunnerId(f"r-{instance:04x}{rank:04x}")


def instance_on(*nodes: NodeId, number: int = 1, removing: bool = False) -> Instance:
    return Instance(
        instance=InstanceId(f"i-{number:08x}"),
        model=ModelId("tiny"),
        shards=tuple(
            Shard(
                runner=runner_id(rank, number),
                node=node,
                rank=rank,
                first_layer=rank * 4,
                end_layer=rank * 4 + 4,
                weight_bytes=1,
                cache_bytes=1,
            )
            for rank, node in enumerate(nodes)
        ),
        layer_count=4 * len(nodes),
        context_tokens=128,
        requested_by=HERE,
        removing=removing,
    )


def address(rank: int) -> StageAddress:
    return StageAddress(f"10.0.0.{rank}", 7000 + rank, f"certificate {rank}".encode())


def record(
    rank: int,
    phase: RunnerPhase,
    *,
    attempt: int = 1,
    node: NodeId = HERE,
    listens: bool = False,
    failure: Failure | None = None,
) -> RunnerRecord:
    return RunnerRecord(
        runner=runner_id(rank),
        instance=INSTANCE,
        node=node,
        phase=phase,
        attempt=attempt,
        address=address(rank) if listens else None,
        process_id=100 + rank,
        failure=failure,
    )


def state_of(
    *instances: Instance, records: Iterable[RunnerRecord] = (), attempt: int | None = None
) -> State:
    return State(
        index=5,
        instances={instance.instance: instance for instance in instances},
        runners={item.runner: item for item in records},
        attempts={} if attempt is None else {INSTANCE: attempt},
    )


def kept(
    item: RunnerRecord, *, ended: bool = False, connected: bool = False
) -> dict[RunnerId, LocalRunner]:
    return {item.runner: LocalRunner(record=item, ended=ended, connected=connected)}


def test_nothing_placed_and_nothing_running_needs_nothing() -> None:
    assert plan(State(), HERE, {}) == ()


def test_a_placed_shard_is_started_as_the_first_attempt() -> None:
    instance = instance_on(HERE)
    assert plan(state_of(instance), HERE, {}) == (
        StartRunner(instance=instance, shard=instance.shards[0], attempt=1),
    )


def test_shards_of_other_nodes_are_left_alone() -> None:
    assert plan(state_of(instance_on(THERE)), HERE, {}) == ()


def test_every_shard_of_an_instance_that_lies_twice_on_a_node_is_started() -> None:
    instance = instance_on(HERE, THERE, HERE)
    started = plan(state_of(instance), HERE, {})
    assert [chore.shard.rank for chore in started if isinstance(chore, StartRunner)] == [0, 2]


@pytest.mark.parametrize("phase", LIVING)
def test_a_living_runner_that_the_state_knows_needs_nothing(phase: RunnerPhase) -> None:
    item = record(0, phase)
    assert plan(state_of(instance_on(HERE), records=[item]), HERE, kept(item)) == ()


@pytest.mark.parametrize("phase", list(RunnerPhase))
def test_a_runner_that_the_state_knows_otherwise_is_reported(phase: RunnerPhase) -> None:
    item = record(0, phase)
    ended = phase in OVER
    assert plan(state_of(instance_on(HERE)), HERE, kept(item, ended=ended)) == (
        ReportRunner(record=item),
    )


@pytest.mark.parametrize("phase", OVER)
def test_an_attempt_that_is_over_is_not_started_again_by_itself(phase: RunnerPhase) -> None:
    item = record(0, phase)
    state = state_of(instance_on(HERE), records=[item])
    assert plan(state, HERE, kept(item, ended=True)) == ()


def test_a_failed_attempt_of_an_earlier_life_waits_for_a_new_attempt() -> None:
    state = state_of(instance_on(HERE), records=[record(0, RunnerPhase.FAILED)])
    assert plan(state, HERE, {}) == ()


@pytest.mark.parametrize("phase", [*LIVING, RunnerPhase.STOPPED])
def test_a_runner_of_an_earlier_life_is_reported_lost(phase: RunnerPhase) -> None:
    state = state_of(instance_on(HERE), records=[record(0, phase, listens=True)])
    (chore,) = plan(state, HERE, {})
    assert isinstance(chore, ReportRunner)
    assert chore.record.phase is RunnerPhase.FAILED
    assert chore.record.attempt == 1
    assert chore.record.address is None
    assert chore.record.failure is not None
    assert chore.record.failure.code == "runner_lost"
    assert plan(state_of(instance_on(HERE), records=[chore.record]), HERE, {}) == ()


@pytest.mark.parametrize("phase", list(RunnerPhase))
def test_a_risen_attempt_is_started_after_an_earlier_life(phase: RunnerPhase) -> None:
    instance = instance_on(HERE)
    state = state_of(instance, records=[record(0, phase)], attempt=2)
    assert plan(state, HERE, {}) == (
        StartRunner(instance=instance, shard=instance.shards[0], attempt=2),
    )


@pytest.mark.parametrize("phase", list(RunnerPhase))
def test_a_risen_attempt_first_ends_what_runs_then_starts(phase: RunnerPhase) -> None:
    instance = instance_on(HERE)
    item = record(0, phase)
    state = state_of(instance, records=[item], attempt=2)
    assert plan(state, HERE, kept(item)) == (
        StopRunner(runner=item.runner, reason=StopReason.RESTART),
    )
    assert plan(state, HERE, kept(item, ended=True)) == (
        StartRunner(instance=instance, shard=instance.shards[0], attempt=2),
    )


def test_a_runner_ahead_of_the_state_keeps_running() -> None:
    """The node joined another cluster, which counts attempts anew."""
    item = record(0, RunnerPhase.READY, attempt=3)
    assert plan(state_of(instance_on(HERE)), HERE, kept(item)) == (ReportRunner(record=item),)


@pytest.mark.parametrize("phase", list(RunnerPhase))
def test_a_stopping_instance_stops_its_runner_until_it_is_gone(phase: RunnerPhase) -> None:
    item = record(0, phase)
    state = state_of(instance_on(HERE, removing=True), records=[item])
    assert plan(state, HERE, kept(item)) == (
        StopRunner(runner=item.runner, reason=StopReason.INSTANCE_STOPPING),
    )


@pytest.mark.parametrize("phase", LIVING)
def test_a_stopping_instance_whose_runner_is_gone_is_told_so(phase: RunnerPhase) -> None:
    cause = Failure(code="runner_killed", message="killed")
    item = record(0, phase, failure=cause, listens=True)
    state = state_of(instance_on(HERE, removing=True), records=[item])
    for local in ({}, kept(item, ended=True)):
        (chore,) = plan(state, HERE, local)
        assert isinstance(chore, ReportRunner)
        assert chore.record.phase is RunnerPhase.STOPPED
        assert chore.record.failure == cause
        assert (chore.record.address, chore.record.process_id) == (None, 0)
        told = state_of(instance_on(HERE, removing=True), records=[chore.record])
        assert plan(told, HERE, local) == ()


def test_a_stopping_instance_that_never_had_a_runner_here_is_told_so() -> None:
    state = state_of(instance_on(HERE, removing=True), attempt=4)
    (chore,) = plan(state, HERE, {})
    assert isinstance(chore, ReportRunner)
    assert (chore.record.phase, chore.record.attempt) == (RunnerPhase.STOPPED, 4)
    assert (chore.record.node, chore.record.instance) == (HERE, INSTANCE)


@pytest.mark.parametrize("phase", OVER)
def test_a_stopping_instance_whose_runner_is_known_to_be_over_needs_nothing(
    phase: RunnerPhase,
) -> None:
    item = record(0, phase)
    state = state_of(instance_on(HERE, removing=True), records=[item])
    assert plan(state, HERE, {}) == ()
    assert plan(state, HERE, kept(item, ended=True)) == ()


def test_runners_of_unknown_instances_are_stopped_and_then_forgotten() -> None:
    item = record(0, RunnerPhase.READY)
    assert plan(state_of(), HERE, kept(item)) == (
        StopRunner(runner=item.runner, reason=StopReason.INSTANCE_UNKNOWN),
    )
    assert plan(state_of(), HERE, kept(item, ended=True)) == (ForgetRunner(runner=item.runner),)


def test_a_runner_whose_shard_went_to_another_node_is_stopped() -> None:
    item = record(0, RunnerPhase.READY)
    (chore,) = plan(state_of(instance_on(THERE)), HERE, kept(item))
    assert chore == StopRunner(runner=item.runner, reason=StopReason.INSTANCE_UNKNOWN)


def test_stages_are_connected_in_a_circle_once_all_listen() -> None:
    nodes = (HERE, THERE, THERE)
    everyone = [
        record(rank, RunnerPhase.CONNECTING, node=node, listens=True)
        for rank, node in enumerate(nodes)
    ]
    state = state_of(instance_on(*nodes), records=everyone)
    (first,) = plan(state, HERE, kept(everyone[0]))
    assert first == ConnectRunner(
        runner=runner_id(0), next_stage=address(1), previous_certificate=b"certificate 2"
    )
    others = {item.runner: LocalRunner(record=item) for item in everyone[1:]}
    second, third = plan(state, THERE, others)
    assert second == ConnectRunner(
        runner=runner_id(1), next_stage=address(2), previous_certificate=b"certificate 0"
    )
    assert third == ConnectRunner(
        runner=runner_id(2), next_stage=address(0), previous_certificate=b"certificate 1"
    )


def test_a_connected_stage_is_not_connected_again() -> None:
    everyone = [record(rank, RunnerPhase.CONNECTING, listens=True) for rank in range(2)]
    state = state_of(instance_on(HERE, THERE), records=everyone)
    assert plan(state, HERE, kept(everyone[0], connected=True)) == ()


def test_a_single_stage_is_never_connected() -> None:
    item = record(0, RunnerPhase.CONNECTING, listens=True)
    assert plan(state_of(instance_on(HERE), records=[item]), HERE, kept(item)) == ()


@pytest.mark.parametrize(
    "other",
    [
        None,
        record(1, RunnerPhase.STARTING, node=THERE),
        record(1, RunnerPhase.CONNECTING, node=THERE),
        record(1, RunnerPhase.CONNECTING, node=THERE, listens=True, attempt=1),
        record(1, RunnerPhase.FAILED, node=THERE, listens=True, attempt=2),
        record(1, RunnerPhase.STOPPED, node=THERE, listens=True, attempt=2),
    ],
)
def test_stages_wait_for_one_that_does_not_listen_in_this_attempt(
    other: RunnerRecord | None,
) -> None:
    mine = record(0, RunnerPhase.CONNECTING, listens=True, attempt=2)
    records = [mine] if other is None else [mine, other]
    state = state_of(instance_on(HERE, THERE), records=records, attempt=2)
    assert plan(state, HERE, kept(mine)) == ()


PHASES = st.sampled_from(list(RunnerPhase))


@st.composite
def situations(draw: st.DrawFn) -> tuple[State, dict[RunnerId, LocalRunner]]:
    nodes = draw(st.lists(st.sampled_from([HERE, THERE]), min_size=1, max_size=3))
    instance = instance_on(*nodes, removing=draw(st.booleans()))
    records: list[RunnerRecord] = []
    local: dict[RunnerId, LocalRunner] = {}
    for shard in instance.shards:
        told = record(
            shard.rank,
            draw(PHASES),
            attempt=draw(st.integers(1, 3)),
            node=shard.node,
            listens=draw(st.booleans()),
        )
        if draw(st.booleans()):
            records.append(told)
        if shard.node == HERE and draw(st.booleans()):
            item = told if draw(st.booleans()) else record(shard.rank, draw(PHASES))
            local[item.runner] = LocalRunner(
                record=item, ended=draw(st.booleans()), connected=draw(st.booleans())
            )
    instances = [instance] if draw(st.booleans()) else []
    return state_of(*instances, records=records, attempt=draw(st.integers(1, 3))), local


@given(situations())
def test_no_chore_contradicts_another(
    situation: tuple[State, dict[RunnerId, LocalRunner]],
) -> None:
    state, local = situation
    chores = plan(state, HERE, local)
    started = {item.shard.runner for item in chores if isinstance(item, StartRunner)}
    stopped = {item.runner for item in chores if isinstance(item, StopRunner)}
    forgotten = {item.runner for item in chores if isinstance(item, ForgetRunner)}
    connected = {item.runner for item in chores if isinstance(item, ConnectRunner)}
    for left, right in itertools.combinations((started, stopped, forgotten, connected), 2):
        assert not left & right
    # A child is never started beside one that still holds memory, nor is a living one forgotten.
    assert all(runner not in local or local[runner].ended for runner in started | forgotten)
    assert all(not local[runner].ended for runner in stopped)


@given(situations())
def test_carrying_out_the_chores_settles(
    situation: tuple[State, dict[RunnerId, LocalRunner]],
) -> None:
    state, local = situation
    for _ in range(12):
        chores = plan(state, HERE, local)
        if not chores:
            return
        for chore in chores:
            state, local = carried_out(chore, state, dict(local))
    pytest.fail(f"still busy: {plan(state, HERE, local)}")


def carried_out(
    chore: object, state: State, local: dict[RunnerId, LocalRunner]
) -> tuple[State, dict[RunnerId, LocalRunner]]:
    match chore:
        case StartRunner(instance=instance, shard=shard, attempt=attempt):
            begun = RunnerRecord(
                runner=shard.runner,
                instance=instance.instance,
                node=HERE,
                phase=RunnerPhase.STARTING,
                attempt=attempt,
            )
            local[shard.runner] = LocalRunner(record=begun)
        case StopRunner(runner=runner):
            ended = msgspec.structs.replace(local[runner].record, phase=RunnerPhase.STOPPED)
            local[runner] = LocalRunner(record=ended, ended=True)
        case ForgetRunner(runner=runner):
            del local[runner]
        case ConnectRunner(runner=runner):
            local[runner] = msgspec.structs.replace(local[runner], connected=True)
        case ReportRunner(record=item):
            runners = {**state.runners, item.runner: item}
            state = msgspec.structs.replace(state, runners=runners)
        case _:
            raise AssertionError(chore)
    return state, local
