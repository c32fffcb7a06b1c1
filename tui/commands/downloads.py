"""`exoctl download`: what is on its way to which node, and steering it."""

from collections.abc import Iterator
from typing import Annotated

import typer

from node.handle import NodeHandle
from node.io import clock
from node.model.download import (
    LimitDownloads,
    ModelOrder,
    OrderDone,
    PrioritiseDownload,
    SteerDownload,
)
from node.model.errors import NotFoundError, UsageError
from node.model.ids import ModelId, NodeId
from node.model.register import DownloadFigures, DownloadRecord
from tui.commands.changes import check_may_change
from tui.commands.console import Console, Listing
from tui.commands.figures import figures
from tui.commands.jsonable import fields_of
from tui.commands.naming import find_node, node_name
from tui.commands.plain import Column, Table
from tui.commands.units import NOTHING, bytes_text, duration_text, parse_bytes

ORDER_SECONDS = 30.0
NodeOption = Annotated[
    str, typer.Option("--node", metavar="NODE", help="On this node; else wherever it is.")
]
ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")]
_COLUMNS = (
    Column("MODEL", shrinks=True),
    Column("NODE"),
    Column("STATE", toned=True),
    Column("DONE", right=True),
    Column("SIZE", right=True),
    Column("RATE", right=True),
    Column("LEFT", right=True),
    Column("FROM", extra=True),
    Column("PRIO", right=True, extra=True),
    Column("CAUSE", shrinks=True),
)


def download_ls(console: Console) -> None:
    """List the downloads of every node, in the order of its queue."""

    async def work(handle: NodeHandle) -> None:
        console.emit(downloads_listing(handle))

    console.connected(work)


def download_pause(console: Console, model: ModelName, *, node: NodeOption = "") -> None:
    """Pause a download; what came stays."""
    _steer(console, model, node, "pause")


def download_resume(console: Console, model: ModelName, *, node: NodeOption = "") -> None:
    """Let a paused download go on."""
    _steer(console, model, node, "resume")


def download_retry(console: Console, model: ModelName, *, node: NodeOption = "") -> None:
    """Try a failed download again now."""
    _steer(console, model, node, "retry")


def download_cancel(console: Console, model: ModelName, *, node: NodeOption = "") -> None:
    """Give a download up; what came in part is deleted."""
    _steer(console, model, node, "cancel")


def download_move(
    console: Console,
    model: ModelName,
    priority: Annotated[int, typer.Argument(help="Higher goes first; 0 is usual.")],
    *,
    node: NodeOption = "",
) -> None:
    """Give a download another priority in its queue."""

    async def work(handle: NodeHandle) -> None:
        for where, found in _named(handle, model, node):
            order = PrioritiseDownload(model=found, priority=priority)
            await give(console, handle, where, order)

    console.connected(work)


def download_limit(
    console: Console,
    *,
    rate: Annotated[
        str, typer.Option("--rate", metavar="RATE", help="Such as 50MB/s; 0 takes it off.")
    ] = "",
    at_once: Annotated[int, typer.Option("--at-once", help="Downloads that run together.")] = 0,
    node: NodeOption = "",
) -> None:
    """Bound what a node's downloads take together."""
    if not rate and not at_once:
        raise UsageError.because("no_limit", "neither --rate nor --at-once is given")

    async def work(handle: NodeHandle) -> None:
        where = find_node(handle.state, node) if node else (await handle.local()).node
        order = LimitDownloads(
            bytes_per_second=parse_bytes(rate) if rate else None, at_once=at_once or None
        )
        await give(console, handle, where, order)

    console.connected(work)


async def give(console: Console, handle: NodeHandle, node: NodeId, order: ModelOrder) -> OrderDone:
    """Have a node carry out an order, and say what comes of it."""
    check_may_change(console)
    done = await handle.order(node, order, console.settings.timeout_seconds(ORDER_SECONDS))
    name = node_name(handle.state, node)
    freed = f", {bytes_text(done.bytes_freed)} freed" if done.bytes_freed else ""
    if console.settings.is_plain_data:
        item: dict[str, object] = {"node": node, "name": name, **fields_of(done)}
        console.emit(Listing(kind="Order", index=handle.state.index, items=[item], names=(node,)))
    else:
        console.write(f"{name}: {done.words}{freed}")
    return done


