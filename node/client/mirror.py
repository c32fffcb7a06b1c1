"""A node's state and registers as its event stream tells of them."""

from typing import assert_never

from node.core.apply import apply
from node.handle import Lagged, StreamItem
from node.model.ids import NodeId
from node.model.register import Register
from node.model.session import Entry, Rewind, SessionStarted
from node.model.state import Snapshot, State
from node.services.feed import Feed
from node.wire.surface import (
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

RegisterKey = tuple[NodeId, str]


class Mirror:
    """Folds records, and tells whoever reads along."""

    def __init__(self) -> None:
        self.state = State()
        self.registers: dict[RegisterKey, Register] = {}
        self.feed = Feed(lambda: Snapshot(state=self.state))
        self.last: Entry | None = None
        """The entry at the state's index, where it was seen: the point to resume from."""
        self._awaits_snapshot = True

    def take(self, record: StreamRecord) -> bool:
        """Fold a record; False where it does not fit: then begin again from a snapshot."""
        match record:
            case SnapshotRecord():
                self._install(record.state)
            case EntryRecord():
                return self._fold(record.entry)
            case RegistersRecord():
                self._replace(record.registers)
            case RegisterRecord():
                self._set(record.register)
            case SessionRecord() | RewindRecord() | LaggedRecord():
                self._pass_on(record)
            case HeartbeatRecord():
                pass
            case _:
                assert_never(record)
        return True

    def _pass_on(self, record: SessionRecord | RewindRecord | LaggedRecord) -> None:
        item = to_items(record)[0]
        if not isinstance(item, SessionStarted):
            self._awaits_snapshot = True
            self.last = None
        self.feed.publish(item)

    def _install(self, state: State) -> None:
        self.state = state
        self.last = None
        self._awaits_snapshot = False
        self._forget_lost()
        self.feed.publish(Snapshot(state=state))

    def _fold(self, entry: Entry) -> bool:
        if self._awaits_snapshot:
            return False
        if entry.index == self.state.index:  # the overlap that proves a resumed stream
            return self.last is None or entry == self.last
        if entry.index < self.state.index:
            return True
        if entry.index > self.state.index + 1:
            return False
        self.state = apply(self.state, entry)
        self.last = entry
        self._forget_lost()
        self.feed.publish(entry)
        return True

    def _forget_lost(self) -> None:
        lost = {node for node, record in self.state.nodes.items() if record.lost}
        gone = lost | self.state.revoked.keys()
        for key in [key for key in self.registers if key[0] in gone]:
            del self.registers[key]

    def _replace(self, registers: tuple[Register, ...]) -> None:
        before = self.registers
        self.registers = {key_of(register): register for register in registers}
        for key, register in self.registers.items():
            if before.get(key) != register:
                self.feed.publish(register)

    def _set(self, register: Register) -> None:
        known = self.registers.get(key_of(register))
        if known is None or version_of(register) > version_of(known):
            self.registers[key_of(register)] = register
            self.feed.publish(register)


def key_of(register: Register) -> RegisterKey:
    """What a register is held by."""
    return register.node, type(register.value).__name__


def version_of(register: Register) -> tuple[int, int]:
    """A later one is greater."""
    return register.incarnation, register.sequence


def to_items(record: StreamRecord) -> list[StreamItem]:
    """The stream items that a record stands for."""
    match record:
        case SnapshotRecord():
            return [Snapshot(state=record.state)]
        case EntryRecord():
            return [record.entry]
        case SessionRecord():
            return [SessionStarted(record.session)]
        case RewindRecord():
            return [Rewind(record.index)]
        case LaggedRecord():
            return [Lagged(record.skipped)]
        case _:
            return _register_items(record)


def _register_items(
    record: RegisterRecord | RegistersRecord | HeartbeatRecord,
) -> list[StreamItem]:
    match record:
        case RegisterRecord():
            return [record.register]
        case RegistersRecord():
            return list(record.registers)
        case HeartbeatRecord():
            return []
