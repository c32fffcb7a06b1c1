"""The master's decisions on commands: a command and the state in, events or a refusal out.

Only the master decides, on the state at the tip of its log; its decision enters the log as one
`CommandDecided` (`as_event`) and is answered after commit.
"""

from collections.abc import Container
from typing import Protocol, assert_never

import msgspec

from node.core.annotate import label_node, name_node, name_problem
from node.core.facts import Facts
from node.core.lookup import find_instance, find_node
from node.core.naming import name_of
from node.core.placement.candidate import costs_of
from node.core.placement.plan import plan
from node.core.placement.tensor import TENSOR
from node.core.placement.wish import check, find_card, preparing_on, resolve
from node.core.refusal import Refusal, refusal
from node.model.card import ModelCard
from node.model.command import (
    Accepted,
    AdmitNode,
    CommandRequest,
    CordonNode,
    LabelNode,
    NameNode,
    PlaceInstance,
    RemoveNode,
    RestartInstance,
    StepDown,
    StopInstance,
)
from node.model.errors import ConflictError, NoFitError, RefusedError
from node.model.event import (
    CommandDecided,
    Event,
    InstancePlaced,
    InstanceStopping,
    NodeAdmitted,
    NodeCordoned,
    NodeRevoked,
    RunnerRestartRequested,
)
from node.model.ids import InstanceId, NodeId, RunnerId, short
from node.model.instance import Instance, Shard
from node.model.state import State
from node.model.topology import Candidate

ADDRESSES_MAX = 16
REASON_LENGTH_MAX = 200
ID_CHARACTERS = 8
PROOF_LAN = "lan"
TRANSPORT_REASONS: dict[str, str] = {
    "single": "",
    "pipeline": "any two linked nodes can talk over TCP",
    TENSOR: "sums of tensor parallel go over mlx's own ring",
}


class Ids(Protocol):
    """Where fresh ids come from: `clock.random_hex` in a node, a counter in a test."""

    def __call__(self, characters: int, /) -> str:
        """Hexadecimal text of that length, never given before."""
        ...


class Decided(msgspec.Struct, frozen=True):
    """The command is carried out: its events go into the log together."""

    events: tuple[Event, ...]
    subject: str = ""


class Answered(msgspec.Struct, frozen=True):
    """The command was carried out before; this is what was answered."""

    answer: Accepted


Decision = Decided | Answered | Refusal


def decide(state: State, request: CommandRequest, facts: Facts, ids: Ids) -> Decision:
    """Decide a command. A command id that is known gets its earlier answer: nothing runs twice."""
    earlier = state.answer_to(request.id)
    if earlier is not None:
        return Answered(earlier)
    command = request.command
    match command:
        case PlaceInstance():
            return _place(state, command, request.asked_by, facts, ids)
        case StopInstance() | RestartInstance():
            return _tend(state, command, request.asked_by)
        case StepDown():
            return _step_down(state)
        case AdmitNode() | RemoveNode() | CordonNode() | NameNode() | LabelNode():
            return _govern(state, command, request.asked_by)
        case _:
            assert_never(command)


def as_event(request: CommandRequest, decided: Decided) -> CommandDecided:
    """The one entry that a decision becomes."""
    return CommandDecided(
        command=request.id,
        asked_by=request.asked_by,
        events=decided.events,
        subject=decided.subject,
    )


def next_attempt(state: State, instance: Instance) -> int:
    """The attempt after every one that was wanted, or reported by one of its runners."""
    reported = (state.runners.get(shard.runner) for shard in instance.shards)
    attempts = [record.attempt for record in reported if record is not None]
    return max(state.attempts.get(instance.instance, 0), *attempts, 0) + 1


def _place(
    state: State, command: PlaceInstance, asked_by: NodeId, facts: Facts, ids: Ids
) -> Decision:
    card = find_card(facts, command.model)
    if isinstance(card, Refusal):
        return card
    wish = resolve(state, command.wish)
    if isinstance(wish, Refusal):
        return wish
    problem = check(state, card, wish)
    if problem is not None:
        return problem
    made = plan(state, card, wish, facts)
    if made.refusal is not None:
        soon = preparing_on(state, facts, card.model, wish)
        return soon or Refusal(NoFitError.__name__, made.refusal)
    instance = msgspec.structs.replace(
        make_instance(state, card, made.candidates[0], ids),
        requested_by=asked_by,
        placed_at=facts.now_wall,
        wish=wish,
    )
    return Decided((InstancePlaced(instance=instance),), instance.instance)


