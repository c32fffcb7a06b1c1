"""`exoctl swap`, `scale` and `node drain`: instances that take each other's place."""

from typing import Annotated

import msgspec
import typer

from node.handle import NodeHandle
from node.model.command import CordonNode, StopInstance, Wish
from node.model.errors import ExoctlError, NoFitError
from node.model.ids import InstanceId, NodeId
from node.model.instance import Instance
from tui.commands.changes import check_may_change, say_done, submit
from tui.commands.console import Console, Listing
from tui.commands.figures import condition
from tui.commands.instances import instance_item
from tui.commands.load import place, stop
from tui.commands.naming import find_instance, find_model, find_node, instances_of, node_name
from tui.commands.nodes import NodeArgument
from tui.commands.plain import Column, Table
from tui.commands.wish import Context, Nodes, WishOptions, make_wish

LEFT = 1
INSTANCES_MAX = 64


def swap(
    console: Console,
    old: Annotated[str, typer.Argument(metavar="OLD", help="Instance id, or its model.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Name of the model that comes.")],
    *,
    nodes: Nodes = "",
    ctx: Context = "",
    stop_first: Annotated[
        bool, typer.Option("--stop-first", help="Free the memory first: nothing answers meanwhile.")
    ] = False,
) -> None:
    """Load a model, and stop the one it replaces once it answers."""

    async def work(handle: NodeHandle) -> None:
        check_may_change(console)
        leaving = find_instance(handle.state, old)
        wish = make_wish(handle.state, WishOptions(nodes=nodes, context=ctx))
        if stop_first:
            await stop(console, handle, leaving, wait=True)
        try:
            await place(console, handle, new, wish)
        except NoFitError as error:
            raise _with_remedy(error, leaving) from error
        if not stop_first:
            await stop(console, handle, leaving, wait=True)

    console.connected(work, follow=True)


def _with_remedy(error: NoFitError, leaving: Instance) -> NoFitError:
    failure = error.failure
    words = f"{failure.remedy}; " if failure.remedy else ""
    remedy = f"{words}--stop-first frees the memory of {leaving.model} first"
    return NoFitError(msgspec.structs.replace(failure, remedy=remedy))


def scale(
    console: Console,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")],
    count: Annotated[
        int, typer.Argument(metavar="N", min=0, max=INSTANCES_MAX, help="So many instances of it.")
    ],
    *,
    nodes: Nodes = "",
    ctx: Context = "",
) -> None:
    """Have so many instances of a model: place what is missing, stop the newest that are over."""

    async def work(handle: NodeHandle) -> None:
        check_may_change(console)
        wish = make_wish(handle.state, WishOptions(nodes=nodes, context=ctx))
        found = instances_of(handle.state, find_model(handle, model))
        # Those that answer stay longest, and of these the oldest.
        found.sort(key=lambda each: (not condition(handle, each).ready, each.placed_index))
        for instance in reversed(found[count:]):
            await stop(console, handle, instance, wait=True)
        for _ in range(count - len(found)):
            instance_id = await place(console, handle, model, wish)
            say_done(
                console,
                subject=instance_id,
                name=f"{instance_id} ({model})",
                change="loaded",
                index=handle.state.index,
            )
        if count == len(found):
            console.say(f"{model} has {count} already")

    console.connected(work, follow=True)


def node_drain(
    console: Console,
    node: NodeArgument,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Stop what fits nowhere else, instead of leaving it.")
    ] = False,
) -> None:
    """Empty a node: keep new shards off it and move what it holds: exit 1 where something stays.

    Each instance is placed anew on other nodes and stopped here once the new one answers.
    """

    async def work(handle: NodeHandle) -> bool:
        found = find_node(handle.state, node)
        name = node_name(handle.state, found)
        held = [each for each in handle.state.instances.values() if found in each.nodes]
        if held and force:
            console.confirm(f"Stop what fits nowhere else, of {len(held)} instances on {name}?")
        await submit(console, handle, CordonNode(node=found))
        rows: list[tuple[str, ...]] = []
        items: list[object] = []
        for instance in held:
            outcome, why = await _move(console, handle, instance, found, force=force)
            rows.append((instance.instance, instance.model, outcome, why))
            items.append({**instance_item(handle, instance), "outcome": outcome, "why": why})
        columns = (
            Column("INSTANCE"),
            Column("MODEL", shrinks=True),
            Column("OUTCOME", toned=True),
            Column("WHY", shrinks=True),
        )
        console.emit(
            Listing(
                kind="Drain",
                index=handle.state.index,
                items=items,
                table=Table(columns, tuple(rows), empty=f"{name} is cordoned; it held nothing"),
                names=tuple(row[0] for row in rows),
            )
        )
        return all(row[2] != "stays" for row in rows)

    if not console.connected(work, follow=True):
        console.exit(LEFT)


async def _move(
    console: Console, handle: NodeHandle, instance: Instance, away: NodeId, *, force: bool
) -> tuple[str, str]:
    """What became of an instance, and why."""
    try:
        new = await place(console, handle, instance.model, _elsewhere(instance.wish, away))
    except ExoctlError as error:
        why = error.failure.message
        if not force:
            return "stays", why
        await _stop_quietly(console, handle, instance.instance)
        return "stopped", why
    await _stop_quietly(console, handle, instance.instance)
    return "moved", f"is {new} now"


async def _stop_quietly(console: Console, handle: NodeHandle, instance: InstanceId) -> None:
    await submit(console, handle, StopInstance(instance=instance))


def _elsewhere(wish: Wish, away: NodeId) -> Wish:
    """The same wish without a node; which nodes were named is forgotten where it was one."""
    if away in wish.nodes:
        wish = msgspec.structs.replace(wish, nodes=(), layers=())
    return msgspec.structs.replace(wish, exclude=tuple({*wish.exclude, away}), force=False)
