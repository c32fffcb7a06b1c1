"""What every test of the screen shares."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.command_line import CommandLine
from tests.fakes.fake_handle import FakeHandle
from tests.fakes.idle import told_by_the_loop
from tests.fakes.surroundings import isolate


@pytest.fixture(autouse=True, scope="session")
def _rest_is_told_by_the_loop() -> Iterator[None]:
    with told_by_the_loop():
        yield


@pytest.fixture
def handle() -> FakeHandle:
    """A node in memory; a module of tests may have one of its own."""
    return FakeHandle()


@pytest.fixture
def line(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    handle: FakeHandle,
) -> CommandLine:
    """The command line, attached to that node, with no settings of this machine's."""
    isolate(monkeypatch, tmp_path)
    return CommandLine(handle, capsys)
