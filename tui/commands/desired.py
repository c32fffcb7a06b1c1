"""A cluster as somebody wants it, as a file says it: read, written, compared."""

import tomllib
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from node.model.errors import UsageError
from node.model.ids import InstanceId, ModelId, NodeId
from node.model.instance import Instance
from node.model.state import State
from tui.commands.naming import find_node, node_name

API_VERSION = "exoctl/v1"
Name = Annotated[str, Meta(min_length=1, max_length=200)]
INSTANCES_MAX = 1000


class WantedInstance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that is to run; what is left out, placement chooses."""

    model: Name
    replicas: Annotated[int, Meta(ge=0, le=100)] = 1
    nodes: tuple[Name, ...] = ()
    layers: tuple[Annotated[int, Meta(ge=1)], ...] = ()
    context: Annotated[int, Meta(ge=0)] = 0
    weights: Literal["auto", "as_stored", "dense"] = "auto"
    restart: Literal["auto", "always", "never"] = "auto"
    strategy: Literal["auto", "tensor"] = "auto"
    parallel: Annotated[int, Meta(ge=1, le=64)] = 1


class WantedNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a node is to be."""

    name: Name
    cordoned: bool = False


class Desired(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    api_version: str = msgspec.field(name="apiVersion", default=API_VERSION)
    instance: Annotated[tuple[WantedInstance, ...], Meta(max_length=INSTANCES_MAX)] = ()
    node: Annotated[tuple[WantedNode, ...], Meta(max_length=INSTANCES_MAX)] = ()


class _Exported(msgspec.Struct, frozen=True, kw_only=True):
    """As `exoctl export -o json` writes it."""

    items: Annotated[tuple[Desired, ...], Meta(min_length=1, max_length=1)]


class Place(msgspec.Struct, frozen=True, tag=True):
    """An instance is missing."""

    wanted: WantedInstance


class Stop(msgspec.Struct, frozen=True, tag=True):
    """An instance is not wanted."""

    instance: InstanceId
    model: ModelId


class Cordon(msgspec.Struct, frozen=True, tag=True):
    """A node takes shards, or does not, against what is wanted."""

    node: NodeId
    name: str
    cordoned: bool


Change = Place | Stop | Cordon


def read_desired(words: str, source: str) -> Desired:
    """Read TOML, or JSON where the words begin with a brace.

    Raises:
        UsageError: it can't be read, or says something that does not exist.
    """
    try:
        if words.lstrip().startswith("{"):
            whole = msgspec.json.decode(words, type=dict[str, object])
        else:
            whole = tomllib.loads(words)
        if "items" in whole:
            desired = msgspec.convert(whole, _Exported).items[0]
        else:
            desired = msgspec.convert(whole, Desired)
    except (tomllib.TOMLDecodeError, msgspec.MsgspecError, RecursionError) as error:
        raise UsageError.because(
            "bad_file", f"{source}: {error}", "`exoctl export` shows how one looks"
        ) from error
    if desired.api_version != API_VERSION:
        raise UsageError.because(
            "bad_version", f"{source}: apiVersion {desired.api_version!r}", f"use {API_VERSION}"
        )
    for wanted in desired.instance:
        if wanted.layers and len(wanted.layers) != len(wanted.nodes):
            raise UsageError.because(
                "bad_layers",
                f"{source}: {wanted.model} names {len(wanted.layers)} counts of layers "
                f"for {len(wanted.nodes)} nodes",
                "give one count for each node",
            )
    return desired


def current(state: State) -> Desired:
    """The cluster as it is, as one could want it again."""
    return Desired(
        instance=tuple(
            WantedInstance(
                model=instance.model,
                nodes=tuple(node_name(state, node) for node in instance.nodes),
                layers=_layers(instance),
                context=instance.context_tokens,
                weights=instance.weight_format.value,
                restart=_restart(instance),
                strategy="tensor" if instance.tensor else "auto",
                parallel=instance.wish.requests,
            )
            for instance in _standing(state)
        ),
        node=tuple(
            WantedNode(name=record.name, cordoned=record.cordoned)
            for record in sorted(state.nodes.values(), key=lambda item: item.admitted_index)
            if not record.lost
        ),
    )


def write_desired(desired: Desired) -> str:
    """As TOML."""
    lines = [f'apiVersion = "{desired.api_version}"']
    for wanted in desired.instance:
        lines += ["", "[[instance]]", *_fields(wanted)]
    for node in desired.node:
        lines += ["", "[[node]]", *_fields(node)]
    return "\n".join(lines) + "\n"


def _fields(value: WantedInstance | WantedNode) -> list[str]:
    defaults = {f.name: f.default for f in msgspec.structs.fields(value)}
    return [
        f"{name} = {msgspec.json.encode(held).decode()}"
        for name in value.__struct_fields__
        if (held := getattr(value, name)) != defaults[name] or name in ("name", "model", "cordoned")
    ]


def changes(state: State, desired: Desired, *, prune: bool) -> list[Change]:
    """What must be done, so that the cluster is as it is wanted; stops come first.

    Raises:
        NotFoundError: a node that is named does not exist.
    """
    free = list(_standing(state))
    missing: list[Change] = []
    for wanted in sorted(desired.instance, key=lambda item: -len(item.nodes)):
        names = tuple(find_node(state, name) for name in wanted.nodes)
        for _ in range(wanted.replicas):
            held = next((each for each in free if _is(each, wanted, names)), None)
            if held is not None:
                free.remove(held)
            else:
                missing.append(Place(wanted))
    cordons: list[Change] = []
    for each in desired.node:
        node = find_node(state, each.name)
        if state.nodes[node].cordoned != each.cordoned:
            cordons.append(Cordon(node, each.name, each.cordoned))
    stops: list[Change] = [Stop(each.instance, each.model) for each in free] if prune else []
    return [*cordons, *stops, *missing]


def _standing(state: State) -> Sequence[Instance]:
    found = [each for each in state.instances.values() if not each.removing]
    return sorted(found, key=lambda item: (item.placed_index, item.instance))


def _layers(instance: Instance) -> tuple[int, ...]:
    if instance.tensor:
        return ()  # a part of each on every node
    return tuple(shard.end_layer - shard.first_layer for shard in instance.shards)


def _is(instance: Instance, wanted: WantedInstance, nodes: tuple[NodeId, ...]) -> bool:
    return (
        instance.model == wanted.model
        and nodes in ((), instance.nodes)
        and wanted.layers in ((), _layers(instance))
        and wanted.context in (0, instance.context_tokens)
        and wanted.weights in ("auto", instance.weight_format.value)
        and wanted.restart in ("auto", instance.wish.restart)
        and (wanted.strategy == "auto" or instance.tensor)
        and wanted.parallel <= instance.wish.requests
    )


def _restart(instance: Instance) -> Literal["auto", "always", "never"]:
    word = instance.wish.restart
    return word if word in ("always", "never") else "auto"


def words_of(change: Change) -> str:
    """One line of a difference."""
    match change:
        case Place(wanted=wanted):
            where = f" on {', '.join(wanted.nodes)}" if wanted.nodes else ""
            context = f", {wanted.context:,} tokens of context" if wanted.context else ""
            return f"+ {wanted.model}{where}{context}"
        case Stop(instance=instance, model=model):
            return f"- {model} ({instance})"
        case Cordon(name=name, cordoned=cordoned):
            return f"~ {name}: {'cordoned' if cordoned else 'takes shards again'}"
