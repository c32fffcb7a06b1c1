import errno
import logging
from collections.abc import Callable
from typing import TypeVar

import anyio
import psutil
import pytest

from node.model.ids import NodeId
from node.model.register import MachineFigures, RegisterValue, RequestFigures, RouterFigures
from node.model.state import Snapshot, State
from node.services import reporter as module
from node.services.feed import Feed
from node.services.register_store import RegisterStore
from node.services.reporter import Reporter
from node.wire.message import RegistersChanged
from tests.fakes.eventually import eventually
from tests.fakes.fake_handle import make_machine_figures

Value = TypeVar("Value")
ME, PEER = NodeId("me"), NodeId("peer")
TROUBLES = [OSError(errno.EMFILE, "Too many open files"), psutil.AccessDenied(1)]


class Lab:
    """A reporter whose sources a test breaks and mends."""

    def __init__(self) -> None:
        self.trouble: Exception | None = None
        self.calls = 0
        self.sent: list[RegisterValue] = []
        self.store = RegisterStore(ME, 1, Feed(lambda: Snapshot(state=State())))
        self.reporter = Reporter(
            self.store,
            lambda: (PEER,),
            self._send,
            {
                "requests": (self._reading(lambda: RequestFigures(ended_total=self.calls)), 0.0),
                "router": (lambda: RouterFigures(role="following", written=self.calls), 0.0),
            },
            self._reading(make_machine_figures),
        )

    def _reading(self, value: Callable[[], Value]) -> Callable[[], Value]:
        def read() -> Value:
            self.calls += 1
            if self.trouble is not None:
                raise self.trouble
            return value()

        return read

    def _send(self, peer: NodeId, message: RegistersChanged) -> bool:
        self.sent.extend(register.value for register in message.registers)
        return True

    def own(self, kind: type[RegisterValue]) -> RegisterValue | None:
        found = self.store.registers.get((ME, kind.__name__))
        return None if found is None else found.value


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_probe_that_fails_leaves_the_last_values_and_the_node_running(
    trouble: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MACHINE_SECONDS", 0.01)
    monkeypatch.setattr(module, "TICK_SECONDS", 0.01)
    lab = Lab()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lab.reporter.run)
        await eventually(lambda: lab.own(MachineFigures) and lab.own(RequestFigures))
        lab.trouble = trouble
        await eventually(lambda: lab.reporter.failing == {"machine", "requests"})
        kept, before = lab.own(RequestFigures), lab.calls
        await eventually(lambda: lab.calls > before + 6)
        assert lab.own(RequestFigures) == kept
        lab.trouble = None
        await eventually(lambda: lab.own(RequestFigures) != kept and not lab.reporter.failing)
        tasks.cancel_scope.cancel()


def test_a_source_that_fails_keeps_none_of_the_others_back() -> None:
    lab = Lab()
    lab.trouble = TROUBLES[0]
    lab.reporter.gather_now("requests")
    assert [type(value) for value in lab.sent] == [RouterFigures]


def test_a_failure_is_logged_once_and_again_after_it_was_mended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = Lab()
    with caplog.at_level(logging.WARNING):
        for trouble in (TROUBLES[0], TROUBLES[0], None, TROUBLES[0], TROUBLES[0]):
            lab.trouble = trouble
            lab.reporter.gather_now("requests")
    assert len(caplog.records) == 2
    assert "requests" in caplog.text
    assert "Too many open files" in caplog.text


def test_a_mistake_of_ours_is_not_hidden() -> None:
    lab = Lab()
    lab.trouble = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        lab.reporter.gather_now("requests")


async def test_every_register_is_told_again_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(module, "REPEAT_SECONDS", 0.05)
    lab = Lab()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lab.reporter.run)
        machine = make_machine_figures()
        await eventually(lambda: lab.sent.count(machine) >= 3)
        tasks.cancel_scope.cancel()
