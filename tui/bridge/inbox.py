"""What comes from the node's thread to the screen's: bounded, never blocking either."""

import collections
from collections.abc import Callable, Mapping

import msgspec

from node.handle import LocalView, StreamItem
from node.model.errors import Failure
from node.model.ids import NodeId, RequestId
from node.model.register import Register
from node.model.request import GenerationItem
from node.model.state import State

ITEMS_MAX = 65_536
"""Beyond it the oldest items go; the store counts them and says so."""


class Connected(msgspec.Struct, frozen=True):
    """The node answers: what it has now."""

    state: State
    registers: Mapping[tuple[NodeId, str], Register]


class Disconnected(msgspec.Struct, frozen=True):
    """The node stopped answering; another try comes after `retry_seconds`."""

    failure: Failure
    retry_seconds: float


class Ended(msgspec.Struct, frozen=True):
    """The node is gone for good; why, where it did not end as it was told to."""

    error: BaseException | None


class Streamed(msgspec.Struct, frozen=True):
    """An item of the node's stream, with the state as it is after it."""

    item: StreamItem
    state: State


class Generated(msgspec.Struct, frozen=True):
    """An item of a generation that was started here; None after its last one."""

    request: RequestId
    item: GenerationItem | None


class Answered(msgspec.Struct, frozen=True):
    """The end of a call: what it gave, or why it did not."""

    reply: Callable[[object], None]
    result: object


InboxItem = Connected | Disconnected | Ended | Streamed | LocalView | Generated | Answered


class Inbox:
    """Filled by one thread, emptied by another; `wake` is called once until it is emptied."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._items: collections.deque[InboxItem] = collections.deque(maxlen=ITEMS_MAX)
        self._wake = wake
        self._is_woken = False
        self.put_total = 0
        self.taken_total = 0

    def put(self, item: InboxItem) -> None:
        """Add an item."""
        self._items.append(item)
        self.put_total += 1
        if not self._is_woken:
            self._is_woken = True
            self._wake()

    def take(self) -> list[InboxItem]:
        """Everything that is there, oldest first."""
        self._is_woken = False
        taken = [self._items.popleft() for _ in range(len(self._items))]
        self.taken_total += len(taken)
        return taken

    @property
    def is_empty(self) -> bool:
        """Nothing waits to be taken."""
        return not self._items

    @property
    def lost_total(self) -> int:
        """Items that were pushed out by newer ones."""
        return self.put_total - self.taken_total - len(self._items)
