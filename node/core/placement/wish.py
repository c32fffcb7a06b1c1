"""Whether a wish can be meant: what is refused before any node's memory is looked at."""

from collections.abc import Iterator

from msgspec.structs import replace

from node.core.facts import Facts
from node.core.lookup import find_node
from node.core.placement.words import BYTES_MAX, listed
from node.core.refusal import Refusal, refusal
from node.model.card import ModelCard
from node.model.command import Wish
from node.model.errors import BusyError, ConflictError, NotFoundError, UsageError
from node.model.ids import ModelId, NodeId
from node.model.state import State

CONTEXT_TOKENS_DEFAULT = 4096
MODEL_PREPARING = "model_preparing"
"""Code of a refusal that passes by itself."""
STRATEGIES = ("auto", "single", "pipeline", "tensor")
REQUESTS_MAX = 64
"""Requests at once for which room may be asked."""
WEIGHT_FORMATS = ("auto", "as_stored", "dense")
RESTARTS = ("auto", "always", "never")


def context_tokens(card: ModelCard, wish: Wish) -> int:
    """The context that is placed: as asked, else 4096 or the model's own limit if that is less."""
    return wish.context_tokens or min(CONTEXT_TOKENS_DEFAULT, card.context_tokens_max)


def find_card(facts: Facts, model: ModelId) -> ModelCard | Refusal:
    """The model's card, or a refusal that lists the models there are."""
    card = facts.card(model)
    preparing = _preparing(facts, model, card)
    if preparing:
        return refusal(BusyError, MODEL_PREPARING, preparing, "try again in a moment")
    if card is not None:
        return card
    known = listed(facts.models())
    return refusal(
        NotFoundError,
        "model_not_found",
        f"no node holds a model called {model!r}",
        (f"`exoctl model pull {model}` fetches it from the hub; " if "/" in model else "")
        + (f"models: {known}" if known else "see `exoctl model ls`"),
    )


def _preparing(facts: Facts, model: ModelId, card: ModelCard | None) -> str:
    """Why nothing can be said of the model yet, though soon; empty where that is not so."""
    if card is not None and card.layers:
        return ""
    arriving = facts.arriving.get(model)
    if arriving is not None:
        share = arriving.bytes_done / arriving.bytes_total if arriving.bytes_total else 0.0
        return f"{model} is being made ready ({arriving.phase}, {share:.0%})"
    found = [held[model] for held in facts.held.values() if model in held]
    if any(held.failure is None for held in found):
        return f"{model} was just found and is being looked at"
    return "" if facts.held else "no node has reported its models yet"


def preparing_on(state: State, facts: Facts, model: ModelId, wish: Wish) -> Refusal | None:
    """That a node which may be used has not looked at its copy of the model yet, if so."""
    for node in wish.nodes or state.nodes:
        record = state.nodes.get(node)
        if record is None or record.lost or node in wish.exclude:
            continue
        held = facts.held.get(node)
        copy = held.get(model) if held is not None else None
        looks = copy is not None and not copy.complete and copy.failure is None
        if held is None or looks:
            message = f"{record.name} is still looking at its copy of {model}"
            return refusal(BusyError, MODEL_PREPARING, message, "try again in a moment")
    return None


def resolve(state: State, wish: Wish) -> Wish | Refusal:
    """The wish with every node by its whole id."""
    nodes: list[NodeId] = []
    exclude: list[NodeId] = []
    for texts, found in ((wish.nodes, nodes), (wish.exclude, exclude)):
        for text in texts:
            node = find_node(state, text)
            if isinstance(node, Refusal):
                return node
            found.append(node)
    return replace(wish, nodes=tuple(nodes), exclude=tuple(exclude))


def check(state: State, card: ModelCard, wish: Wish) -> Refusal | None:
    """The first thing that is wrong with a resolved wish, whatever the machines are like."""
    for problem in _problems(state, card, wish):
        return problem
    return None


def _problems(state: State, card: ModelCard, wish: Wish) -> Iterator[Refusal]:
    yield from _problems_of_card(card, min(context_tokens(card, wish), card.context_tokens_max))
    yield from _problems_of_options(card, wish)
    yield from _problems_of_nodes(state, wish)
    yield from _problems_of_cuts(card, wish)


def _problems_of_card(card: ModelCard, tokens: int) -> Iterator[Refusal]:
    sizes = [card.embedding_bytes, card.dense_embedding_bytes, card.activation_bytes_per_token]
    for layer in card.layers:
        sizes += (layer.weights, layer.kv_per_token, layer.dense_weights)
    for rank in card.tensor_ranks:
        sizes += (rank.ranks - 2, rank.weights, tokens * rank.kv_per_token, rank.dense_weights)
    cache_bytes = REQUESTS_MAX * tokens * sum(layer.kv_per_token for layer in card.layers)
    sensible = card.context_tokens_max > 0 and card.parameters >= 0 and min(sizes) >= 0
    if not card.layers or not sensible or sum(sizes) + cache_bytes > BYTES_MAX:
        yield refusal(
            UsageError,
            "model_unreadable",
            f"what is known of {card.model} makes no sense: its files can't be read",
            "fetch or import it again",
        )


