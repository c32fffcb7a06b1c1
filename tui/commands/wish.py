"""How a person says where a model is to go: the options of `plan` and `load`."""

from typing import Annotated

import msgspec
import typer

from node.model.command import Wish
from node.model.errors import NotFoundError, UsageError
from node.model.ids import NodeId
from node.model.state import State
from tui.commands.naming import find_nodes, has_labels
from tui.commands.units import parse_tokens

STRATEGIES = ("auto", "single", "pipeline", "tensor")
WEIGHT_FORMATS = ("auto", "as_stored", "dense")
RESTARTS = ("auto", "always", "never")
Nodes = Annotated[
    str, typer.Option("--nodes", metavar="A,B", help="These nodes and all of them, in this order.")
]
Exclude = Annotated[str, typer.Option("--exclude", metavar="A,B", help="None of these nodes.")]
Label = Annotated[
    str,
    typer.Option("-l", "--label", metavar="K=V,K", help="Only nodes with these labels."),
]
Context = Annotated[
    str, typer.Option("--ctx", metavar="32k", help="Tokens of context to make room for.")
]
Parallel = Annotated[
    int,
    typer.Option(
        "--parallel",
        metavar="N",
        min=1,
        max=64,
        help="Requests at once, each with a whole context.",
    ),
]
Layers = Annotated[
    str, typer.Option("--layers", metavar="20,10", help="Layers per node, in the order of --nodes.")
]
MinNodes = Annotated[
    int, typer.Option("--min-nodes", metavar="N", min=1, help="At least so many nodes.")
]
Strategy = Annotated[
    str, typer.Option("--strategy", metavar="NAME", help="auto, single, pipeline or tensor.")
]
Weights = Annotated[
    str,
    typer.Option("--weights", metavar="FORM", help="In memory: auto, as_stored or dense."),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Place it even where memory is short: the system may kill it."),
]


Restart = Annotated[
    str,
    typer.Option(
        "--restart",
        metavar="WHEN",
        help="When a runner or node is lost: auto (start again; after 10 s place anew within the"
        " wish), always (also on other nodes than --nodes), never.",
    ),
]


class WishOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options as they were typed."""

    nodes: str = ""
    exclude: str = ""
    label: str = ""
    context: str = ""
    layers: str = ""
    nodes_min: int = 1
    strategy: str = "auto"
    weights: str = "auto"
    force: bool = False
    restart: str = "auto"
    parallel: int = 1


def make_wish(state: State, options: WishOptions) -> Wish:
    """The wish that the options stand for.

    Raises:
        UsageError: an option can't be meant as written. NotFoundError: no such node.
    """
    nodes = find_nodes(state, options.nodes)
    layers = _layers(options.layers)
    if layers and len(layers) != len(nodes):
        raise UsageError.because(
            "bad_layers",
            f"--layers names {len(layers)} counts, --nodes names {len(nodes)} nodes",
            "give one count for each node, such as --nodes a,b --layers 20,10",
        )
    if len(set(nodes)) != len(nodes):
        raise UsageError.because("bad_nodes", f"--nodes {options.nodes} names a node twice")
    return Wish(
        nodes=nodes,
        exclude=_excluded(state, options),
        nodes_min=options.nodes_min,
        context_tokens=parse_tokens(options.context) if options.context else 0,
        strategy=_one_of("--strategy", options.strategy, STRATEGIES),
        layers=layers,
        weight_format=_one_of("--weights", options.weights, WEIGHT_FORMATS),
        force=options.force,
        restart=_one_of("--restart", options.restart, RESTARTS),
        requests=options.parallel,
    )


def _excluded(state: State, options: WishOptions) -> tuple[NodeId, ...]:
    """The nodes that were named, and those without the labels that were asked for."""
    named = find_nodes(state, options.exclude)
    without = [
        record.node
        for record in state.nodes.values()
        if record.node not in named and not has_labels(record, options.label)
    ]
    if options.label and len(without) == len(state.nodes):
        raise NotFoundError.because(
            "no_node_labelled",
            f"no node has {options.label}",
            "see `exoctl node ls -o wide`; `exoctl node label NODE KEY=VALUE` sets one",
        )
    return (*named, *without)


def _layers(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 6 for part in parts):
        raise UsageError.because(
            "bad_layers", f"--layers {text!r} is no list of counts", "write --layers 20,10"
        )
    return tuple(int(part) for part in parts)


def _one_of(option: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise UsageError.because(
            "bad_choice", f"{option} {value!r} does not exist", f"use {', '.join(choices)}"
        )
    return value
