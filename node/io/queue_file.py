"""The queue of downloads on disk: replaced whole, read at the start."""

from pathlib import Path

import msgspec

from node.core.download_queue import Queue
from node.io.durability import replace_file
from node.log import logger

NAME = "downloads.json"
BYTES_MAX = 16 * 1024 * 1024

_queue: msgspec.json.Decoder[Queue] = msgspec.json.Decoder(Queue)
_log = logger("downloads")


class QueueFile:
    """Blocking; one node owns it."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / NAME

    def load(self) -> Queue:
        """What was kept; an empty queue where there is none, or none that can be read."""
        try:
            if self._path.stat().st_size > BYTES_MAX:
                raise msgspec.ValidationError("it is too large")
            return _queue.decode(self._path.read_bytes())
        except FileNotFoundError:
            return Queue()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            _log.error("%s can't be read, the queue begins empty: %s", self._path, error)
            return Queue()

    def save(self, queue: Queue) -> None:
        """Keep the queue; a disk that refuses costs only what a restart would have known."""
        try:
            replace_file(self._path, msgspec.json.encode(queue))
        except OSError as error:
            _log.warning("%s not written: %s", self._path, error)