def _problems_of_options(card: ModelCard, wish: Wish) -> Iterator[Refusal]:
    for name, value, known in (
        ("strategy", wish.strategy, STRATEGIES),
        ("weight format", wish.weight_format, WEIGHT_FORMATS),
        ("policy of restarts", wish.restart, RESTARTS),
    ):
        if value not in known:
            yield _usage(f"no {name} is called {value!r}", f"use {', '.join(known)}")
    if not 0 <= wish.context_tokens <= card.context_tokens_max:
        yield refusal(
            UsageError,
            "context_out_of_range",
            f"a context of {wish.context_tokens} tokens was asked, {card.model} takes"
            f" 1 to {card.context_tokens_max}",
            "ask for less",
        )
    if not 1 <= wish.requests <= REQUESTS_MAX:
        yield _usage(
            f"room for {wish.requests} requests at once makes no sense", f"use 1 to {REQUESTS_MAX}"
        )
    if wish.nodes_min < 1:
        yield _usage(f"at least {wish.nodes_min} nodes makes no sense", "use 1 or more")
    if wish.weight_format == "dense" and not any(layer.dense_weights for layer in card.layers):
        yield _usage(
            f"the weights of {card.model} are not packed, there is nothing to unpack",
            "leave the weight format out",
        )


def _problems_of_nodes(state: State, wish: Wish) -> Iterator[Refusal]:
    count = len(wish.nodes)
    names = [state.nodes[node].name for node in wish.nodes]
    if len(set(wish.nodes)) < count:
        yield _usage(f"a node is named twice: {', '.join(names)}", "name each once")
    both = [state.nodes[node].name for node in wish.nodes if node in wish.exclude]
    if both:
        yield _usage(f"{', '.join(both)} can't be both used and excluded", "drop one of the two")
    if count and wish.nodes_min > count:
        yield _usage(
            f"at least {wish.nodes_min} nodes were asked, but only {count} named",
            "name more nodes, or none",
        )
    if wish.strategy == "single" and max(count, wish.nodes_min) > 1:
        yield _usage("a single node was asked, and several nodes too", "drop one of the two")
    if wish.strategy in ("pipeline", "tensor") and count == 1:
        what = "a pipeline" if wish.strategy == "pipeline" else "tensor parallel"
        yield _usage(f"{what} needs two nodes, only {names[0]} is named", "name more")
    for node in wish.nodes:
        record = state.nodes[node]
        if record.lost:
            yield refusal(
                ConflictError,
                "node_lost",
                f"{record.name} is lost: {record.lost_reason or 'it is not heard'}",
                "leave it out, or wait until it is back",
                record.name,
            )
        if record.cordoned:
            yield refusal(
                ConflictError,
                "node_cordoned",
                f"{record.name} is cordoned: no new shards are placed on it",
                f"leave it out, or `exoctl node uncordon {record.name}`",
                record.name,
            )


def _problems_of_ranks(card: ModelCard, wish: Wish) -> Iterator[Refusal]:
    """What stands against dividing every layer among the nodes."""
    possible = [rank.ranks for rank in card.tensor_ranks]
    count = len(wish.nodes)
    least = count or wish.nodes_min
    if wish.layers:
        yield _usage("with tensor parallel every node has a part of every layer", "drop --layers")
    if not possible:
        yield refusal(
            UsageError,
            "model_indivisible",
            f"the layers of {card.model} can't be divided among nodes: {card.tensor_reason}",
            "place it as a pipeline, or on a single node",
        )
    elif (count and count not in possible) or least > possible[-1]:
        numbers = " or ".join(str(number) for number in possible)
        yield refusal(
            UsageError,
            "ranks_indivisible",
            f"the layers of {card.model} ({card.attention_heads} heads, {card.kv_heads} key/value"
            f" heads) can be divided among {numbers} nodes, not {least}",
            f"name {numbers} nodes, or place it as a pipeline",
        )


def _problems_of_cuts(card: ModelCard, wish: Wish) -> Iterator[Refusal]:
    if wish.strategy == "tensor":
        yield from _problems_of_ranks(card, wish)
        return
    stages = max(len(wish.nodes), wish.nodes_min, 2 if wish.strategy == "pipeline" else 1)
    if stages > 1 and card.uncuttable_reason:
        yield refusal(
            UsageError,
            "model_uncuttable",
            f"{card.model} can't be cut over {stages} nodes: {card.uncuttable_reason}",
            "place it on a single node",
        )
    stages_max = card.layer_count - len({*card.forbidden_cuts} & {*range(1, card.layer_count)})
    if stages > stages_max:
        yield _usage(
            f"{card.model} can be cut into {stages_max} stages at most, {stages} were asked",
            "use fewer nodes",
        )
    if wish.layers:
        yield from _problems_of_layers(card, wish)


def _problems_of_layers(card: ModelCard, wish: Wish) -> Iterator[Refusal]:
    if len(wish.layers) != len(wish.nodes):
        yield _usage(
            f"{len(wish.layers)} layer counts were given for {len(wish.nodes)} nodes",
            "give one for each node, in the same order",
        )
    if min(wish.layers) < 1 or sum(wish.layers) != card.layer_count:
        given = " + ".join(str(count) for count in wish.layers)
        yield _usage(
            f"{given} makes {sum(wish.layers)} layers, {card.model} has {card.layer_count}",
            "give at least 1 to each node, and all of them",
        )
    position = 0
    for count in wish.layers[:-1]:
        position += count
        if position in card.forbidden_cuts:
            yield refusal(
                UsageError,
                "cut_forbidden",
                f"{card.model} can't be cut before layer {position}: the layers around it"
                " depend on each other",
                "move a layer to a neighbour",
            )


def _usage(message: str, remedy: str) -> Refusal:
    return refusal(UsageError, "bad_wish", message, remedy)
