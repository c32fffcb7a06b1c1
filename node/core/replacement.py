"""Where an instance goes that has lost a node: another placement of the same wish, or why none."""

from msgspec.structs import replace

from node.core.decide import Ids, make_instance
from node.core.facts import Facts
from node.core.naming import name_of
from node.core.placement.plan import plan
from node.model.errors import Failure
from node.model.event import InstanceReplaced, InstanceStranded
from node.model.instance import Instance
from node.model.register import MachineFigures
from node.model.state import State

REPLACEMENTS_MAX = 3
"""In a row; then an instance waits for its nodes, or for a person."""
REFILL_SECONDS = 3600.0
"""One that stood for so long may be placed anew as often again."""


def replacement(
    state: State, instance: Instance, facts: Facts, ids: Ids
) -> InstanceReplaced | InstanceStranded | None:
    """What becomes of an instance of which a node is lost; None where that is known already.

    Only nodes that hold the whole model are taken. What the instance holds on those that are left
    counts as free: its runners end before the new ones start.
    """
    key = instance.instance
    stood = facts.now_wall - instance.placed_at >= REFILL_SECONDS
    used = 0 if stood else instance.replacements
    found = _obstacle(state, instance, used) or _place(state, instance, facts, ids)
    if isinstance(found, Failure):
        known = instance.stranded == found
        return None if known else InstanceStranded(instance=key, failure=found)
    made = replace(found, replaces=key, replacements=used + 1, placed_at=facts.now_wall)
    return InstanceReplaced(instance=key, by=made, reason=f"{_lost_names(state, instance)} is lost")


def _obstacle(state: State, instance: Instance, used: int) -> Failure | None:
    """What stands against any other placement, however much room there is."""
    names, wish = _lost_names(state, instance), instance.wish
    if wish.restart == "auto" and any(_is_lost(state, node) for node in wish.nodes):
        return Failure(
            code="nodes_named",
            message=f"it was placed on the nodes that were named, and {names} is one of them",
            remedy="unload it and load it without --nodes, or with --restart always",
        )
    if used >= REPLACEMENTS_MAX:
        return Failure(
            code="replacements_used_up",
            message=f"it was placed anew {used} times in a row",
            remedy="unload it and load it again once the nodes stay",
        )
    return None


def _place(state: State, instance: Instance, facts: Facts, ids: Ids) -> Instance | Failure:
    card = facts.card(instance.model)
    if card is None:
        return Failure(
            code="model_not_found",
            message=f"no node that is left holds {instance.model}",
            remedy="fetch the model to another node",
        )
    without = tuple(node for node in state.nodes if not facts.holds(node, card))
    wish = instance.wish
    if wish.restart == "always":
        wish = replace(wish, nodes=(), layers=())
    wish = replace(
        wish,
        exclude=() if wish.nodes else (*wish.exclude, *without),
        context_tokens=min(instance.context_tokens, card.context_tokens_max),
    )
    rest = {key: each for key, each in state.instances.items() if key != instance.instance}
    cleared = replace(state, instances=rest)
    made = plan(cleared, card, wish, _freed(instance, facts))
    if made.refusal is not None:
        return replace(made.refusal, remedy=made.refusal.remedy or "wait until the node is back")
    new = make_instance(state, card, made.candidates[0], ids)
    return replace(new, requested_by=instance.requested_by, wish=instance.wish)


def _freed(instance: Instance, facts: Facts) -> Facts:
    """The facts once the runners of the instance have ended."""
    machines: dict[str, MachineFigures] = {}
    for shard in instance.shards:
        figures = machines.get(shard.node) or facts.machines.get(shard.node)
        progress = facts.runners.get(shard.runner)
        if figures is not None and progress is not None:
            available = figures.memory_bytes_available + progress.memory_bytes
            machines[shard.node] = replace(figures, memory_bytes_available=available)
    return replace(facts, machines={**facts.machines, **machines})


def _is_lost(state: State, node: str) -> bool:
    return any(record.lost for key, record in state.nodes.items() if key == node)


def _lost_names(state: State, instance: Instance) -> str:
    records = [(node, state.nodes.get(node)) for node in dict.fromkeys(instance.nodes)]
    return ", ".join(
        name_of(state, node) for node, record in records if record is None or record.lost
    )
