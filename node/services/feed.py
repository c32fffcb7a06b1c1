"""What happens, told to any number of readers; none can hold up another or the teller."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from node.handle import Lagged, StreamItem
from node.model.state import Snapshot

READER_ITEMS_MAX = 4_096
"""Items that a reader may be behind; then it is told `Lagged` and starts from a snapshot."""


class _Reader:
    """One reader's buffer."""

    def __init__(self, send: MemoryObjectSendStream[StreamItem]) -> None:
        self.send = send
        self.skipped = 0

    def room(self) -> int:
        """How many items still fit."""
        return READER_ITEMS_MAX - self.send.statistics().current_buffer_used


class Feed:
    """Broadcast with bounded buffers. Made once per process; lives over every session."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._readers: list[_Reader] = []

    def publish(self, item: StreamItem) -> None:
        """Tell every reader; one that is full skips it and is told so."""
        for reader in self._readers:
            self._tell(reader, item)

    def _tell(self, reader: _Reader, item: StreamItem) -> None:
        if reader.skipped and reader.room() >= READER_ITEMS_MAX // 2:
            reader.send.send_nowait(Lagged(reader.skipped))
            reader.send.send_nowait(self._snapshot())
            reader.skipped = 0
            return  # the snapshot was taken after `item`: it is in there already
        if reader.skipped or reader.room() < 1:
            reader.skipped += 1
            return
        reader.send.send_nowait(item)

    @contextmanager
    def reader(self, backlog: list[StreamItem]) -> Generator[MemoryObjectReceiveStream[StreamItem]]:
        """A new reader that gets `backlog` first, then what happens from now on."""
        send, receive = anyio.create_memory_object_stream[StreamItem](READER_ITEMS_MAX)
        reader = _Reader(send)
        if len(backlog) >= READER_ITEMS_MAX // 2:
            backlog = [self._snapshot()]
        for item in backlog:
            send.send_nowait(item)
        self._readers.append(reader)
        try:
            with receive:
                yield receive
        finally:
            self._readers.remove(reader)
            send.close()
