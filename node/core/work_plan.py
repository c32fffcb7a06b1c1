"""What a node has to do so that its runners match the state: values in, chores out."""

import enum
from collections.abc import Iterator, Mapping

import msgspec

from node.model.errors import Failure
from node.model.ids import NodeId, RunnerId
from node.model.instance import Instance, RunnerPhase, RunnerRecord, Shard, StageAddress
from node.model.state import State

_OVER = (RunnerPhase.STOPPED, RunnerPhase.FAILED)


class LocalRunner(msgspec.Struct, frozen=True, kw_only=True):
    """A runner as the node that keeps it knows it; kept after its end until it is forgotten."""

    record: RunnerRecord
    """Its last transition."""
    connected: bool = False
    """It was told its neighbours."""
    ended: bool = False
    """Its process is gone and its memory is free; or it never came to be."""
    adopting: bool = False
    """An earlier life of the node started it; what became of it is known in a moment."""


class StopReason(enum.Enum):
    """Why a runner is stopped."""

    INSTANCE_STOPPING = "the instance is being stopped"
    INSTANCE_UNKNOWN = "no such instance is placed here"
    RESTART = "the instance starts anew"


class StartRunner(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Start a child for a shard."""

    instance: Instance
    shard: Shard
    attempt: int


class ConnectRunner(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Tell a runner its neighbours: every stage of this attempt listens."""

    runner: RunnerId
    next_stage: StageAddress
    previous_certificate: bytes


class StopRunner(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """End a child."""

    runner: RunnerId
    reason: StopReason


class ForgetRunner(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Drop what is kept of a runner that ended: its instance is gone."""

    runner: RunnerId


class ReportRunner(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The state says something else of a runner than what is so here."""

    record: RunnerRecord


Chore = StartRunner | ConnectRunner | StopRunner | ForgetRunner | ReportRunner


def _is_leaving(state: State, node: NodeId, local: Mapping[RunnerId, LocalRunner]) -> bool:
    """Whether a runner of an instance that is stopped has not ended yet: others may have been
    placed where its memory is.
    """
    return any(
        shard.node == node
        and instance.removing
        and (known := local.get(shard.runner)) is not None
        and not known.ended
        for instance in state.instances.values()
        for shard in instance.shards
    )


def plan(state: State, node: NodeId, local: Mapping[RunnerId, LocalRunner]) -> tuple[Chore, ...]:
    """Every chore that is due on `node`; none where all is as it should be.

    Level-triggered: a chore comes again with each call until its effect shows in `state` or
    `local`, so whoever carries it out may fail, and a restart of the node loses nothing.
    """
    chores: list[Chore] = []
    waits = _is_leaving(state, node, local)
    placed: set[RunnerId] = set()
    for instance in state.instances.values():
        for shard in instance.shards:
            if shard.node == node:
                placed.add(shard.runner)
                due = _tend(state, instance, shard, local.get(shard.runner))
                chores.extend(
                    chore for chore in due if not (waits and isinstance(chore, StartRunner))
                )
    for runner, known in local.items():
        if runner not in placed and not known.adopting:
            chores.append(_dismiss(runner, known))
    return tuple(chores)


def _dismiss(runner: RunnerId, known: LocalRunner) -> Chore:
    if known.ended:
        return ForgetRunner(runner=runner)
    return StopRunner(runner=runner, reason=StopReason.INSTANCE_UNKNOWN)


def _tend(
    state: State, instance: Instance, shard: Shard, known: LocalRunner | None
) -> Iterator[Chore]:
    """Chores for one shard of this node."""
    if instance.removing:
        yield from _wind_down(state, instance, shard, known)
        return
    attempt = state.attempts.get(instance.instance, 1)
    if known is not None and known.adopting:
        return
    if known is None:
        yield from _begin(state, instance, shard, attempt)
    elif known.record.attempt < attempt:
        if known.ended:
            yield StartRunner(instance=instance, shard=shard, attempt=attempt)
        else:
            yield StopRunner(runner=shard.runner, reason=StopReason.RESTART)
    else:
        if state.runners.get(shard.runner) != known.record:
            yield ReportRunner(record=known.record)
        if not known.connected and known.record.phase is RunnerPhase.CONNECTING:
            yield from _connect(state, instance, shard, known)


def _begin(state: State, instance: Instance, shard: Shard, attempt: int) -> Iterator[Chore]:
    """No such runner here: start it, unless an earlier life of this node used this attempt up."""
    reported = state.runners.get(shard.runner)
    if reported is None or reported.attempt < attempt:
        yield StartRunner(instance=instance, shard=shard, attempt=attempt)
        return
    if reported.phase is RunnerPhase.FAILED:
        return  # known to all: the master raises the attempt, or a person does
    lost = Failure(
        code="runner_lost",
        message=f"runner {shard.runner} ended with its node, which was started anew",
        remedy="it is started again with the instance; `exoctl restart` does so at once",
    )
    yield ReportRunner(record=_over(reported, RunnerPhase.FAILED, lost))


def _wind_down(
    state: State, instance: Instance, shard: Shard, known: LocalRunner | None
) -> Iterator[Chore]:
    """The instance is to go: stop its runner, and say so once it is gone."""
    if known is not None and not known.ended:
        yield StopRunner(runner=shard.runner, reason=StopReason.INSTANCE_STOPPING)
        return
    reported = state.runners.get(shard.runner)
    if reported is not None and reported.phase in _OVER:
        return
    last = known.record if known is not None else reported
    if last is None:
        last = RunnerRecord(
            runner=shard.runner,
            instance=instance.instance,
            node=shard.node,
            phase=RunnerPhase.STOPPED,
            attempt=state.attempts.get(instance.instance, 1),
        )
    yield ReportRunner(record=_over(last, RunnerPhase.STOPPED, last.failure))


def _over(record: RunnerRecord, phase: RunnerPhase, failure: Failure | None) -> RunnerRecord:
    """What is found out now of a runner that is gone; whoever reports it says when."""
    return msgspec.structs.replace(
        record, phase=phase, failure=failure, address=None, process_id=0, changed_at=0.0
    )


def _connect(state: State, instance: Instance, shard: Shard, known: LocalRunner) -> Iterator[Chore]:
    """Neighbours, once every stage has reported where it listens in this very attempt."""
    addresses: list[StageAddress] = []
    for stage in instance.shards:
        record = known.record if stage.runner == shard.runner else state.runners.get(stage.runner)
        if (
            record is None
            or record.address is None
            or record.attempt != known.record.attempt
            or record.phase in _OVER
        ):
            return
        addresses.append(record.address)
    if len(addresses) > 1:
        rank = shard.rank
        yield ConnectRunner(
            runner=shard.runner,
            next_stage=addresses[(rank + 1) % len(addresses)],
            previous_certificate=addresses[rank - 1].certificate,
        )
