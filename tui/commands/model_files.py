"""`exoctl model rm|verify|import|prune|search`: bringing models to nodes, and off them."""

from pathlib import Path
from typing import Annotated

import typer

from node.handle import NodeHandle
from node.io import clock
from node.io.model_store.names import parse_model_id
from node.model.download import ImportModel, PruneModels, RemoveModel, VerifyModel
from node.model.errors import UsageError
from node.model.ids import ModelId, NodeId
from node.model.register import ModelFigures
from tui.commands.changes import check_may_change
from tui.commands.console import Console, Listing
from tui.commands.downloads import (
    NodeOption,
    downloads_listing,
    give,
)
from tui.commands.figures import figures
from tui.commands.jsonable import fields_of
from tui.commands.naming import find_model, find_node, node_name
from tui.commands.plain import Column, Table
from tui.commands.pull import records_of, wait_whole


def model_rm(
    console: Console,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")],
    *,
    node: NodeOption = "",
) -> None:
    """Delete a model's files; refused while an instance uses it."""

    async def work(handle: NodeHandle) -> None:
        found, where = await _here(handle, model, node)
        console.confirm(f"Delete {found} from {node_name(handle.state, where)}?")
        await give(console, handle, where, RemoveModel(model=found))

    console.connected(work)


def model_verify(
    console: Console,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")],
    *,
    node: NodeOption = "",
) -> None:
    """Hash a model's files anew, and fetch again what is damaged."""

    async def work(handle: NodeHandle) -> None:
        found, where = await _here(handle, model, node)
        check_may_change(console)
        asked_at = clock.wall()
        before = records_of(handle, found, (where,))
        done = await handle.order(where, VerifyModel(model=found))
        console.say(done.words)
        await wait_whole(console, handle, found, before, asked_at)
        if console.is_json:
            console.emit(downloads_listing(handle))

    console.connected(work, follow=True)


def model_import(
    console: Console,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A model directory, or a .gguf.")],
    *,
    name: Annotated[str, typer.Option("--name", help="What it is called; else as the path.")] = "",
    node: NodeOption = "",
) -> None:
    """Copy a model that lies on the node's machine among its models."""

    async def work(handle: NodeHandle) -> None:
        where = find_node(handle.state, node) if node else (await handle.local()).node
        whole = path if node else path.expanduser().absolute()
        called = name or (whole.stem if whole.suffix == ".gguf" else whole.name)
        await give(
            console, handle, where, ImportModel(path=str(whole), model=parse_model_id(called))
        )

    console.connected(work)


def model_prune(console: Console, *, node: NodeOption = "") -> None:
    """Delete what no model needs: parts of given-up downloads, replaced revisions."""

    async def work(handle: NodeHandle) -> None:
        where = find_node(handle.state, node) if node else (await handle.local()).node
        await give(console, handle, where, PruneModels())

    console.connected(work)


def model_search(
    console: Console,
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="What to look for.")],
) -> None:
    """Search the hub for models in MLX form."""

    async def work(handle: NodeHandle) -> None:
        found = await handle.search_models(" ".join(words))
        console.emit(
            Listing(
                kind="HubModel",
                index=handle.state.index,
                items=[fields_of(each) for each in found],
                table=Table(
                    (
                        Column("MODEL", shrinks=True),
                        Column("DOWNLOADS", right=True),
                        Column("LIKES", right=True),
                        Column("GATED"),
                    ),
                    tuple(
                        (
                            each.model,
                            f"{each.downloads:,}",
                            f"{each.likes:,}",
                            "yes" if each.gated else "no",
                        )
                        for each in found
                    ),
                    empty="nothing on the hub matches",
                ),
                names=tuple(each.model for each in found),
            )
        )

    console.connected(work)


async def _here(handle: NodeHandle, model: str, node: str) -> tuple[ModelId, NodeId]:
    """The model that a name means, and the node that is meant: named, this one, or its only holder.

    Raises:
        UsageError: several other nodes have it.
    """
    found = find_model(handle, model)
    if node:
        return found, find_node(handle.state, node)
    here = (await handle.local()).node
    holders = [
        where
        for where in handle.state.nodes
        if (held := figures(handle, where, ModelFigures)) is not None
        and any(each.card.model == found for each in held.held)
    ]
    if here in holders or not holders:
        return found, here
    if len(holders) > 1:
        names = ", ".join(node_name(handle.state, holder) for holder in holders)
        raise UsageError.because(
            "which_node", f"{found} lies on {names}, not here", "say which with --node"
        )
    return found, holders[0]
