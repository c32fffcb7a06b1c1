"""Entries of the log as lines for people or records for programs."""

import math
import re

import msgspec

from node.core.apply import read_event
from node.handle import Lagged, NodeHandle, StreamItem
from node.io import clock
from node.model.event import CommandDecided
from node.model.ids import NodeId
from node.model.session import Entry, Rewind, SessionStarted
from node.model.state import Snapshot
from tui.commands.console import Console
from tui.commands.jsonable import API_VERSION, encode, envelope, fields_of, jsonable
from tui.commands.naming import node_name
from tui.commands.plain import coloured
from tui.commands.settings import OutputFormat
from tui.commands.units import clock_text
from tui.viewmodel.events import Names, event_row, kind_of
from tui.viewmodel.text import clean

HEARTBEAT_SECONDS = 15.0


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries are shown."""

    kinds: frozenset[str] = frozenset()
    """Names of event types; empty for all."""
    node: NodeId = NodeId("")
    """Wrote the entry or is named in it; empty for all."""
    not_before: float = 0.0
    """Wall clock."""
    not_after: float = math.inf
    pattern: re.Pattern[str] | None = None
    """Must be found in the entry's JSON."""

    def takes(self, entry: Entry) -> bool:
        """Whether the entry is one of them."""
        if not self.not_before <= entry.written_at <= self.not_after:
            return False
        if self.pattern is not None and not self.pattern.search(_words_of(entry)):
            return False
        if self.node and self.node != entry.id.origin and self.node.encode() not in entry.payload:
            return False
        return not self.kinds or bool(self.kinds & _kinds_of(entry))


def _words_of(entry: Entry) -> str:
    event = read_event(entry.payload)
    fields = {} if event is None else fields_of(event)
    return encode({"index": entry.index, "type": type(event).__name__, **fields}, pretty=False)


def _kinds_of(entry: Entry) -> set[str]:
    event = read_event(entry.payload)
    if event is None:
        return set()
    inner = event.events if isinstance(event, CommandDecided) else ()
    found = (event, *inner)
    return {type(each).__name__ for each in found} | {kind_of(each) for each in found}


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

    def item(self, item: StreamItem, wanted: Filter) -> None:
        """Write one item, where it is an event or says something about the stream."""
        match item:
            case Entry():
                if wanted.takes(item):
                    self.entry(item)
            case Snapshot():
                self.snapshot(item)
            case SessionStarted() | Rewind() | Lagged():
                self.note(item)
            case _:
                pass  # Registers are figures, not events.

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
        """The one object of `-o json`; to a person, that there was nothing."""
        index = self._handle.state.index
        if self._object:
            self._console.write(encode(envelope("Event", index, self._items, {}), pretty=False))
        elif not (self._begun or self._lines or self._names_only):
            self._console.say(f"no event among those asked for; the log is at index {index}")

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
