"""`exoctl load` and `unload`: starting and stopping a model."""

from typing import Annotated

import anyio
import typer

from node.core.placement.wish import MODEL_PREPARING
from node.handle import NodeHandle
from node.io import clock
from node.io.model_store.names import parse_model_id
from node.model.command import Accepted, PlaceInstance, StopInstance, Wish
from node.model.download import PullModel
from node.model.errors import BusyError
from node.model.ids import InstanceId
from node.model.instance import Instance
from tui.commands.changes import check_may_change, say_done, submit, until
from tui.commands.console import Console
from tui.commands.figures import condition, shard_progress
from tui.commands.instances import instances_listing
from tui.commands.naming import (
    find_instance,
    find_model,
    instances_of,
    models_at_hand,
    node_name,
)
from tui.commands.progress import ProgressLine
from tui.commands.pull import pull
from tui.commands.units import nodes_text
from tui.commands.verdict import wait_placed
from tui.commands.wish import (
    Context,
    Exclude,
    Force,
    Label,
    Layers,
    MinNodes,
    Nodes,
    Parallel,
    Restart,
    Strategy,
    Weights,
    WishOptions,
    make_wish,
)

LOAD_SECONDS = 600.0
UNLOAD_SECONDS = 30.0
SETTLE_SECONDS = 2.0
_LOOK_SECONDS = 0.2
ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="Name of the model, or the start of it.")
]


def load(
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
    force: Force = False,
    restart: Restart = "auto",
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Return once it is ready, or at once.")
    ] = True,
) -> None:
    """Place a model on the cluster and start it."""
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
        force=force,
        restart=restart,
    )

    async def work(handle: NodeHandle) -> None:
        wish = make_wish(handle.state, options)
        instance = await place(console, handle, model, wish, wait=wait)
        with anyio.move_on_after(SETTLE_SECONDS if wait else 0.0):
            await _settle(handle, instance)
        placed = handle.state.instances.get(instance)
        if placed is None:
            say_done(console, subject=instance, name=instance, change="placed", index=-1)
        else:
            console.emit(instances_listing(handle, [placed]))

    console.connected(work, follow=True)


async def _settle(handle: NodeHandle, instance: InstanceId) -> None:
    """Its last events may be on their way here still: the list says what was waited for."""
    while True:
        placed = handle.state.instances.get(instance)
        if placed is None or condition(handle, placed).ready:
            return
        await anyio.sleep(_LOOK_SECONDS / 4)


async def place(
    console: Console, handle: NodeHandle, model: str, wish: Wish, *, wait: bool = True
) -> InstanceId:
    """Place a model and, with `wait`, show how its start goes on until it is ready.

    A model that is just being made ready, as on the very first start, is waited for.

    Raises:
        NoFitError: it does not fit, with the numbers. ConflictError: a partition withdrew it.
        ExoctlError: its start failed.
    """
    if wait:
        await fetch_missing(console, handle, model, wish)
    deadline = clock.monotonic() + console.settings.timeout_seconds(LOAD_SECONDS)
    with ProgressLine(console) as line:
        while True:
            command = PlaceInstance(model=find_model(handle, model), wish=wish)
            try:
                accepted = await submit(console, handle, command)
                break
            except BusyError as error:
                if error.failure.code != MODEL_PREPARING or clock.monotonic() > deadline:
                    raise
                line.update("making the model ready", error.failure.message)
            await anyio.sleep(_LOOK_SECONDS)
    instance = InstanceId(accepted.subject)
    if wait:
        await wait_ready(console, handle, instance, accepted)
    return instance


async def fetch_missing(console: Console, handle: NodeHandle, model: str, wish: Wish) -> None:
    """Pull a model that lies whole on no node and is called as a repository is, to where it is
    wanted; one that came in part goes on.

    Raises:
        ExoctlError: it can't be fetched, and how it can be had.
    """
    found = find_model(handle, model)
    if found in models_at_hand(handle) or "/" not in found:
        return
    console.say(
        f"{found} is whole on no node yet: fetching it (ctrl-c stops the waiting, not that)"
    )
    await pull(console, handle, PullModel(model=parse_model_id(found)), wish.nodes)


async def wait_ready(
    console: Console, handle: NodeHandle, instance: InstanceId, accepted: Accepted | None = None
) -> None:
    """Wait for an instance, with its progress on stderr; `accepted` if it was placed just now."""
    timeout_seconds = console.settings.timeout_seconds(LOAD_SECONDS)
    try:
        with ProgressLine(console) as line:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_show_start, handle, instance, line)
                if accepted is None:
                    await handle.wait_instance(instance, timeout_seconds)
                else:
                    await wait_placed(handle, accepted, timeout_seconds)
                tasks.cancel_scope.cancel()
    except anyio.get_cancelled_exc_class():
        console.say(f"{instance} goes on loading; `exoctl unload {instance}` stops it")
        raise


async def _show_start(handle: NodeHandle, instance: InstanceId, line: ProgressLine) -> None:
    started = clock.monotonic()
    while True:
        placed = handle.state.instances.get(instance)
        if placed is not None:
            word = condition(handle, placed).word.lower()
            where = f"{placed.model}: {word} on {nodes_text(len(placed.shards))}"
            detail = f"{_layers_loaded(handle, placed)}  {clock.monotonic() - started:.0f} s"
            line.update(where, detail)
        await anyio.sleep(_LOOK_SECONDS)


def _layers_loaded(handle: NodeHandle, instance: Instance) -> str:
    parts: list[str] = []
    for shard in instance.shards:
        progress = shard_progress(handle, shard)
        total = shard.end_layer - shard.first_layer
        done = progress.layers_loaded if progress else 0
        parts.append(f"{node_name(handle.state, shard.node)} {done}/{total}")
    return "layers " + ", ".join(parts)


def unload(
    console: Console,
    what: Annotated[str, typer.Argument(metavar="ID|MODEL", help="Instance id, or its model.")],
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Every instance, where the model has several.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Return once it is gone, or at once.")
    ] = True,
) -> None:
    """Stop an instance and free its memory."""

    async def work(handle: NodeHandle) -> None:
        check_may_change(console)
        named = instances_of(handle.state, what) if every else []
        for instance in named or [find_instance(handle.state, what)]:
            await stop(console, handle, instance, wait=wait)

    console.connected(work, follow=True)


async def stop(console: Console, handle: NodeHandle, instance: Instance, *, wait: bool) -> None:
    """Stop an instance; with `wait`, return once it is gone."""
    key = instance.instance
    accepted = await submit(console, handle, StopInstance(instance=key))
    if wait:
        await until(
            handle,
            lambda: key not in handle.state.instances,
            timeout_seconds=console.settings.timeout_seconds(UNLOAD_SECONDS),
            what=f"{key} to be gone",
        )
    name = f"{key} ({instance.model})"
    change = "unloaded" if wait else "stopping"
    say_done(console, subject=key, name=name, change=change, index=accepted.index)
