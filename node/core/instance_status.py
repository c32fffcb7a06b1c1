"""One word for where an instance is, the same in the terminal, the command line and the API."""

from collections.abc import Mapping, Sequence
from typing import Literal, assert_never

import msgspec

from node.core.naming import name_of
from node.model.errors import Failure
from node.model.ids import InstanceId, NodeId, RunnerId
from node.model.instance import Instance, RunnerPhase, RunnerRecord, Shard
from node.model.register import Register, RunnerFigures, RunnerProgress
from node.model.state import State

Word = Literal[
    "PREPARING",
    "CONNECTING",
    "LOADING",
    "WARMING UP",
    "READY",
    "RUNNING",
    "DEGRADED",
    "FAILED",
    "STOPPING",
]

_ADVANCE: tuple[Word, ...] = ("PREPARING", "CONNECTING", "LOADING", "WARMING UP", "READY")


class InstanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An instance's word and what belongs to it."""

    word: Word
    detail: str = ""
    """A few words more, such as `41/80 layers`; may be empty."""
    layers_loaded: int = 0
    layers_total: int = 0
    failure: Failure | None = None
    """Why it is FAILED or DEGRADED."""
    ready: bool = False
    """It takes requests."""


class _Stage(msgspec.Struct, frozen=True):
    """A shard with all that is known of its runner."""

    shard: Shard
    node_name: str
    record: RunnerRecord | None
    """None: nothing reported of the attempt that is wanted."""
    progress: RunnerProgress | None


def status(
    state: State,
    instance_id: InstanceId,
    registers: Mapping[tuple[NodeId, str], Register],
) -> InstanceStatus:
    """Where an instance is, from its runners' phases: the least advanced runner gives the word.

    A lost node comes before a failure, because the failures of its neighbours follow from it. An
    instance that is not in the state counts as stopping: it has just gone.
    """
    instance = state.instances.get(instance_id)
    if instance is None:
        return InstanceStatus(word="STOPPING", detail="gone")
    stages = _stages(state, instance, registers)
    if instance.removing:
        found = _stopping(stages)
    else:
        found = _absent(state, instance, stages) or _broken(stages) or _advancing(stages)
    return msgspec.structs.replace(
        found,
        layers_loaded=sum(_layers_loaded(stage) for stage in stages),
        layers_total=instance.layer_count,
    )


def _stages(
    state: State, instance: Instance, registers: Mapping[tuple[NodeId, str], Register]
) -> list[_Stage]:
    wanted = state.attempts.get(instance.instance, 1)
    stages: list[_Stage] = []
    for shard in instance.shards:
        record = state.runners.get(shard.runner)
        if record is not None and record.attempt < wanted and not instance.removing:
            record = None
        name = name_of(state, shard.node)
        stages.append(_Stage(shard, name, record, _progress(registers, shard)))
    return stages


def _progress(
    registers: Mapping[tuple[NodeId, str], Register], shard: Shard
) -> RunnerProgress | None:
    register = registers.get((shard.node, RunnerFigures.__name__))
    if register is None or not isinstance(register.value, RunnerFigures):
        return None
    runner: RunnerId = shard.runner
    return next((found for found in register.value.runners if found.runner == runner), None)


def _stopping(stages: Sequence[_Stage]) -> InstanceStatus:
    over = (RunnerPhase.STOPPED, RunnerPhase.FAILED)
    gone = sum(stage.record is not None and stage.record.phase in over for stage in stages)
    detail = f"{gone}/{len(stages)} runners stopped" if len(stages) > 1 else ""
    return InstanceStatus(word="STOPPING", detail=detail)


def _prospect(instance: Instance) -> str:
    """What becomes of an instance without all its nodes."""
    if instance.wish.restart == "never":
        return "it was loaded with --restart never, and waits"
    if instance.stranded is not None:
        return f"no other place is taken: {instance.stranded.message}"
    return "another place is looked for unless it is back soon"


