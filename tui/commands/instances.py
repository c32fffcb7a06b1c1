"""`exoctl ps`: what is loaded, as rows and as JSON."""

from node.handle import NodeHandle
from node.io import clock
from node.model.ids import ModelId
from node.model.instance import Instance
from tui.commands.console import Console, Listing
from tui.commands.figures import (
    condition,
    layers_text,
    placement_text,
    shard_phase,
    shard_progress,
)
from tui.commands.jsonable import fields_of, jsonable
from tui.commands.naming import node_name
from tui.commands.plain import Column, Table
from tui.commands.units import NOTHING, duration_text, rate_text, tokens_text

_STARTING = ("PREPARING", "CONNECTING", "LOADING", "WARMING UP")
_COLUMNS = (
    Column("ID"),
    Column("MODEL", shrinks=True),
    Column("STATE", toned=True),
    Column("PLACEMENT"),
    Column("LAYERS", shrinks=True),
    Column("TOK/S", right=True),
    Column("REQS", right=True, extra=True),
    Column("CTX", right=True, extra=True),
    Column("WEIGHTS", wide=True),
    Column("TRANSPORT", wide=True),
    Column("RUNNERS", wide=True),
    Column("RESTART", wide=True),
    Column("AGE", right=True, extra=True),
)


def ps(console: Console) -> None:
    """List the models that are loaded, where, and how they do."""

    async def work(handle: NodeHandle) -> None:
        placed = sorted(handle.state.instances.values(), key=lambda each: each.placed_index)
        console.emit(instances_listing(handle, placed))

    console.connected(work)


def instances_listing(handle: NodeHandle, placed: list[Instance]) -> Listing:
    """Instances as rows and as JSON."""
    return Listing(
        kind="Instance",
        index=handle.state.index,
        items=[instance_item(handle, instance) for instance in placed],
        table=Table(
            _COLUMNS,
            tuple(_row(handle, instance) for instance in placed),
            empty="nothing is loaded; see `exoctl model ls`, then `exoctl load MODEL`",
        ),
        names=tuple(instance.instance for instance in placed),
    )


def ready_instances(handle: NodeHandle, model: ModelId) -> list[Instance]:
    """The model's instances that answer now."""
    return [
        instance
        for instance in handle.state.instances.values()
        if instance.model == model and condition(handle, instance).ready
    ]


def starting_instance(handle: NodeHandle, model: ModelId) -> Instance | None:
    """An instance of the model that is on its way to ready."""
    return next(
        (
            instance
            for instance in handle.state.instances.values()
            if instance.model == model and condition(handle, instance).word in _STARTING
        ),
        None,
    )


def _strategy(instance: Instance) -> str:
    stages = len(instance.shards)
    return instance.strategy if stages == 1 else f"{instance.strategy} {stages}"


def _row(handle: NodeHandle, instance: Instance) -> tuple[str, ...]:
    state = handle.state
    leader = shard_progress(handle, instance.shards[0]) if instance.shards else None
    requests = f"{leader.requests_running}+{leader.requests_queued}" if leader else NOTHING
    processes = [state.runners.get(shard.runner) for shard in instance.shards]
    age = clock.wall() - instance.placed_at
    return (
        instance.instance,
        instance.model,
        condition(handle, instance).word,
        _strategy(instance),
        placement_text(state, instance),
        rate_text(leader.tokens_per_second if leader else 0.0),
        requests,
        tokens_text(instance.context_tokens),
        instance.weight_format.value,
        f"{instance.transport} {instance.transport_reason}".strip(),
        ", ".join(str(record.process_id) if record else NOTHING for record in processes),
        instance.wish.restart,
        duration_text(age) if instance.placed_at else NOTHING,
    )


def instance_item(handle: NodeHandle, instance: Instance) -> dict[str, object]:
    """The instance in plain JSON types, with what its runners do."""
    state = handle.state
    leader = shard_progress(handle, instance.shards[0]) if instance.shards else None
    item = fields_of(instance)
    found = condition(handle, instance)
    item["state"] = found.word
    item["ready"] = found.ready
    item["detail"] = found.detail
    item["failure"] = jsonable(found.failure)
    item["strategy"] = _strategy(instance).split(" ")[0]
    item["restart"] = instance.wish.restart
    item["attempt"] = state.attempts.get(instance.instance, 1)
    item["tokens_per_second"] = leader.tokens_per_second if leader else 0.0
    item["requests_running"] = leader.requests_running if leader else 0
    item["requests_queued"] = leader.requests_queued if leader else 0
    item["shards"] = [
        {
            **fields_of(shard),
            "node_name": node_name(state, shard.node),
            "layers": layers_text(shard.first_layer, shard.end_layer),
            "phase": shard_phase(state, instance, shard).value,
            "process_id": record.process_id if (record := state.runners.get(shard.runner)) else 0,
            "failure": jsonable(record.failure) if record else None,
        }
        for shard in instance.shards
    ]
    return item
