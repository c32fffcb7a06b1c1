"""Sees a step that never ends: a sum over ranks waits for ever where one of them is frozen."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

LOOK_SECONDS = 1.0
"""The longest sleep while steps are computed; without one it sleeps until the next begins."""


class StepWatch:
    """Calls `overdue` from a thread of its own, once, when a step takes longer than it may."""

    def __init__(self, overdue: Callable[[float], None]) -> None:
        """`overdue` gets the seconds that the step had."""
        self._overdue = overdue
        self._changed = threading.Condition()
        self._step: tuple[float, float] | None = None
        self._sleeps = False
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    @contextmanager
    def within(self, seconds: float) -> Generator[None]:
        """What is done inside must end in so many seconds."""
        with self._changed:
            self._step = (time.monotonic() + seconds, seconds)
            if self._sleeps:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._step = None

    def _run(self) -> None:
        while (seconds := self._wait()) is None:
            pass
        self._overdue(seconds)

    def _wait(self) -> float | None:
        with self._changed:
            if self._step is None:
                self._sleeps = True
                self._changed.wait()
                self._sleeps = False
                return None
            by, seconds = self._step
            remaining = by - time.monotonic()
            if remaining <= 0:
                return seconds
            self._changed.wait(min(remaining, LOOK_SECONDS))
            return None
