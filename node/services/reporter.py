"""Registers of this node: gathered at their own pace, sent to every peer, latest value wins."""

from collections.abc import Callable, Mapping

import anyio
import anyio.to_thread
import psutil

from node.io import clock
from node.log import logger
from node.model.ids import NodeId
from node.model.register import MachineFigures, Register, RegisterValue
from node.services.register_store import RegisterStore
from node.wire.message import RegistersChanged

TICK_SECONDS = 0.25
MACHINE_SECONDS = 2.0
REPEAT_SECONDS = 30.0
"""How often every peer is told all registers again, whatever may have been lost on the way."""

_log = logger("reporter")

Source = Callable[[], RegisterValue]


class Reporter:
    """Asks each source in turn; a value that has not changed is not sent.

    A source that the system denies its figures (no file descriptor left, a process that is gone)
    keeps its last value and is asked again at its next turn.
    """

    def __init__(
        self,
        store: RegisterStore,
        peers: Callable[[], tuple[NodeId, ...]],
        send: Callable[[NodeId, RegistersChanged], bool],
        sources: Mapping[str, tuple[Source, float]],
        probe_machine: Callable[[], MachineFigures],
    ) -> None:
        """`sources` gives for each name how to read it and how often, in seconds."""
        self._store = store
        self._peers = peers
        self._send = send
        self._sources = sources
        self._probe_machine = probe_machine
        self._due: dict[str, float] = dict.fromkeys(sources, 0.0)
        self.failing: set[str] = set()
        """Sources that could not be read the last time."""

    def peer_up(self, peer: NodeId) -> None:
        """A link is up: that peer gets everything."""
        registers = self._store.own()
        if registers:
            self._send(peer, RegistersChanged(registers=registers))

    async def run(self) -> None:
        """Gather and send until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run_machine)
            repeat_at = clock.monotonic() + REPEAT_SECONDS
            while True:
                self._gather()
                if clock.monotonic() >= repeat_at:
                    repeat_at = clock.monotonic() + REPEAT_SECONDS
                    self.repeat()
                await anyio.sleep(TICK_SECONDS)

    def repeat(self) -> None:
        """Tell every peer all registers again: who had this node for lost has forgotten them."""
        self._tell(self._store.own())

    def gather_now(self, name: str) -> None:
        """Read one source at once, as after a change that people wait for."""
        self._due[name] = 0.0
        self._gather()

    def _gather(self) -> None:
        now = clock.monotonic()
        changed: list[Register] = []
        for name, (source, every_seconds) in self._sources.items():
            if now < self._due[name]:
                continue
            self._due[name] = now + every_seconds
            value = self._read(name, source)
            register = None if value is None else self._store.set_own(value)
            if register is not None:
                changed.append(register)
        self._tell(tuple(changed))

    async def _run_machine(self) -> None:
        while True:
            # Some of the figures come from files that can block for a moment.
            figures = await anyio.to_thread.run_sync(self._read, "machine", self._probe_machine)
            register = None if figures is None else self._store.set_own(figures)
            if register is not None:
                self._tell((register,))
            await anyio.sleep(MACHINE_SECONDS)

    def _read(self, name: str, source: Source) -> RegisterValue | None:
        """A source's value, or None where the system does not tell it."""
        try:
            value = source()
        except (OSError, psutil.Error) as error:
            if name not in self.failing:
                _log.warning("figures of %s stay as they were: %s", name, error)
            self.failing.add(name)
            return None
        self.failing.discard(name)
        return value

    def _tell(self, registers: tuple[Register, ...]) -> None:
        if not registers:
            return
        message = RegistersChanged(registers=registers)
        for peer in self._peers():
            self._send(peer, message)
