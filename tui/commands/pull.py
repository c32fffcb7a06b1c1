"""`exoctl model pull`: having nodes fetch a model, and showing how far they are."""

from collections.abc import Iterable
from typing import Annotated

import anyio
import msgspec
import typer

from node.core.pull_status import download_record, is_whole, raise_failure
from node.handle import NodeHandle
from node.io import clock
from node.io.model_store.names import parse_model_id
from node.model.download import PullModel
from node.model.errors import TimeoutExpiredError, UsageError
from node.model.ids import ModelId, NodeId
from node.model.register import DownloadRecord
from tui.commands.changes import check_may_change
from tui.commands.console import Console
from tui.commands.downloads import (
    ORDER_SECONDS,
    downloads_listing,
    give,
    left_text,
    next_try_text,
    share_text,
    why_text,
)
from tui.commands.naming import find_nodes, node_name
from tui.commands.progress import ProgressLine
from tui.commands.units import bytes_text, parse_bytes

PULL_SECONDS = 7 * 24 * 3600.0
LOOK_SECONDS = 0.2
DESCRIBE_SECONDS = 120.0
GIVE_UP = "exoctl download cancel"
TOLD_ANEW_SECONDS = 2.0
"""For a node to tell of the order in place of how an earlier one ended."""
Records = dict[NodeId, DownloadRecord | None]
_SOURCES = ("auto", "hub", "peer")


def model_pull(
    console: Console,
    model: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="A repository of the hub.")],
    *,
    nodes: Annotated[
        str, typer.Option("--node", metavar="A,B", help="To these nodes; else to this one.")
    ] = "",
    everywhere: Annotated[bool, typer.Option("--all", help="To every node.")] = False,
    revision: Annotated[str, typer.Option("--revision", help="Branch, tag or commit.")] = "main",
    source: Annotated[
        str, typer.Option("--from", metavar="|".join(_SOURCES), help="Whom to ask.")
    ] = "auto",
    rate: Annotated[str, typer.Option("--rate", help="At most, such as 50MB/s.")] = "",
    priority: Annotated[int, typer.Option("--priority", help="Higher goes first.")] = 0,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Return once it is whole, or at once.")
    ] = True,
) -> None:
    """Fetch a model from the hub, once for all nodes; goes on after any interruption."""
    if source not in _SOURCES:
        raise UsageError.because(
            "bad_source", f"--from {source!r} is no source", f"use {', '.join(_SOURCES)}"
        )

    async def work(handle: NodeHandle) -> None:
        name = parse_model_id(model)
        chosen = tuple(handle.state.nodes) if everywhere else find_nodes(handle.state, nodes)
        order = PullModel(
            model=name,
            revision=revision,
            priority=priority,
            source=source,
            bytes_per_second=parse_bytes(rate) if rate else 0,
        )
        await pull(console, handle, order, chosen, wait=wait)
        if console.is_json:
            console.emit(downloads_listing(handle))

    console.connected(work, follow=True)


async def pull(
    console: Console,
    handle: NodeHandle,
    order: PullModel,
    nodes: tuple[NodeId, ...] = (),
    *,
    wait: bool = True,
) -> None:
    """Have nodes fetch a model; with `wait`, show how far each is until all have it.

    Raises:
        ExoctlError: it can't be fetched, as the node says.
    """
    targets = nodes or ((await handle.local()).node,)
    asked_at = clock.wall()
    check_may_change(console)
    before = records_of(handle, order.model, targets)
    together = msgspec.structs.replace(order, companions=targets)
    for node in targets:
        if wait:
            seconds = console.settings.timeout_seconds(ORDER_SECONDS)
            await handle.order(node, together, seconds)
        else:
            await give(console, handle, node, together)
    if wait:
        await wait_whole(console, handle, order.model, before, asked_at)


def records_of(handle: NodeHandle, model: ModelId, nodes: Iterable[NodeId]) -> Records:
    """How far each node is with the model."""
    return {node: download_record(handle.registers, node, model) for node in nodes}


async def wait_whole(
    console: Console, handle: NodeHandle, model: ModelId, before: Records, asked_at: float
) -> None:
    """Show how far the nodes are until all have the model.

    `before` is how far each was when it was told to fetch it: an end that was told then is not
    taken for what comes of the order.

    Raises:
        ExoctlError: one of them can't get it.
    """
    limit = console.settings.timeout_seconds(PULL_SECONDS)
    started = clock.monotonic()
    try:
        with ProgressLine(console) as line:
            while True:
                records = records_of(handle, model, before)
                seconds = clock.monotonic() - started
                told = [
                    node
                    for node, record in records.items()
                    if seconds > TOLD_ANEW_SECONDS or not _is_of_before(record, before[node])
                ]
                whole = [node for node in told if is_whole(handle.registers, node, model)]
                if len(whole) == len(before):
                    break
                for node in told:
                    raise_failure(records[node], seconds)
                _check_time(model, records, seconds, limit)
                line.update(*_line(handle, model, records))
                await anyio.sleep(LOOK_SECONDS)
    except anyio.get_cancelled_exc_class():
        console.say(f"{model} goes on being fetched; `exoctl download pause {model}` pauses it")
        raise
    names = ", ".join(node_name(handle.state, node) for node in before)
    size = max((record.bytes_total for record in records.values() if record), default=0)
    took = max(0.0, clock.wall() - asked_at)
    console.say(f"{model} is whole on {names}: {bytes_text(size)}, checked, in {took:.1f} s")


def _is_of_before(record: DownloadRecord | None, before: DownloadRecord | None) -> bool:
    return record is not None and record == before and record.phase in ("complete", "failed")


def _check_time(model: ModelId, records: Records, seconds: float, limit: float) -> None:
    if seconds <= limit:
        return
    failed = next((each for each in records.values() if each and each.failure), None)
    cause = f": {failed.failure.message}" if failed and failed.failure else ""
    remedy = failed.failure.remedy if failed and failed.failure else ""
    goes_on = f"it goes on by itself: `exoctl download ls`; or give it up: {GIVE_UP} {model}"
    raise TimeoutExpiredError.because(
        "wait_expired",
        f"{model} is not whole after {limit:g} s{cause}",
        f"{remedy}; {goes_on}" if remedy else goes_on,
    )


def _line(handle: NodeHandle, model: ModelId, records: Records) -> tuple[str, str]:
    words: list[str] = []
    details: list[str] = []
    for node, record in records.items():
        name = f"{node_name(handle.state, node)} " if len(records) > 1 else ""
        if record is None:
            words.append(f"{name}queued")
            continue
        words.append(f"{name}{record.phase}")
        if record.failure is not None and len(records) == 1:
            words[-1] += f" ({why_text(record)})"
        rate = f" {bytes_text(int(record.bytes_per_second))}/s" if record.bytes_per_second else ""
        total = f" of {bytes_text(record.bytes_total)}" if record.bytes_total else ""
        left = left_text(record)
        share = f"{share_text(record)}{total}{rate} {'' if left == '-' else left}"
        details.append(f"{name}{next_try_text(record) or share}")
    return f"{model}: {', '.join(words)}", "  ".join(details)
