"""The command line over a node in memory: arguments in, exit code and both streams out."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from node.handle import NodeHandle
from node.model.errors import ExoctlError
from node.model.machine import Address
from tui.command_line import execute


class Outcome:
    """What one command line came to."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def lines(self) -> list[str]:
        """Lines of stdout."""
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        """Stdout as one JSON value."""
        return json.loads(self.out)

    @property
    def records(self) -> list[Any]:
        """Stdout as NDJSON."""
        return [json.loads(line) for line in self.lines]

    @property
    def error(self) -> Any:
        """The error object on stderr."""
        return json.loads(self.err)["error"]


class CommandLine:
    """Runs command lines against one handle."""

    def __init__(self, handle: NodeHandle, capsys: pytest.CaptureFixture[str]) -> None:
        self.handle = handle
        self.unreachable: ExoctlError | None = None
        self.connections: list[tuple[Address, str, bool]] = []
        self.capsys = capsys

    def __call__(self, *arguments: str) -> Outcome:
        """Run one command line against the handle, at an address that nobody listens on."""
        return self.bare("--host", "127.0.0.1:1", *arguments)

    def bare(self, *arguments: str) -> Outcome:
        """Run one command line as it is."""
        code = execute(arguments, self._connect)
        captured = self.capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    @asynccontextmanager
    async def _connect(
        self, address: Address, token: str, follow: bool, patience_seconds: float | None
    ) -> AsyncGenerator[NodeHandle]:
        self.connections.append((address, token, follow))
        if self.unreachable is not None:
            raise self.unreachable
        yield self.handle
