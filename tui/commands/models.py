"""`exoctl model`: the models that lie on the nodes."""

from typing import Annotated

import msgspec
import typer

from node.handle import NodeHandle
from node.model.card import ModelCard
from node.model.errors import NotFoundError
from node.model.ids import ModelId, NodeId
from node.model.register import DownloadFigures, DownloadRecord, HeldModel, ModelFigures
from tui.commands.console import Console, Listing
from tui.commands.figures import condition, figures, placement_text
from tui.commands.fit import fit_table, fits
from tui.commands.jsonable import fields_of, jsonable
from tui.commands.load import ModelArgument
from tui.commands.naming import find_model, node_name
from tui.commands.plain import Column, Table
from tui.commands.units import NOTHING, bytes_text, count_text, tokens_text

_COLUMNS = (
    Column("MODEL", shrinks=True),
    Column("STATE", toned=True),
    Column("SIZE", right=True),
    Column("PARAMS", right=True, extra=True),
    Column("BITS", right=True, extra=True),
    Column("LAYERS", right=True),
    Column("CTX", right=True, extra=True),
    Column("NODES", shrinks=True),
    Column("INSTANCES", right=True, extra=True),
    Column("KIND", wide=True),
    Column("SOURCE", wide=True, shrinks=True),
)


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """One model, and who has how much of it."""

    model: ModelId
    card: ModelCard | None
    holders: tuple[tuple[NodeId, HeldModel], ...]
    downloads: tuple[tuple[NodeId, DownloadRecord], ...]

    @property
    def word(self) -> str:
        """`complete` on some node, else what its most advanced download does, else `partial`."""
        if any(held.complete for _, held in self.holders):
            return "complete"
        if any(held.failure for _, held in self.holders):
            return "failed"
        if not self.holders and not self.downloads:
            return "on the hub"
        return next((record.phase for _, record in self.downloads), "partial")


def model_ls(console: Console) -> None:
    """List the models that lie on the nodes or are on their way."""

    async def work(handle: NodeHandle) -> None:
        views = model_views(handle)
        console.emit(_listing(handle, views))

    console.connected(work)


def model_show(
    console: Console,
    model: ModelArgument,
    *,
    fit: Annotated[
        bool, typer.Option("--fit", help="Whether it fits into each node's free memory.")
    ] = False,
    revision: Annotated[
        str, typer.Option("--revision", help="Of a model that is on the hub alone.")
    ] = "main",
) -> None:
    """Show everything known of one model; of one on the hub from its headers alone."""

    async def work(handle: NodeHandle) -> None:
        wanted = find_model(handle, model)
        views = [view for view in model_views(handle) if view.model == wanted]
        is_known = any(view.card is not None or view.downloads for view in views)
        if not is_known and "/" in wanted:
            card = await handle.describe_model(wanted, revision)
            views = [ModelView(model=wanted, card=card, holders=(), downloads=())]
        if not views:
            raise NotFoundError.because(
                "model_not_found", f"no node holds the model {model!r}", "see `exoctl model ls`"
            )
        card = views[0].card
        room = fits(handle, card) if fit and card is not None else []
        if console.settings.is_plain_data:
            extra: dict[str, object] = {}
            if fit:
                extra["fit"] = [{**fields_of(each), "fits": each.word == "yes"} for each in room]
            console.emit(msgspec.structs.replace(_listing(handle, views), extra=extra))
        else:
            console.table(_facts(handle, views[0]))
            if room:
                console.table(fit_table(room))

    console.connected(work)


def model_views(handle: NodeHandle) -> list[ModelView]:
    """All models that some node holds or fetches, by name."""
    holders: dict[ModelId, list[tuple[NodeId, HeldModel]]] = {}
    downloads: dict[ModelId, list[tuple[NodeId, DownloadRecord]]] = {}
    for node in handle.state.nodes:
        models = figures(handle, node, ModelFigures)
        for held in models.held if models else ():
            holders.setdefault(held.card.model, []).append((node, held))
        queue = figures(handle, node, DownloadFigures)
        for record in queue.downloads if queue else ():
            downloads.setdefault(record.model, []).append((node, record))
    return [
        ModelView(
            model=model,
            card=_first_known(holders.get(model, [])),
            holders=tuple(holders.get(model, ())),
            downloads=tuple(downloads.get(model, ())),
        )
        for model in sorted(holders.keys() | downloads.keys())
    ]


def _first_known(holders: list[tuple[NodeId, HeldModel]]) -> ModelCard | None:
    """A card that was made from the files; one of files that can't be read has no layers."""
    return next((held.card for _, held in holders if held.card.layers), None)


