"""GET /v1/cluster/events: the log as it grows, and the registers, as NDJSON or SSE."""

from collections.abc import Mapping
from typing import Any

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream

from node.api.context import ApiContext
from node.api.exchange import EVENT_STREAM, Exchange
from node.api.names import read_count, read_flag
from node.api.people import format_time, to_people
from node.core.apply import read_event
from node.handle import Lagged, NodeHandle, StreamItem
from node.io.clock import monotonic, wall
from node.model.register import Register
from node.model.session import Entry, Rewind, SessionStarted
from node.model.state import Snapshot
from node.wire.surface import (
    API_VERSION,
    EXACT,
    NDJSON,
    EntryRecord,
    HeartbeatRecord,
    LaggedRecord,
    RegisterRecord,
    RegistersRecord,
    RewindRecord,
    SessionRecord,
    SnapshotRecord,
    StreamRecord,
)

INDEX_MAX = 2**62
BATCH_ITEMS_MAX = 256
"""Items that are written at once when they come faster than they go."""


class EventFilter(msgspec.Struct, frozen=True):
    """What a reader wants to see; snapshots, rewinds and heartbeats it always sees."""

    types: frozenset[str] = frozenset()
    """Types of records or of events; empty: all."""
    node: str = ""
    """Only what this node wrote or what is about it, by the beginning of its id; empty: all."""

    def passes(self, record: StreamRecord, form: Mapping[str, Any]) -> bool:
        """Whether to show a record, given its form for people."""
        if not isinstance(record, EntryRecord | RegisterRecord):
            return True
        event: Mapping[str, Any] = form.get("event") or {}
        if self.types and not self.types & {form["type"], event.get("type")}:
            return False
        if not self.node:
            return True
        writer = record.entry.id.origin if isinstance(record, EntryRecord) else form["node"]
        return any(str(each).startswith(self.node) for each in (writer, event.get("node")))


async def stream_events(context: ApiContext, exchange: Exchange) -> None:
    """Stream from a snapshot, or from the entry `since` on; until the client goes, or to now."""
    query = exchange.query
    since = read_count(query, "since", 0, INDEX_MAX) if "since" in query else None
    follow = read_flag(query, "follow", default=True)
    types = frozenset(each for each in query.get("type", "").split(",") if each)
    encoder = _encoder(exchange, EventFilter(types, query.get("node", "")))
    stream = _EventStream(context, exchange, encoder)
    async with context.handle.subscribe(since) as items:
        await exchange.begin(encoder.content_type)
        if since is not None:
            await stream.write([registers_record(context.handle, since - 1)])
        await (stream.follow(items) if follow else stream.drain(items))
    await exchange.end()


class _EventStream:
    """The records of one reader."""

    def __init__(self, context: ApiContext, exchange: Exchange, encoder: "_Encoder") -> None:
        self._handle = context.handle
        self._period = context.timing.heartbeat_seconds
        self._exchange = exchange
        self._encoder = encoder
        self._index = -1

    async def follow(self, items: MemoryObjectReceiveStream[StreamItem]) -> None:
        """Write what comes, and a heartbeat where nothing came for a period."""
        due = monotonic() + self._period
        while True:
            item = None
            try:
                with anyio.move_on_after(max(0.0, due - monotonic())):
                    item = await items.receive()
            except anyio.EndOfStream:
                return  # the node ends
            if item is None:
                await self.write([HeartbeatRecord(index=self._index, at=wall())])
            else:
                await self.write(self._records(item))
                await self.drain(items)
            due = monotonic() + self._period

    async def drain(self, items: MemoryObjectReceiveStream[StreamItem]) -> None:
        """Write what is there already."""
        while True:
            records: list[StreamRecord] = []
            for _ in range(BATCH_ITEMS_MAX):
                try:
                    records += self._records(items.receive_nowait())
                except (anyio.WouldBlock, anyio.EndOfStream):
                    break
            if not records:
                return
            await self.write(records)

    def _records(self, item: StreamItem) -> list[StreamRecord]:
        records = to_records(item, self._index)
        self._index = records[0].index if not isinstance(item, Rewind) else item.index - 1
        if isinstance(item, Snapshot):
            records.append(registers_record(self._handle, self._index))
        return records

    async def write(self, records: list[StreamRecord]) -> None:
        """Write records at once."""
        body = b"".join(self._encoder.encode(record) for record in records)
        if body:
            await self._exchange.write(body)


