"""The process's one fold of the log."""

import collections
import hashlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import msgspec

from node.core.apply import apply
from node.handle import StreamItem
from node.io.wakeup import Wakeup
from node.log import logger
from node.model.errors import ConflictError, TimeoutExpiredError
from node.model.session import Entry, Rewind, Session, SessionStarted
from node.model.state import Snapshot, State
from node.services.feed import Feed

RECENT_ENTRIES_MAX = 10_000
"""Entries kept for readers that ask for what came since an index."""

_log = logger("router")
decode_state = msgspec.msgpack.Decoder(State).decode
encode_state = msgspec.msgpack.Encoder().encode


def is_state(payload: bytes) -> bool:
    """Whether this node can read the state in a peer's snapshot; says so in the log where not."""
    if _read(payload) is not None:
        return True
    _log.error(
        "the master's snapshot (%d bytes) can't be read here; is its exoctl newer? This node stays"
        " behind",
        len(payload),
    )
    return False


def state_on_disk(payload: bytes) -> State:
    """The state in a snapshot of the own log.

    Raises:
        ConflictError: it can't be read; its checksum held, so it is of another version.
    """
    state = _read(payload)
    if state is None:
        raise ConflictError.because(
            "snapshot_unreadable",
            f"the log's snapshot ({len(payload)} bytes) can't be read by this version of exoctl",
            "start with the newer exoctl that wrote it",
        )
    return state


def _read(payload: bytes) -> State | None:
    try:
        return decode_state(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class StateStore:
    """Holds the committed state, folds what is delivered, and tells whoever reads along."""

    def __init__(self) -> None:
        self.feed = Feed(lambda: Snapshot(state=self.state))
        self.state = State()
        self._digest: tuple[State, str] = (self.state, "")
        self._recent: collections.deque[Entry] = collections.deque(maxlen=RECENT_ENTRIES_MAX)
        self._listeners: list[Callable[[State, State], None]] = []

    def on_change(self, listener: Callable[[State, State], None]) -> None:
        """Call `listener(before, after)` once per delivered batch; it must not block or raise."""
        self._listeners.append(listener)

    def install(self, state: State) -> None:
        """Start from a snapshot: at the node's start, or from a peer."""
        self._recent.clear()
        self._set(state)
        self.feed.publish(Snapshot(state=state))

    def deliver(self, entries: Sequence[Entry]) -> None:
        """Fold committed entries, indices contiguous with the state's."""
        self._recent.extend(entries)
        self._set(self.fold(self.state, entries))
        for entry in entries:
            self.feed.publish(entry)

    def fold(self, state: State, entries: Sequence[Entry]) -> State:
        """The state after more entries, those that it has left out; changes nothing here."""
        for entry in entries:
            if entry.index > state.index:
                state = apply(state, entry)
        return state

    def begin(self, session: Session) -> None:
        """Note the session that the entries to come belong to."""
        self.feed.publish(SessionStarted(session))

    def rewind(self, index: int, state: State) -> None:
        """Entries from `index` on were withdrawn; `state` is the fold of those before."""
        while self._recent and self._recent[-1].index >= index:
            self._recent.pop()
        self._set(state)
        self.feed.publish(Rewind(index))
        self.feed.publish(Snapshot(state=state))

    async def reached(self, index: int, timeout_seconds: float) -> None:
        """Return once the entry at `index` is folded in.

        Raises:
            TimeoutExpiredError: it is not within the deadline.
        """
        if self.state.index >= index:
            return
        wakeup = Wakeup()

        def listener(_: State, after: State) -> None:
            if after.index >= index:
                wakeup.ring()

        with self.listening(listener):
            if await wakeup.wait(timeout_seconds):
                return
        raise TimeoutExpiredError.because(
            "not_applied",
            f"it was decided as entry {index}, but this node has only {self.state.index}"
            f" after {timeout_seconds:g} s",
            "see `exoctl status`: it holds as soon as this node hears its master again",
        )

    @contextmanager
    def listening(self, listener: Callable[[State, State], None]) -> Generator[None]:
        """As `on_change`, for the length of a `with`."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def backlog(self, since: int | None) -> list[StreamItem]:
        """What a new reader gets first: the entries from `since` on, or a snapshot."""
        if since is None or not self._recent or since < self._recent[0].index:
            return [Snapshot(state=self.state)]
        if since > self.state.index + 1:
            return [Snapshot(state=self.state)]
        return [entry for entry in self._recent if entry.index >= since]

    def recent(self) -> list[Entry]:
        """The last committed entries, oldest first."""
        return list(self._recent)

    def digest(self) -> str:
        """A hash of the whole state; two nodes that folded the same log have the same."""
        if self._digest[0] is not self.state or not self._digest[1]:
            text = encode_state(self.state)
            self._digest = (self.state, hashlib.blake2b(text, digest_size=8).hexdigest())
        return self._digest[1]

    def _set(self, state: State) -> None:
        before, self.state = self.state, state
        for listener in tuple(self._listeners):
            listener(before, state)