def all_downloads(handle: NodeHandle) -> Iterator[tuple[NodeId, DownloadRecord]]:
    """Every download of every node."""
    for node in handle.state.nodes:
        queue = figures(handle, node, DownloadFigures)
        for record in queue.downloads if queue else ():
            yield node, record


def downloads_listing(handle: NodeHandle) -> Listing:
    """The queues."""
    found = list(all_downloads(handle))
    return Listing(
        kind="Download",
        index=handle.state.index,
        items=[
            {"node": node, "name": node_name(handle.state, node), **fields_of(record)}
            for node, record in found
        ],
        table=Table(
            _COLUMNS,
            tuple(_row(handle, node, record) for node, record in found),
            empty="no downloads; `exoctl model pull OWNER/NAME` starts one",
        ),
        names=tuple(record.model for _, record in found),
    )


def share_text(record: DownloadRecord) -> str:
    """Per cent, rounded down: 100 % only where it is whole."""
    if record.phase == "complete":
        return "100%"
    if not record.bytes_total:
        return NOTHING
    return f"{int(100 * record.bytes_done / record.bytes_total)}%"


def left_text(record: DownloadRecord) -> str:
    """Time to the end at the present rate; a dash while that is not known."""
    if record.bytes_per_second <= 0 or not record.bytes_total or record.phase != "downloading":
        return NOTHING
    return duration_text((record.bytes_total - record.bytes_done) / record.bytes_per_second)


def cause_text(record: DownloadRecord) -> str:
    """Why it failed, what to do, and when it is tried again."""
    return "; ".join(text for text in (why_text(record), next_try_text(record)) if text)


def why_text(record: DownloadRecord) -> str:
    """Why it failed, and what to do."""
    failure = record.failure
    return "; ".join(text for text in (failure.message, failure.remedy) if text) if failure else ""


def next_try_text(record: DownloadRecord) -> str:
    """When a failed one is tried again; empty where it is not, or has not failed."""
    if record.failure is None or not record.retry_at:
        return ""
    return f"next try in {duration_text(max(0.0, record.retry_at - clock.wall()))}"


def _row(handle: NodeHandle, node: NodeId, record: DownloadRecord) -> tuple[str, ...]:
    rate = record.bytes_per_second
    return (
        record.model,
        node_name(handle.state, node),
        record.phase,
        share_text(record),
        bytes_text(record.bytes_total) if record.bytes_total else NOTHING,
        f"{bytes_text(int(rate))}/s" if rate > 0 else NOTHING,
        left_text(record),
        record.source or NOTHING,
        str(record.priority),
        cause_text(record) or NOTHING,
    )


def _steer(console: Console, model: str, node: str, action: str) -> None:
    async def work(handle: NodeHandle) -> None:
        for where, found in _named(handle, model, node):
            await give(console, handle, where, SteerDownload(model=found, action=action))

    console.connected(work)


def _named(handle: NodeHandle, model: str, node: str) -> list[tuple[NodeId, ModelId]]:
    """The downloads that a name means: the whole of it, its last part, or the start of either.

    Raises:
        NotFoundError: none is called so.
    """
    wanted = model.casefold()
    only = find_node(handle.state, node) if node else None
    queued = [
        (where, record.model)
        for where, record in all_downloads(handle)
        if only in (None, where) and record.phase != "converting"
    ]
    exact = [(where, name) for where, name in queued if name.casefold() == wanted]
    found = exact or [
        (where, name)
        for where, name in queued
        if name.casefold().startswith(wanted)
        or name.casefold().rpartition("/")[2].startswith(wanted)
    ]
    if not wanted or not found:
        known = ", ".join(sorted({name for _, name in queued})) or "none"
        raise NotFoundError.because(
            "download_not_found", f"no download is called {model!r}", f"downloads: {known}"
        )
    return found
