"""`exoctl events`: the ordered log as lines for people, or as NDJSON for programs."""

import typing
from typing import Annotated

import anyio
import msgspec
import typer
from anyio.streams.memory import MemoryObjectReceiveStream

from node.core.apply import read_event
from node.handle import Lagged, NodeHandle, StreamItem
from node.io import clock
from node.model.errors import UnreachableError, UsageError
from node.model.event import CommandDecided, Event
from node.model.ids import NodeId
from node.model.session import Entry, Rewind, SessionStarted
from node.model.state import Snapshot
from tui.commands.console import Console
from tui.commands.jsonable import API_VERSION, encode, envelope, fields_of, jsonable
from tui.commands.naming import find_node, node_name
from tui.commands.plain import clean, coloured
from tui.commands.settings import OutputFormat
from tui.commands.units import clock_text, parse_duration
from tui.viewmodel.events import Names, event_row

HEARTBEAT_SECONDS = 15.0
RECENT_ENTRIES = 50
"""Shown where nothing else was asked for."""
QUIET_SECONDS = 3.0
"""Without --follow: how long to wait for an entry that should be there."""
LOOK_BACK_ENTRIES = 500
"""First step back in search of a time; each further one is four times as long."""
EVENT_TYPES = {kind.__name__.casefold(): kind.__name__ for kind in typing.get_args(Event)}


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries are shown."""

    kinds: frozenset[str] = frozenset()
    """Names of event types; empty for all."""
    node: NodeId = NodeId("")
    """Wrote the entry or is named in it; empty for all."""
    not_before: float = 0.0
    """Wall clock."""

    def takes(self, entry: Entry) -> bool:
        """Whether the entry is one of them."""
        if entry.written_at < self.not_before:
            return False
        if self.node and self.node != entry.id.origin and self.node.encode() not in entry.payload:
            return False
        return not self.kinds or bool(self.kinds & _kinds_of(entry))


def events(
    console: Console,
    *,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on with what happens.")
    ] = False,
    since: Annotated[
        str, typer.Option("--since", metavar="10m|INDEX", help="From a time ago, or an index.")
    ] = "",
    kind: Annotated[
        str, typer.Option("--type", metavar="A,B", help="Only these, such as RunnerChanged.")
    ] = "",
    node: Annotated[
        str, typer.Option("--node", metavar="NODE", help="Written by the node or about it.")
    ] = "",
) -> None:
    """Show what happened in the cluster, in order."""
    kinds = _parse_kinds(kind)

    async def work(handle: NodeHandle) -> None:
        wanted = Filter(kinds=kinds, node=find_node(handle.state, node) if node else NodeId(""))
        start, wanted = await _start(
            handle, since, wanted, from_snapshot=follow and console.is_json
        )
        writer = Writer(console, handle, follow=follow)
        end = None if follow else handle.state.index
        async with handle.subscribe(start) as stream:
            writer.begin(start)
            await _copy(stream, writer, wanted, end)
        writer.finish()

    console.connected(work, follow=True)


async def _start(
    handle: NodeHandle, since: str, wanted: Filter, *, from_snapshot: bool
) -> tuple[int | None, Filter]:
    """The first index to ask for (None: a snapshot, then what happens), and the filter for it."""
    if since.isdecimal():
        return await _first_kept(handle, int(since)), wanted
    if since:
        cutoff = clock.wall() - parse_duration(since)
        found = await _index_at(handle, cutoff)
        return found, msgspec.structs.replace(wanted, not_before=cutoff)
    if from_snapshot:
        return None, wanted
    return await _first_kept(handle, max(handle.state.index - RECENT_ENTRIES + 1, 0)), wanted


async def _first_kept(handle: NodeHandle, start: int) -> int:
    """The index itself, or the first after it that the node still has an entry of."""
    absent, kept = start - 1, handle.state.index + 1
    while kept - absent > 1:
        # The index itself first: as a rule it is there.
        middle = start if absent < start else (absent + kept) // 2
        async with handle.subscribe(middle) as stream:
            item = await _next(stream, QUIET_SECONDS)
        if isinstance(item, Entry):
            kept = middle
        else:
            absent = middle
    return kept


async def _index_at(handle: NodeHandle, cutoff: float) -> int:
    """An index at or before the first entry since a time, among those the node still has."""
    last, step = handle.state.index, LOOK_BACK_ENTRIES
    while True:
        wanted = max(last - step, 0)
        start = await _first_kept(handle, wanted)
        async with handle.subscribe(start) as stream:
            item = await _next(stream, QUIET_SECONDS)
        is_oldest = wanted == 0 or start > wanted
        if is_oldest or not isinstance(item, Entry) or item.written_at < cutoff:
            return start
        step *= 4


async def _copy(
    stream: MemoryObjectReceiveStream[StreamItem], writer: "Writer", wanted: Filter, end: int | None
) -> None:
    if end is not None and end < 0:
        return
    while True:
        item = await _next(stream, writer.heartbeat_due() if end is None else QUIET_SECONDS)
        if item is None:
            if end is not None:
                return
            writer.heartbeat()
            continue
        reached = -1
        match item:
            case Entry():
                if wanted.takes(item):
                    writer.entry(item)
                reached = item.index
            case Snapshot(state=state):
                writer.snapshot(item)
                reached = state.index
            case SessionStarted() | Rewind() | Lagged():
                writer.note(item)
            case _:
                pass  # Registers are figures, not events.
        if end is not None and reached >= end:
            return


async def _next(
    stream: MemoryObjectReceiveStream[StreamItem], timeout_seconds: float
) -> StreamItem | None:
    """The next item, or None where none came in time.

    Raises:
        UnreachableError: the node ended the stream.
    """
    try:
        with anyio.move_on_after(timeout_seconds):
            return await stream.receive()
    except (anyio.EndOfStream, anyio.ClosedResourceError):
        raise UnreachableError.because(
            "stream_ended", "the node ended the stream", "see whether it still runs: exoctl status"
        ) from None
    return None


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


def _kinds_of(entry: Entry) -> set[str]:
    event = read_event(entry.payload)
    if event is None:
        return set()
    inner = event.events if isinstance(event, CommandDecided) else ()
    return {type(each).__name__ for each in (event, *inner)}


def entry_item(handle: NodeHandle, entry: Entry) -> dict[str, object]:
    """An entry in plain JSON types."""
    event = read_event(entry.payload)
    known = None if event is None else fields_of(event)
    return {
        "index": entry.index,
        "at": jsonable(entry.written_at, "at"),
        "session": jsonable(entry.session),
        "id": jsonable(entry.id),
        "origin_name": node_name(handle.state, entry.id.origin),
        "resubmitted": entry.resubmitted,
        "type": "Unknown" if event is None else type(event).__name__,
        "event": known,
    }


class Writer:
    """Writes the stream as it comes, or as one object at the end with `-o json`."""

    def __init__(self, console: Console, handle: NodeHandle, *, follow: bool) -> None:
        self._console, self._handle = console, handle
        wanted = console.settings.format
        self._lines = wanted is OutputFormat.NDJSON or (follow and wanted is OutputFormat.JSON)
        self._object = wanted is OutputFormat.JSON and not follow
        self._names_only = wanted is OutputFormat.NAME
        self._items: list[object] = []
        self._beat_at = clock.monotonic()
        self._begun = False

    def begin(self, start: int | None) -> None:
        """Entries follow from an index; says so where a program reads."""
        if self._lines and start is not None:
            self._record("snapshot", start - 1, {"state": None})

    def snapshot(self, item: Snapshot) -> None:
        """The state in place of every entry up to its index."""
        if self._lines:
            self._record("snapshot", item.state.index, {"state": jsonable(item.state)})
        elif self._begun:
            self._console.say(
                f"(the state at index {item.state.index} in place of what was missed)"
            )
        self._begun = True

    def entry(self, entry: Entry) -> None:
        """One entry."""
        self._begun = True
        if self._object:
            self._items.append(entry_item(self._handle, entry))
        elif self._lines:
            self._record("event", entry.index, entry_item(self._handle, entry))
        elif self._names_only:
            self._console.write(str(entry.index))
        else:
            self._console.write(self._line(entry))

    def note(self, item: SessionStarted | Rewind | Lagged) -> None:
        """Something about the stream itself."""
        kind = {"SessionStarted": "session", "Rewind": "rewind", "Lagged": "lagged"}
        if self._lines:
            index = self._handle.state.index
            self._record(kind[type(item).__name__], index, {"detail": fields_of(item)})
        elif isinstance(item, Rewind):
            self._console.say(f"(entries from {item.index} on were withdrawn after a partition)")
        elif isinstance(item, Lagged):
            self._console.say(f"({item.skipped} items were missed: this reader is too slow)")

    def heartbeat_due(self) -> float:
        """Seconds to the next heartbeat."""
        return max(self._beat_at + HEARTBEAT_SECONDS - clock.monotonic(), 0.0)

    def heartbeat(self) -> None:
        """Tell a program that the stream lives."""
        self._beat_at = clock.monotonic()
        if self._lines:
            self._record("heartbeat", self._handle.state.index, {})

    def finish(self) -> None:
        """The one object of `-o json`."""
        if self._object:
            whole = envelope("Event", self._handle.state.index, self._items, {})
            self._console.write(encode(whole, pretty=False))

    def _record(self, kind: str, index: int, facts: dict[str, object]) -> None:
        head: dict[str, object] = {"apiVersion": API_VERSION, "kind": kind, "index": index}
        self._console.write(encode({**facts, **head}, pretty=False))

    def _line(self, entry: Entry) -> str:
        row = event_row(entry, Names(self._handle.state, {}))
        kind = f"{row.kind:<22}"
        if self._console.has_colour:
            kind = coloured(kind, row.level)
        origin, words = clean(f"{row.origin:<12}"), clean(f"{row.subject}  {row.summary}")
        again = "  (offered again)" if row.is_resubmitted else ""
        return f"{clock_text(row.at)}  {row.index:>8}  {origin}  {kind}  {words}{again}"