def make_instance(state: State, card: ModelCard, candidate: Candidate, ids: Ids) -> Instance:
    """The instance that a candidate becomes, with ids of its own."""
    costs = costs_of(card, candidate)
    shards = tuple(
        Shard(
            runner=RunnerId(_fresh("r-", state.runners, ids)),
            node=share.node,
            rank=rank,
            first_layer=share.first_layer,
            end_layer=share.end_layer,
            weight_bytes=costs.weight_bytes(share.first_layer, share.end_layer),
            cache_bytes=costs.cache_bytes(share.first_layer, share.end_layer),
        )
        for rank, share in enumerate(candidate.shares)
    )
    tensor = candidate.strategy == TENSOR
    return Instance(
        instance=InstanceId(_fresh("i-", state.instances, ids)),
        model=card.model,
        shards=shards,
        layer_count=card.layer_count,
        context_tokens=candidate.context_tokens,
        weight_format=candidate.weight_format,
        transport=candidate.transport,
        transport_reason=TRANSPORT_REASONS[candidate.strategy],
        requested_by=NodeId(""),
        predicted_tokens_per_second=candidate.predicted_tokens_per_second,
        predicted_prompt_tokens_per_second=candidate.predicted_prompt_tokens_per_second,
        # Of sums over a ring nothing can be learnt about how fast a node is.
        table_tokens_per_second=0.0 if tensor else candidate.table_tokens_per_second,
        table_prompt_tokens_per_second=0.0 if tensor else candidate.table_prompt_tokens_per_second,
        tensor=tensor,
    )


def _fresh(prefix: str, taken: Container[str], ids: Ids) -> str:
    while (made := prefix + ids(ID_CHARACTERS)) in taken:
        pass
    return made


def _tend(state: State, command: StopInstance | RestartInstance, asked_by: NodeId) -> Decision:
    """Decide on an instance that exists."""
    key = find_instance(state, command.instance)
    if isinstance(key, Refusal):
        return key
    instance = state.instances[key]
    if isinstance(command, StopInstance):
        events = () if instance.removing else (InstanceStopping(instance=key),)
        return Decided(events, key)
    return _restart(state, instance, asked_by)


def _restart(state: State, instance: Instance, asked_by: NodeId) -> Decision:
    key = instance.instance
    if instance.removing:
        return refusal(
            ConflictError, "instance_stopping", f"{key} is being stopped", "place the model again"
        )
    records = [state.nodes.get(node) for node in instance.nodes]
    absent = [
        name_of(state, node)
        for node, record in zip(instance.nodes, records, strict=True)
        if record is None or record.lost
    ]
    if absent:
        return refusal(
            ConflictError,
            "node_lost",
            f"{key} needs {', '.join(absent)}, which can't be reached",
            f"wait until it is back, or stop {key} and place the model on other nodes",
            absent[0],
        )
    event = RunnerRestartRequested(
        instance=key,
        attempt=next_attempt(state, instance),
        reason=f"asked for on {name_of(state, asked_by)}",
    )
    return Decided((event,), key)


def _step_down(state: State) -> Decision:
    """The office goes over once this is committed; whose disk is in sync can take it."""
    master = state.master
    others = [
        node
        for node in state.in_sync
        if node != master and node in state.nodes and not state.nodes[node].lost
    ]
    if not others:
        return refusal(
            ConflictError,
            "no_successor",
            f"no other node could take over from {name_of(state, master)}:"
            f" {len(state.nodes) - 1} others are members, none of them up and in sync",
            "start another node, and wait until `exoctl cluster status` shows it in sync",
        )
    return Decided((), master)


def _govern(
    state: State,
    command: AdmitNode | RemoveNode | CordonNode | NameNode | LabelNode,
    asked_by: NodeId,
) -> Decision:
    """Decide on the cluster's nodes."""
    if isinstance(command, AdmitNode):
        return _admit(state, command, asked_by)
    node = find_node(state, command.node)
    if isinstance(node, Refusal):
        return node
    if isinstance(command, RemoveNode):
        return _remove(state, node, command.reason[:REASON_LENGTH_MAX])
    if isinstance(command, NameNode | LabelNode):
        events = (
            name_node(state, node, command.name)
            if isinstance(command, NameNode)
            else label_node(state, node, command.labels)
        )
        return events if isinstance(events, Refusal) else Decided(events, node)
    if state.nodes[node].cordoned == command.cordoned:
        return Decided((), node)
    return Decided((NodeCordoned(node=node, cordoned=command.cordoned),), node)


def _admit(state: State, command: AdmitNode, asked_by: NodeId) -> Decision:
    """Let a node in. One that left or was removed comes back when a person vouches for it anew, by
    an invite or on screen, but never just because everybody on the network is let in.
    """
    node, name = command.node, command.name
    problem = name_problem(name if node else "")
    if problem is not None:
        return problem
    reason = state.revoked.get(node)
    if reason is not None and command.proof == PROOF_LAN:
        return refusal(
            RefusedError,
            "node_revoked",
            f"{name} ({short(node)}) is no longer of this cluster: {reason}",
            "invite it again: `exoctl cluster invite`",
            name,
        )
    addresses = command.addresses[:ADDRESSES_MAX]
    known = state.nodes.get(node)
    if known is not None and known.name == name and known.addresses == addresses:
        return Decided((), node)
    event = NodeAdmitted(node=node, name=name, admitted_by=asked_by, addresses=addresses)
    return Decided((event,), node)


def _remove(state: State, node: NodeId, reason: str) -> Decision:
    if len(state.nodes) == 1:
        return refusal(
            ConflictError,
            "last_node",
            f"{state.nodes[node].name} is the cluster's only node",
            "admit another first, or just stop it",
        )
    stopping = [
        InstanceStopping(instance=key)
        for key, instance in state.instances.items()
        if node in instance.nodes and not instance.removing
    ]
    return Decided((*stopping, NodeRevoked(node=node, reason=reason)), node)
