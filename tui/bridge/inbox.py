"""What comes from the node's thread to the screen's: bounded, never blocking either."""

import collections
import heapq
import threading
from collections.abc import Callable, Mapping

import msgspec

from node.handle import Lagged, LocalView, StreamItem
from node.model.errors import Failure
from node.model.ids import NodeId, RequestId
from node.model.register import Register
from node.model.request import GenerationItem
from node.model.state import State

ITEMS_MAX = 65_536
"""Items of the stream; beyond it the oldest go, and a `Lagged` stands for them."""


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
        self._lock = threading.Lock()
        self._streamed: collections.deque[tuple[int, Streamed]] = collections.deque()
        self._others: collections.deque[tuple[int, InboxItem]] = collections.deque()
        """Answers, connections and endings: few, and none may be lost."""
        self._lost = 0
        self._wake = wake
        self._is_woken = False
        self.put_total = 0
        self.lost_total = 0
        """Items of the stream that were pushed out by newer ones."""

    def put(self, item: InboxItem) -> None:
        """Add an item."""
        with self._lock:
            self.put_total += 1
            if isinstance(item, Streamed):
                self._streamed.append((self.put_total, item))
                if len(self._streamed) > ITEMS_MAX:
                    self._streamed.popleft()
                    self._lost += 1
                    self.lost_total += 1
            else:
                self._others.append((self.put_total, item))
            is_first, self._is_woken = not self._is_woken, True
        if is_first:
            self._wake()

    def take(self) -> list[InboxItem]:
        """Everything that is there, oldest first."""
        with self._lock:
            self._is_woken = False
            streamed, self._streamed = self._streamed, collections.deque()
            others, self._others = self._others, collections.deque()
            lost, self._lost = self._lost, 0
        if lost:
            place, first = streamed[0]
            streamed.appendleft((place - 1, Streamed(Lagged(skipped=lost), first.state)))
        return [item for _, item in heapq.merge(streamed, others, key=lambda pair: pair[0])]

    @property
    def is_empty(self) -> bool:
        """Nothing waits to be taken."""
        return not self._streamed and not self._others