def _listing(handle: NodeHandle, views: list[ModelView]) -> Listing:
    return Listing(
        kind="Model",
        index=handle.state.index,
        items=[_item(handle, view) for view in views],
        table=Table(
            _COLUMNS,
            tuple(_row(handle, view) for view in views),
            empty="no models on any node",
        ),
        names=tuple(view.model for view in views),
    )


def _instance_ids(handle: NodeHandle, model: ModelId) -> list[str]:
    return [key for key, placed in handle.state.instances.items() if placed.model == model]


def _row(handle: NodeHandle, view: ModelView) -> tuple[str, ...]:
    card = view.card
    where = ", ".join(_holder_text(handle, node, held) for node, held in view.holders)
    where = where or ", ".join(node_name(handle.state, node) for node, _ in view.downloads)
    return (
        view.model,
        view.word,
        bytes_text(_size(view)),
        count_text(card.parameters) if card else NOTHING,
        (str(card.quantisation_bits) if card.quantisation_bits else "full") if card else NOTHING,
        str(card.layer_count) if card else NOTHING,
        tokens_text(card.context_tokens_max) if card else NOTHING,
        where or NOTHING,
        str(len(_instance_ids(handle, view.model))),
        card.architecture if card else NOTHING,
        card.source if card else NOTHING,
    )


def _size(view: ModelView) -> int:
    """What it takes on a disk; of one that lies nowhere whole, what is known of that."""
    whole = [held.bytes_on_disk for _, held in view.holders if held.complete]
    if whole:
        return max(whole)
    coming = [record.bytes_total for _, record in view.downloads]
    parts = [held.bytes_on_disk for _, held in view.holders]
    if any(coming):
        return max(coming)
    return view.card.weight_bytes if view.card else max(parts, default=0)


def _holder_text(handle: NodeHandle, node: NodeId, held: HeldModel) -> str:
    name = node_name(handle.state, node)
    return name if held.complete else f"{name} {held.fraction:.0%}"


def _item(handle: NodeHandle, view: ModelView) -> dict[str, object]:
    card = view.card
    facts: dict[str, object] = {}
    if card is not None:
        # Thirty to a hundred equal layers say nothing to a reader; their sum does.
        facts = {key: value for key, value in fields_of(card).items() if key != "layers"}
        facts["layer_count"] = card.layer_count
        facts["weight_bytes"] = card.weight_bytes
        facts["kv_bytes_per_token"] = sum(layer.kv_per_token for layer in card.layers)
    return {
        "model": view.model,
        "state": view.word,
        "card": facts or None,
        "nodes": [
            {
                "node": node,
                "name": node_name(handle.state, node),
                "complete": held.complete,
                "fraction": held.fraction,
                "bytes_on_disk": held.bytes_on_disk,
                "failure": jsonable(held.failure),
            }
            for node, held in view.holders
        ],
        "downloads": [
            {"node": node, "name": node_name(handle.state, node), **fields_of(record)}
            for node, record in view.downloads
        ],
        "instances": _instance_ids(handle, view.model),
    }


def _facts(handle: NodeHandle, view: ModelView) -> Table:
    facts: list[tuple[str, str]] = [("model", view.model), ("state", view.word)]
    card = view.card
    if card is not None:
        cut = card.uncuttable_reason or f"yes, but not before layers {card.forbidden_cuts}"
        per_token = sum(layer.kv_per_token for layer in card.layers)
        facts += [
            ("kind", card.architecture),
            ("source", card.source),
            ("parameters", f"{card.parameters:,}"),
            ("weights", f"{bytes_text(card.weight_bytes)}, which go into memory"),
            ("bits", str(card.quantisation_bits) if card.quantisation_bits else "not quantised"),
            ("layers", str(card.layer_count)),
            ("context", f"{card.context_tokens_max} tokens at most"),
            ("cache", f"{bytes_text(per_token)} per token of context"),
            ("may be cut", cut if card.uncuttable_reason or card.forbidden_cuts else "anywhere"),
            ("tools", "yes" if card.supports_tools else "no"),
            ("thinking", "yes" if card.supports_thinking else "no"),
        ]
    for node, held in view.holders:
        text = f"{node_name(handle.state, node)}  {held.fraction:.0%}  "
        facts.append(("on node", text + bytes_text(held.bytes_on_disk)))
        if held.failure is not None:
            facts.append(("failure", held.failure.message))
    for node, record in view.downloads:
        done = f"{bytes_text(record.bytes_done)} of {bytes_text(record.bytes_total)}"
        facts.append(("download", f"{node_name(handle.state, node)}  {record.phase}  {done}"))
    for instance in handle.state.instances.values():
        if instance.model == view.model:
            word = condition(handle, instance).word
            where = placement_text(handle.state, instance)
            facts.append(("instance", f"{instance.instance}  {word}  {where}"))
    return Table((Column("FACT"), Column("VALUE", shrinks=True)), tuple(facts))
