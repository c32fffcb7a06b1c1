"""`exoctl export`, `diff` and `apply`: the cluster as a file says it."""

from pathlib import Path
from typing import Annotated, assert_never

import msgspec
import typer

from node.handle import NodeHandle
from node.model.command import Accepted, CordonNode, PlaceInstance, StopInstance, Wish
from node.model.errors import ExoctlError, UnreachableError, UsageError
from node.model.ids import InstanceId, ModelId
from tui.commands.changes import check_may_change, submit
from tui.commands.console import Console, Listing
from tui.commands.desired import (
    Change,
    Cordon,
    Desired,
    Place,
    Stop,
    changes,
    current,
    read_desired,
    words_of,
    write_desired,
)
from tui.commands.failures import leaves
from tui.commands.input_text import read_input
from tui.commands.jsonable import fields_of
from tui.commands.load import wait_ready
from tui.commands.naming import find_model, find_nodes
from tui.viewmodel.text import clean

DIFFERENT = 1
FILE_BYTES_MAX = 1_000_000
FileOption = Annotated[
    str, typer.Option("-f", "--file", metavar="FILE", help="TOML or JSON; - reads stdin.")
]
PruneOption = Annotated[
    bool, typer.Option("--prune", help="Also stop instances that the file does not name.")
]


def export(console: Console) -> None:
    """Write the cluster as it is: a file for `exoctl apply -f`."""

    async def work(handle: NodeHandle) -> None:
        desired = current(handle.state)
        if console.settings.is_plain_data:
            items: list[object] = [msgspec.to_builtins(desired)]
            names = tuple(each.model for each in desired.instance)
            listing = Listing(kind="Desired", index=handle.state.index, items=items, names=names)
            console.emit(listing)
        else:
            for line in write_desired(desired).splitlines():
                console.write(clean(line))

    console.connected(work)


def diff(console: Console, *, file: FileOption, prune: PruneOption = False) -> None:
    """Show what `apply` would do: exit 0 where nothing, 1 where something, above 1 on failure."""
    desired = _read(file)

    async def work(handle: NodeHandle) -> int:
        found = changes(handle.state, _named(handle, desired), prune=prune)
        _show(console, handle, found)
        return DIFFERENT if found else 0

    try:
        code = console.connected(work)
    except (ExoctlError, BaseExceptionGroup) as error:
        raise _not_a_difference(error) from error
    console.exit(code)


def _not_a_difference(error: BaseException) -> BaseException:
    """The same failure with an exit code that can't be taken for a difference."""
    found = next((each for each in leaves(error) if isinstance(each, ExoctlError)), None)
    if found is None or found.exit_code != DIFFERENT:
        return error
    return UnreachableError(found.failure)


def apply(
    console: Console,
    *,
    file: FileOption,
    prune: PruneOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Return once all is ready, or at once.")
    ] = True,
) -> None:
    """Make the cluster as the file says; what is so already stays untouched.

    Applying twice changes nothing. What was applied is in the cluster's log: it survives restarts.
    """
    desired = _read(file)

    async def work(handle: NodeHandle) -> None:
        found = changes(handle.state, _named(handle, desired), prune=prune)
        _show(console, handle, found)
        if dry_run or not found:
            return
        check_may_change(console)
        stops = sum(isinstance(change, Stop) for change in found)
        if stops:
            console.confirm(f"Stop {stops} of {len(handle.state.instances)} instances?")
        placed = [await _do(console, handle, change) for change in found]
        for accepted in placed:
            if accepted is not None and wait:
                await wait_ready(console, handle, InstanceId(accepted.subject), accepted)
        console.say(f"{len(found)} done")

    console.connected(work, follow=True)


def _show(console: Console, handle: NodeHandle, found: list[Change]) -> None:
    if console.settings.is_plain_data:
        items: list[object] = [fields_of(change) for change in found]
        names = tuple(words_of(change) for change in found)
        console.emit(Listing(kind="Change", index=handle.state.index, items=items, names=names))
        return
    for change in found:
        console.write(clean(words_of(change)))
    if not found:
        console.say("nothing to do: the cluster is as the file says")


async def _do(console: Console, handle: NodeHandle, change: Change) -> Accepted | None:
    match change:
        case Place(wanted=wanted):
            wish = Wish(
                nodes=find_nodes(handle.state, ",".join(wanted.nodes)),
                layers=wanted.layers,
                context_tokens=wanted.context,
                weight_format=wanted.weights,
                restart=wanted.restart,
                strategy=wanted.strategy,
                requests=wanted.parallel,
            )
            command = PlaceInstance(model=ModelId(wanted.model), wish=wish)
            return await submit(console, handle, command)
        case Stop(instance=instance):
            await submit(console, handle, StopInstance(instance=instance))
        case Cordon(node=node, cordoned=cordoned):
            await submit(console, handle, CordonNode(node=node, cordoned=cordoned))
        case _:
            assert_never(change)
    return None


def _named(handle: NodeHandle, desired: Desired) -> Desired:
    """The same with whole names of models: the start of one must mean what is placed already."""
    return msgspec.structs.replace(
        desired,
        instance=tuple(
            msgspec.structs.replace(each, model=find_model(handle, each.model))
            for each in desired.instance
        ),
    )


def _read(file: str) -> Desired:
    try:
        if file == "-":
            return read_desired(read_input(FILE_BYTES_MAX), file)
        with Path(file).open(encoding="utf-8") as opened:
            words = opened.read(FILE_BYTES_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError.because("unreadable", f"{file}: {error}") from error
    if len(words) > FILE_BYTES_MAX:
        raise UsageError.because("too_long", f"{file} is longer than {FILE_BYTES_MAX:,} characters")
    return read_desired(words, file)
