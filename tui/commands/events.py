"""`exoctl events`: the ordered log as lines for people, or as NDJSON for programs."""

import math
import re
import typing
from typing import Annotated

import anyio
import msgspec
import typer
from anyio.streams.memory import MemoryObjectReceiveStream

from node.handle import NodeHandle, StreamItem
from node.io import clock
from node.model.errors import UnreachableError, UsageError
from node.model.event import Event
from node.model.ids import NodeId
from node.model.session import Entry
from node.model.state import Snapshot
from tui.commands.console import Console
from tui.commands.event_writer import Filter, Writer
from tui.commands.naming import find_node
from tui.commands.time_travel import show_state
from tui.commands.units import parse_duration
from tui.viewmodel.events import OPPOSITES

RECENT_ENTRIES = 50
"""Shown where nothing else was asked for."""
QUIET_SECONDS = 3.0
"""Without --follow: how long to wait for an entry that should be there."""
LOOK_BACK_ENTRIES = 500
"""First step back in search of a time; each further one is four times as long."""
EVENT_TYPES = {
    name.casefold(): name
    for name in (*(kind.__name__ for kind in typing.get_args(Event)), *OPPOSITES)
}


def events(
    console: Console,
    *,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on with what happens.")
    ] = False,
    since: Annotated[
        str, typer.Option("--since", metavar="10m|INDEX", help="From a time ago, or an index.")
    ] = "",
    until: Annotated[
        str, typer.Option("--until", metavar="5m|INDEX", help="Up to a time ago, or an index.")
    ] = "",
    at: Annotated[
        int,
        typer.Option("--at", metavar="INDEX", min=-1, help="The state as it was there instead."),
    ] = -1,
    grep: Annotated[
        str, typer.Option("--grep", metavar="REGEX", help="Only entries whose JSON holds this.")
    ] = "",
    kind: Annotated[
        str, typer.Option("--type", metavar="A,B", help="Only these, such as RunnerChanged.")
    ] = "",
    node: Annotated[
        str, typer.Option("--node", metavar="NODE", help="Written by the node or about it.")
    ] = "",
) -> None:
    """Show what happened in the cluster, in order; or the cluster as it was at an index."""
    kinds, pattern = _parse_kinds(kind), _parse_pattern(grep)
    if follow and (until or at >= 0):
        raise UsageError.because("bad_until", "--follow goes on: it has no --until and no --at")

    async def work(handle: NodeHandle) -> None:
        if at >= 0:
            await show_state(console, handle, at)
            return
        wanted = Filter(
            kinds=kinds,
            node=find_node(handle.state, node) if node else NodeId(""),
            not_after=_moment(until),
            pattern=pattern,
        )
        start, wanted = await _start(
            handle, since, wanted, from_snapshot=follow and console.is_json
        )
        writer = Writer(console, handle, follow=follow)
        last = min(int(until), handle.state.index) if until.isdecimal() else handle.state.index
        end = None if follow else last
        async with handle.subscribe(start) as stream:
            writer.begin(start)
            if start is None or end is None or start <= end:
                await _copy(stream, writer, wanted, end)
        writer.finish()

    console.connected(work, follow=True)


async def _start(
    handle: NodeHandle, since: str, wanted: Filter, *, from_snapshot: bool
) -> tuple[int | None, Filter]:
    """The first index to ask for (None: a snapshot, then what happens), and the filter for it."""
    if since.isdecimal():
        return await first_kept(handle, int(since)), wanted
    if since:
        cutoff = clock.wall() - parse_duration(since)
        found = await _index_at(handle, cutoff)
        return found, msgspec.structs.replace(wanted, not_before=cutoff)
    if from_snapshot:
        return None, wanted
    return await first_kept(handle, max(handle.state.index - RECENT_ENTRIES + 1, 0)), wanted


async def first_kept(handle: NodeHandle, start: int) -> int:
    """The index itself, or the first after it that the node still has an entry of."""
    absent, kept = start - 1, handle.state.index + 1
    while kept - absent > 1:
        # The index itself first: as a rule it is there.
        middle = start if absent < start else (absent + kept) // 2
        if await _entry_at(handle, middle) is None:
            absent = middle
        else:
            kept = middle
    return kept


async def _entry_at(handle: NodeHandle, index: int) -> Entry | None:
    """The entry of that index, or None where the node gives its state in place of it."""
    with anyio.move_on_after(QUIET_SECONDS):
        async with handle.subscribe(index) as stream:
            while not isinstance(item := await _receive(stream), Entry | Snapshot):
                pass
        return item if isinstance(item, Entry) else None
    return None


async def _index_at(handle: NodeHandle, cutoff: float) -> int:
    """An index at or before the first entry since a time, among those the node still has."""
    last, step = handle.state.index, LOOK_BACK_ENTRIES
    while True:
        wanted = max(last - step, 0)
        start = await first_kept(handle, wanted)
        first = await _entry_at(handle, start)
        is_oldest = wanted == 0 or start > wanted
        if is_oldest or first is None or first.written_at < cutoff:
            return start
        step *= 4


async def _copy(
    stream: MemoryObjectReceiveStream[StreamItem], writer: Writer, wanted: Filter, end: int | None
) -> None:
    if end is not None:
        await _copy_to(stream, writer, wanted, end)
        return
    while True:
        item = None
        with anyio.move_on_after(writer.heartbeat_due()):
            item = await _receive(stream)
        if item is None:
            writer.heartbeat()
        else:
            writer.item(item, wanted)


async def _copy_to(
    stream: MemoryObjectReceiveStream[StreamItem], writer: Writer, wanted: Filter, end: int
) -> None:
    """Write what there is up to an index; it ends too where no further entry comes."""
    reached = -1
    while reached < end:
        progress = reached
        with anyio.move_on_after(QUIET_SECONDS):
            while progress == reached:
                item = await _receive(stream)
                writer.item(item, wanted)
                if isinstance(item, Entry):
                    reached = item.index
                elif isinstance(item, Snapshot):
                    reached = item.state.index
        if progress == reached:
            return


async def _receive(stream: MemoryObjectReceiveStream[StreamItem]) -> StreamItem:
    """The next item.

    Raises:
        UnreachableError: the node ended the stream.
    """
    try:
        return await stream.receive()
    except (anyio.EndOfStream, anyio.ClosedResourceError):
        raise UnreachableError.because(
            "stream_ended", "the node ended the stream", "see whether it still runs: exoctl status"
        ) from None


def _moment(until: str) -> float:
    """The wall clock that a time ago means; infinite where an index or nothing was said."""
    is_time = until and not until.isdecimal()
    return clock.wall() - parse_duration(until) if is_time else math.inf


def _parse_pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text, re.IGNORECASE) if text else None
    except re.error as error:
        raise UsageError.because("bad_regex", f"--grep {text!r}: {error}") from error


def _parse_kinds(text: str) -> frozenset[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word.casefold() not in EVENT_TYPES]
    if unknown:
        raise UsageError.because(
            "bad_event_type",
            f"no event is called {unknown[0]!r}",
            f"there are {', '.join(EVENT_TYPES.values())}",
        )
    return frozenset(EVENT_TYPES[word.casefold()] for word in words)
