"""`exoctl plan`: every way a model could be placed, with its numbers."""

from typing import Annotated

import typer

from node.handle import NodeHandle
from node.model.errors import Failure, NoFitError
from node.model.topology import Candidate, NodeShare, Plan
from tui.commands.console import Console, Listing
from tui.commands.figures import layers_text
from tui.commands.jsonable import fields_of, jsonable
from tui.commands.load import ModelArgument
from tui.commands.naming import find_model
from tui.commands.plain import Column, Table
from tui.commands.units import NOTHING, duration_text, rate_text, tokens_text
from tui.commands.wish import (
    Context,
    Exclude,
    Label,
    Layers,
    MinNodes,
    Nodes,
    Parallel,
    Strategy,
    Weights,
    WishOptions,
    make_wish,
)
from tui.viewmodel import text
from tui.viewmodel.plans import speed_words
from tui.viewmodel.text import clean

_COLUMNS = (
    Column("#", right=True),
    Column("FITS", toned=True),
    Column("STRATEGY"),
    Column("LAYERS", shrinks=True),
    Column("ADDS", right=True),
    Column("TOK/S", right=True),
    Column("FIRST TOKEN", right=True, extra=True),
    Column("CTX", right=True, extra=True),
    Column("WEIGHTS", wide=True),
    Column("WHY NOT", shrinks=True),
)
_SHARES = (
    Column("  NODE", shrinks=True),
    Column("LAYERS"),
    Column("USED", right=True),
    Column("ADDS", right=True),
    Column("LIMIT", right=True),
    Column("LEFT", right=True),
    Column("FILES"),
)


def plan(
    console: Console,
    model: ModelArgument,
    *,
    nodes: Nodes = "",
    exclude: Exclude = "",
    label: Label = "",
    ctx: Context = "",
    parallel: Parallel = 1,
    layers: Layers = "",
    min_nodes: MinNodes = 1,
    strategy: Strategy = "auto",
    weights: Weights = "auto",
    explain: Annotated[
        bool, typer.Option("--explain", help="Each node's bytes, hops, warnings and reasons.")
    ] = False,
) -> None:
    """Show every way to place a model now, best first; places nothing."""
    options = WishOptions(
        nodes=nodes,
        exclude=exclude,
        label=label,
        context=ctx,
        parallel=parallel,
        layers=layers,
        nodes_min=min_nodes,
        strategy=strategy,
        weights=weights,
    )

    async def work(handle: NodeHandle) -> None:
        wish = make_wish(handle.state, options)
        found = await handle.plan(find_model(handle, model), wish)
        console.emit(_listing(handle, found))
        best = found.candidates[0] if found.candidates else None
        is_read = not console.settings.is_plain_data
        if best is not None and is_read and best.predicted_tokens_per_second:
            console.say(speed_words(best.predicted_prompt_tokens, measured=best.measured))
        if explain and not console.settings.is_plain_data:
            _explain(console, found)
        if found.refusal is not None:
            raise NoFitError(found.refusal)

    console.connected(work)


def _listing(handle: NodeHandle, found: Plan) -> Listing:
    return Listing(
        kind="Plan",
        index=handle.state.index,
        items=[
            {**fields_of(candidate), "shares": [_share_item(share) for share in candidate.shares]}
            for candidate in found.candidates
        ],
        table=Table(
            _COLUMNS,
            tuple(_row(number, each) for number, each in enumerate(found.candidates, 1)),
        ),
        names=tuple(_layers(candidate) for candidate in found.candidates),
        extra={"model": found.model, "refusal": jsonable(found.refusal)},
    )


def _share_item(share: NodeShare) -> dict[str, object]:
    return {**fields_of(share), "bytes_slack": share.bytes_slack}


def _layers(candidate: Candidate) -> str:
    return ", ".join(
        f"{share.name} {layers_text(share.first_layer, share.end_layer)}"
        for share in candidate.shares
    )


def _row(number: int, candidate: Candidate) -> tuple[str, ...]:
    first = candidate.predicted_first_token_seconds
    return (
        str(number),
        "yes" if candidate.fits else "no",
        candidate.strategy,
        _layers(candidate),
        text.memory(sum(share.bytes_added for share in candidate.shares)),
        rate_text(candidate.predicted_tokens_per_second),
        duration_text(first) if first > 0 else NOTHING,
        tokens_text(candidate.context_tokens),
        candidate.weight_format.value,
        candidate.refusal.message if candidate.refusal else "",
    )


def _explain(console: Console, found: Plan) -> None:
    names = {share.node: share.name for each in found.candidates for share in each.shares}
    for number, candidate in enumerate(found.candidates, 1):
        console.write("")
        console.write(
            clean(
                f"{number}. {candidate.strategy} over {candidate.transport}: {_layers(candidate)}"
            )
        )
        console.table(Table(_SHARES, tuple(_share_row(share) for share in candidate.shares)))
        for hop in candidate.hops:
            trip, speed = text.round_trip(hop.rtt_seconds), text.bandwidth(hop.bits_per_second)
            ends = f"{names.get(hop.source, hop.source)} -> {names.get(hop.target, hop.target)}"
            console.write(clean(f"  hop {ends}  {hop.medium or NOTHING}  {trip}  {speed}"))
        for warning in candidate.warnings:
            console.write(clean(f"  warning: {warning}"))
        if candidate.refusal is not None:
            console.write(clean(f"  why not: {_failure_text(candidate.refusal)}"))


def _failure_text(failure: Failure) -> str:
    return f"{failure.message}; {failure.remedy}" if failure.remedy else failure.message


def _share_row(share: NodeShare) -> tuple[str, ...]:
    return (
        f"  {share.name}",
        layers_text(share.first_layer, share.end_layer),
        text.memory(share.bytes_used),
        text.memory(share.bytes_added),
        text.memory(share.bytes_limit),
        text.memory(share.bytes_slack),
        "here" if share.held else "to fetch",
    )
