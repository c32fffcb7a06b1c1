"""Rows of instances and of the requests that they serve."""

from collections.abc import Sequence

from node.core.instance_status import InstanceStatus, status
from node.model.ids import InstanceId, NodeId, RunnerId
from node.model.instance import Instance
from node.model.register import RequestFigures, RunnerProgress
from node.model.request import RequestPhase, RequestRecord
from node.model.state import State
from tui.viewmodel.figures import Registers, each, runner_progress
from tui.viewmodel.rows import Level, PlacementRow, RequestRow, Run

_PHASES: dict[RequestPhase, tuple[Level, str]] = {
    RequestPhase.QUEUED: ("idle", "queued"),
    RequestPhase.PREFILL: ("busy", "prefill"),
    RequestPhase.DECODE: ("busy", "decode"),
    RequestPhase.DONE: ("ok", "done"),
    RequestPhase.FAILED: ("bad", "failed"),
    RequestPhase.CANCELLED: ("warn", "cancelled"),
}
_COMING = ("PREPARING", "CONNECTING", "LOADING", "WARMING UP")
_RUNNING = (RequestPhase.QUEUED, RequestPhase.PREFILL, RequestPhase.DECODE)


def placement_rows(
    state: State, registers: Registers, hues: dict[NodeId, str], now: float
) -> list[PlacementRow]:
    """Every instance, the oldest first."""
    progress = runner_progress(registers)
    newest = _newest_measured(registers)
    ordered = sorted(state.instances.values(), key=lambda item: (item.placed_index, item.instance))
    return [
        _placement(
            state,
            instance,
            status(state, instance.instance, registers),
            (progress, hues, newest.get(instance.instance)),
            now,
        )
        for instance in ordered
    ]


_Around = tuple[dict[RunnerId, RunnerProgress], dict[NodeId, str], RequestRecord | None]


def _placement(
    state: State, instance: Instance, condition: InstanceStatus, around: _Around, now: float
) -> PlacementRow:
    progress, hues, newest = around
    mine = [progress[shard.runner] for shard in instance.shards if shard.runner in progress]
    failure = condition.failure
    running = sum(item.requests_running for item in mine)
    speed = max((item.tokens_per_second for item in mine), default=0.0)
    return PlacementRow(
        instance=instance.instance,
        model=instance.model,
        level=placement_level(condition),
        word=condition.word,
        detail=condition.detail,
        ready=condition.ready,
        speed=speed if running and condition.ready else 0.0,
        running=running,
        queued=sum(item.requests_queued for item in mine),
        transport=instance.transport if len(instance.shards) > 1 else "",
        strategy=instance.strategy,
        runs=_runs(state, instance, hues),
        layer_count=instance.layer_count,
        layers_loaded=condition.layers_loaded,
        context_tokens=instance.context_tokens,
        memory_bytes=sum(shard.weight_bytes + shard.cache_bytes for shard in instance.shards),
        up_seconds=max(0.0, now - instance.placed_at) if instance.placed_at else 0.0,
        first_token_seconds=newest.first_token_seconds if newest else 0.0,
        predicted_speed=instance.predicted_tokens_per_second,
        last_speed=newest.tokens_per_second if newest else 0.0,
        last_prompt_tokens=_tokens_read(newest),
        predicted_first_seconds=_predicted_first(instance, _tokens_read(newest)),
        failure=failure.message if failure else "",
        remedy=failure.remedy if failure else "",
        policy=_policy(instance),
    )


def coming_words(rows: Sequence[PlacementRow]) -> str:
    """What is on its way to being ready, and how far: `phi-4 is loading: 12/40 layers`; or empty.

    Where several are, the one that is nearest.
    """
    coming = [row for row in rows if row.level == "busy"]
    if not coming:
        return ""
    nearest = max(coming, key=lambda row: _COMING.index(row.word))
    detail = f": {nearest.detail}" if nearest.detail else ""
    return f"{nearest.model} is {nearest.word.lower()}{detail}"


def _policy(instance: Instance) -> str:
    words: list[str] = []
    if instance.wish.restart != "auto":
        words.append(f"restart {instance.wish.restart}")
    if instance.replaces is not None:
        words.append(f"in place of {instance.replaces}")
    return ", ".join(words)


def placement_level(condition: InstanceStatus) -> Level:
    """How an instance stands, as an ink."""
    match condition.word:
        case "READY" | "RUNNING":
            return "ok"
        case "FAILED":
            return "bad"
        case "DEGRADED" | "STOPPING":
            return "warn"
        case "PREPARING" | "CONNECTING" | "LOADING" | "WARMING UP":  # as `_COMING` orders them
            return "busy"


def _runs(state: State, instance: Instance, hues: dict[NodeId, str]) -> tuple[Run, ...]:
    runs: list[Run] = []
    for shard in instance.shards:
        node = state.nodes.get(shard.node)
        runner = state.runners.get(shard.runner)
        runs.append(
            Run(
                node=shard.node,
                name=node.name if node else shard.node[:8],
                hue=hues.get(shard.node, "dim"),
                first_layer=shard.first_layer,
                end_layer=shard.end_layer,
                runner=shard.runner,
                word=runner.phase.value.replace("_", " ") if runner else "asked for",
            )
        )
    return tuple(runs)


def _newest_measured(registers: Registers) -> dict[InstanceId, RequestRecord]:
    """The newest request that came to its first token, by instance."""
    newest: dict[InstanceId, RequestRecord] = {}
    for _, value in each(registers, RequestFigures):
        for request in value.requests:
            held = newest.get(request.instance)
            if request.first_token_seconds and (
                held is None or request.started_at > held.started_at
            ):
                newest[request.instance] = request
    return newest


def _tokens_read(request: RequestRecord | None) -> int:
    return max(0, request.prompt_tokens - request.cached_tokens) if request else 0


def _predicted_first(instance: Instance, prompt_tokens: int) -> float:
    """How long the first token after so long a prompt was expected to take; 0 where unknown."""
    reading = instance.predicted_prompt_tokens_per_second
    writing = instance.predicted_tokens_per_second
    if reading <= 0 or writing <= 0 or not prompt_tokens:
        return 0.0
    return prompt_tokens / reading + 1 / writing


def request_rows(
    state: State, registers: Registers, hues: dict[NodeId, str], now: float
) -> list[RequestRow]:
    """Every known generation: the running ones by age, then the ended ones, the last first."""
    rows: list[tuple[bool, float, RequestRow]] = []
    for node, value in each(registers, RequestFigures):
        record = state.nodes.get(node)
        name = record.name if record else node[:8]
        for request in value.requests:
            row = _request(request, name, hues.get(node, "dim"), now)
            running = request.phase in _RUNNING
            rows.append((not running, request.started_at if running else -request.ended_at, row))
    rows.sort(key=lambda item: item[:2])
    return [row for _, _, row in rows]


def _request(request: RequestRecord, name: str, hue: str, now: float) -> RequestRow:
    level, word = _PHASES[request.phase]
    end = request.ended_at or now
    return RequestRow(
        request=request.request,
        model=request.model,
        instance=request.instance,
        level=level,
        word=word,
        prompt_tokens=request.prompt_tokens,
        prefilled_tokens=request.prefilled_tokens,
        output_tokens=request.output_tokens,
        first_token_seconds=request.first_token_seconds,
        speed=request.tokens_per_second,
        age_seconds=max(0.0, end - request.started_at),
        taken_by=name,
        hue=hue,
        failure=request.failure.message if request.failure else "",
    )