def registers_record(handle: NodeHandle, index: int) -> RegistersRecord:
    """All registers as they are now."""
    return RegistersRecord(index=index, registers=tuple(handle.registers.values()))


def to_records(item: StreamItem, index: int) -> list[StreamRecord]:
    """A stream item as a record; `index` is that of the last entry that the reader has."""
    match item:
        case Snapshot():
            return [SnapshotRecord(index=item.state.index, state=item.state)]
        case Entry():
            return [EntryRecord(index=item.index, entry=item)]
        case SessionStarted():
            return [SessionRecord(index=index, session=item.session)]
        case Rewind():
            return [RewindRecord(index=item.index)]
        case Lagged():
            return [LaggedRecord(index=index, skipped=item.skipped)]
        case Register():
            return [RegisterRecord(index=index, register=item)]


class _Encoder:
    """Records as they are, one JSON object in each line."""

    content_type = NDJSON.encode()

    def encode(self, record: StreamRecord) -> bytes:
        """One record."""
        return msgspec.json.encode(record) + b"\n"


class _PeopleEncoder(_Encoder):
    """Records for people, in lines."""

    def __init__(self, wanted: EventFilter) -> None:
        self._wanted = wanted

    def encode(self, record: StreamRecord) -> bytes:
        """The lines of one record; none where it is filtered out."""
        return b"".join(self.frame(form) for form in self._forms(record))

    def frame(self, form: Mapping[str, Any]) -> bytes:
        """One line."""
        return msgspec.json.encode(form) + b"\n"

    def _forms(self, record: StreamRecord) -> list[Mapping[str, Any]]:
        if isinstance(record, RegistersRecord):
            singles = [
                RegisterRecord(index=record.index, register=register)
                for register in record.registers
            ]
            return [form for each in singles for form in self._forms(each)]
        form = record_for_people(record)
        return [form] if self._wanted.passes(record, form) else []


class _SseEncoder(_PeopleEncoder):
    """Records for people, as server-sent events."""

    content_type = EVENT_STREAM

    def frame(self, form: Mapping[str, Any]) -> bytes:
        """One event."""
        head = f"event: {form['type']}\nid: {form['index']}\ndata: ".encode()
        return head + msgspec.json.encode(form) + b"\n\n"


def _encoder(exchange: Exchange, wanted: EventFilter) -> _Encoder:
    if read_flag(exchange.query, EXACT, default=False):
        return _Encoder()
    if EVENT_STREAM.decode() in exchange.header(b"accept"):
        return _SseEncoder(wanted)
    return _PeopleEncoder(wanted)


def record_for_people(record: StreamRecord) -> Mapping[str, Any]:
    """A record as people read it: an entry with its event spelt out, in place of its bytes."""
    if isinstance(record, EntryRecord):
        entry = record.entry
        event = read_event(entry.payload)
        return {
            "type": "event",
            "index": entry.index,
            "time": format_time(entry.written_at),
            "session": to_people(entry.session),
            "origin": to_people(entry.id),
            "resubmitted": entry.resubmitted,
            "event": None if event is None else to_people(event),
        }
    if isinstance(record, RegisterRecord):
        register = record.register
        return {
            "type": "register",
            "index": record.index,
            "node": register.node,
            "kind": type(register.value).__name__,
            "sequence": register.sequence,
            "value": to_people(register.value),
        }
    if isinstance(record, SnapshotRecord):
        return {"apiVersion": API_VERSION, **to_people(record)}
    return to_people(record)
