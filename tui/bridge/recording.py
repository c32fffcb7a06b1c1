"""A recording: the items of a node's stream as lines of JSON. The ordered log is the recording.

Each line is `{"at": seconds since 1970, "kind": name of the item's class, "item": …}`; the first
holds a `Snapshot`. Whoever reads it gets the state by folding, as every node does.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from node.core.apply import apply
from node.handle import Lagged, LocalView, NodeHandle, StreamItem
from node.model.errors import UsageError
from node.model.ids import NodeId
from node.model.register import Register
from node.model.session import Entry, Rewind, SessionStarted
from node.model.state import Snapshot, State

LINE_BYTES_MAX = 4 * 1024 * 1024
_KINDS: dict[str, type[msgspec.Struct]] = {
    kind.__name__: kind
    for kind in (Snapshot, SessionStarted, Entry, Rewind, Lagged, Register, LocalView)
}


class _Line(msgspec.Struct, frozen=True):
    """One line, its item not yet read."""

    at: float
    kind: str
    item: msgspec.Raw


class Recorded(msgspec.Struct, frozen=True):
    """An item and when it came."""

    at: float
    item: StreamItem | LocalView


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """What a recording comes to at its end."""

    state: State
    registers: dict[tuple[NodeId, str], Register]
    entries: list[Entry]
    local: LocalView | None
    ended_at: float


def line_of(item: StreamItem | LocalView, at: float) -> bytes:
    """One line of a recording, with its line feed."""
    line = _Line(at, type(item).__name__, msgspec.Raw(msgspec.json.encode(item)))
    return msgspec.json.encode(line) + b"\n"


async def record(handle: NodeHandle, file: IO[bytes], wall: Callable[[], float]) -> None:
    """Write all that a node's stream says, from the entries it still has on, until cancelled."""
    async with handle.subscribe(0) as items:
        file.write(line_of(Snapshot(state=State()), wall()))
        local = await handle.local()
        file.write(line_of(msgspec.structs.replace(local, state_directory="~"), wall()))
        for register in handle.registers.values():
            file.write(line_of(register, wall()))
        async for item in items:
            file.write(line_of(item, wall()))
            file.flush()


def read_recording(path: Path) -> Iterator[Recorded]:
    """The items of a recording, in order; the end of one that was cut off while it was written has
    no line feed and is left out.

    Raises:
        UsageError: the file can't be read, or a line of it is no item.
    """
    try:
        with path.open("rb") as file:
            for number in itertools.count(1):
                line = file.readline(LINE_BYTES_MAX + 1)
                if len(line) <= LINE_BYTES_MAX and not line.endswith(b"\n"):
                    return
                yield _read_line(line, f"{path}, line {number}")
    except OSError as error:
        raise UsageError.because("recording_unreadable", f"{path}: {error.strerror}") from error


def _read_line(line: bytes, where: str) -> Recorded:
    if len(line) > LINE_BYTES_MAX:
        raise UsageError.because("recording_line", f"{where}: longer than {LINE_BYTES_MAX} bytes")
    try:
        read = msgspec.json.decode(line, type=_Line)
        kind = _KINDS.get(read.kind)
        if kind is None:
            raise UsageError.because("recording_kind", f"{where}: unknown kind {read.kind!r}")
        item = msgspec.json.decode(read.item, type=kind)
    except msgspec.MsgspecError as error:
        raise UsageError.because("recording_line", f"{where}: {error}") from error
    return Recorded(read.at, item)  # type: ignore[arg-type]


def fold(items: Iterable[Recorded]) -> Recording:
    """State, registers and entries after the last item."""
    state = State()
    registers: dict[tuple[NodeId, str], Register] = {}
    entries: list[Entry] = []
    local: LocalView | None = None
    at = 0.0
    for recorded in items:
        at = recorded.at
        match recorded.item:
            case Snapshot(state=whole):
                state = whole
            case Entry() as entry:
                state = apply(state, entry)
                entries.append(entry)
            case Register() as register:
                registers[register.node, type(register.value).__name__] = register
            case Rewind(index=index):
                entries = [entry for entry in entries if entry.index < index]
            case LocalView() as view:
                local = view
            case SessionStarted() | Lagged():
                pass
    return Recording(state=state, registers=registers, entries=entries, local=local, ended_at=at)