def _absent(state: State, instance: Instance, stages: Sequence[_Stage]) -> InstanceStatus | None:
    """Whether a node of it is lost or was removed."""
    names: list[str] = []
    reasons: list[str] = []
    is_stopped = True
    for stage in stages:
        node = state.nodes.get(stage.shard.node)
        if node is None:
            names.append(stage.node_name)
            reasons.append(state.revoked.get(stage.shard.node, "it is not of this cluster"))
            is_stopped = False
        elif node.lost:
            names.append(stage.node_name)
            reasons.append(node.lost_reason or "it is not heard")
            is_stopped = is_stopped and node.stopped
    if not names:
        return None
    word = "stopped" if is_stopped else "lost"
    failure = Failure(
        code=f"node_{word}",
        message=f"{', '.join(names)} is {word}: {reasons[0]}; {_prospect(instance)}",
        remedy="it goes on when the node is back; or stop it and place the model elsewhere",
        node=names[0],
    )
    if instance.stranded is not None and instance.stranded.remedy:
        failure = msgspec.structs.replace(failure, remedy=instance.stranded.remedy)
    detail = f"{word} {', '.join(names)} ({len(names)} of {len(stages)})"
    return InstanceStatus(word="DEGRADED", detail=detail, failure=failure)


def _broken(stages: Sequence[_Stage]) -> InstanceStatus | None:
    """Whether a runner failed, or ended though nobody asked it to."""
    for stage in stages:
        record = stage.record
        if record is not None and record.phase is RunnerPhase.FAILED:
            failure = record.failure or Failure(
                code="runner_failed", message=f"runner {record.runner} failed"
            )
            if not failure.node:
                failure = msgspec.structs.replace(failure, node=stage.node_name)
            detail = f"on {stage.node_name}"
            return InstanceStatus(word="FAILED", detail=detail, failure=failure)
    for stage in stages:
        record = stage.record
        if record is not None and record.phase in (RunnerPhase.STOPPING, RunnerPhase.STOPPED):
            failure = Failure(
                code="runner_stopped",
                message=f"runner {record.runner} on {stage.node_name} was stopped",
                remedy="it is started again when its node is back",
                node=stage.node_name,
            )
            detail = f"stopped on {stage.node_name}"
            return InstanceStatus(word="DEGRADED", detail=detail, failure=failure)
    return None


def _advancing(stages: Sequence[_Stage]) -> InstanceStatus:
    words = [_word(stage.record) for stage in stages]
    least = min(_ADVANCE.index(word) for word in words)
    word = _ADVANCE[least]
    if word == "READY":
        busy = any(stage.progress and stage.progress.requests_running for stage in stages)
        return InstanceStatus(word="RUNNING" if busy else "READY", ready=True)
    if word == "LOADING":
        loaded = sum(_layers_loaded(stage) for stage in stages)
        wanted = sum(stage.shard.end_layer - stage.shard.first_layer for stage in stages)
        return InstanceStatus(word=word, detail=f"{loaded}/{wanted} layers")
    behind = [stage.node_name for stage, own in zip(stages, words, strict=True) if own == word]
    return InstanceStatus(word=word, detail=f"on {', '.join(behind)}" if len(stages) > 1 else "")


def _word(record: RunnerRecord | None) -> Word:
    if record is None:
        return "PREPARING"
    match record.phase:
        case RunnerPhase.STARTING | RunnerPhase.STOPPING | RunnerPhase.STOPPED | RunnerPhase.FAILED:
            word: Word = "PREPARING"
        case RunnerPhase.CONNECTING:
            word = "CONNECTING"
        case RunnerPhase.LOADING:
            word = "LOADING"
        case RunnerPhase.WARMING_UP:
            word = "WARMING UP"
        case RunnerPhase.READY:
            word = "READY"
        case _:
            assert_never(record.phase)
    return word


def _layers_loaded(stage: _Stage) -> int:
    layers = stage.shard.end_layer - stage.shard.first_layer
    if stage.record is None:
        return 0
    if stage.record.phase in (RunnerPhase.WARMING_UP, RunnerPhase.READY):
        return layers
    loading = stage.record.phase is RunnerPhase.LOADING
    return min(stage.progress.layers_loaded, layers) if loading and stage.progress else 0
