"""What the screen wants of the node's loop, carried there by a thread that may wait for it."""

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError


class Errands:
    """Carries what the screen wants over to the node's loop, in order, in a thread of its own:
    asking a loop for something waits for that loop, and the screen may wait for nothing.
    """

    def __init__(self) -> None:
        self._due: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="node calls", daemon=True).start()

    def do(self, errand: Callable[[], object]) -> None:
        """Have it done as soon as the loop listens."""
        self._due.put(errand)

    def close(self) -> None:
        """End once what was asked for before is done."""
        self._due.put(None)

    def _run(self) -> None:
        while (errand := self._due.get()) is not None:
            with contextlib.suppress(RuntimeError, CancelledError):  # the loop has ended
                errand()
