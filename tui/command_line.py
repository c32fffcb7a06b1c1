"""The command `exoctl`: its options and commands, and how failures are said."""

import io
import itertools
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import typer
from typer.exceptions import TyperException

from node.config import environment_value
from node.handle import NodeHandle
from node.model.errors import ExoctlError, Failure, InternalError, UsageError
from node.model.machine import Address
from tui.commands.console import Connector, Console
from tui.commands.failures import leaves
from tui.commands.jsonable import encode, error_object
from tui.commands.local import COMPLETION_VARIABLE, PROGRAM
from tui.commands.registry import build
from tui.commands.settings import Settings
from tui.viewmodel.text import clean

INTERRUPTED = 128 + signal.SIGINT
PIPE_CLOSED = 128 + signal.SIGPIPE
_JSON_WORDS = {"--json", "-ojson", "-ondjson", "--output=json", "--output=ndjson"}


def run() -> None:
    """Run the command of this process's arguments; never returns."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code = execute(sys.argv[1:], connect_over_http)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
        code = PIPE_CLOSED
    sys.exit(code)


def execute(arguments: Sequence[str], connector: Connector) -> int:
    """Run one command line and return its exit code; failures are said on stderr."""
    as_json = _wants_json(arguments)
    try:
        code = build()(
            args=list(arguments),
            prog_name=PROGRAM,
            complete_var=COMPLETION_VARIABLE,
            standalone_mode=False,
            obj=Console(Settings(), connector),
        )
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except TyperException as error:
        return _report_usage(error, as_json=as_json)
    except (ExoctlError, OSError, BaseExceptionGroup) as error:
        return _report_raised(error, as_json=as_json)
    return code if isinstance(code, int) else 0


def connect_over_http(
    address: Address,
    token: str,
    follow: bool,  # noqa: FBT001 - the shape of a Connector
    patience_seconds: float | None,
) -> AbstractAsyncContextManager[NodeHandle]:
    """The connector of the real command line."""
    from node.client import connect

    return connect(address, token, follow=follow, patience_seconds=patience_seconds)


def report(error: ExoctlError, *, as_json: bool) -> int:
    """Say a failure on stderr, with what helps; returns its exit code."""
    failure = error.failure
    if as_json:
        sys.stderr.write(encode(error_object(failure, type(error).__name__), pretty=False) + "\n")
        return error.exit_code
    where = f" (on {failure.node})" if failure.node else ""
    sys.stderr.write(clean(f"error: {failure.message}{where}", keep="\n") + "\n")
    if failure.remedy:
        sys.stderr.write(clean(f"  try: {failure.remedy}", keep="\n") + "\n")
    return error.exit_code


def _report_usage(error: TyperException, *, as_json: bool) -> int:
    context: typer.Context | None = getattr(error, "ctx", None)
    path = context.command_path if context else PROGRAM
    failure = Failure(
        code="usage",
        message=error.format_message().replace("Value error, ", "").rstrip("."),
        remedy=f"`{path} --help`",
    )
    return report(UsageError(failure), as_json=as_json)


def _report_raised(error: BaseException, *, as_json: bool) -> int:
    """Task groups wrap what their tasks raise: say the one failure that matters."""
    found = leaves(error)
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in found):
        return INTERRUPTED
    if any(isinstance(leaf, BrokenPipeError) for leaf in found):
        _silence_stdout()
        return PIPE_CLOSED
    for leaf in found:
        if isinstance(leaf, typer.Exit):
            return leaf.exit_code
        if isinstance(leaf, ExoctlError):
            return report(leaf, as_json=as_json)
    if all(isinstance(leaf, OSError) for leaf in found):
        return report(_system_error(found[0]), as_json=as_json)
    raise error


def _system_error(error: BaseException) -> ExoctlError:
    """What the system refused: a full disk, a missing permission, too many open files."""
    return InternalError.because("system", str(error), "see `exoctl doctor`")


def _silence_stdout() -> None:
    """Keep the interpreter from writing what is left to a pipe that nobody reads."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether errors are to be JSON, known even where the arguments can't be parsed."""
    pairs = itertools.pairwise(arguments)
    return (
        any(argument in _JSON_WORDS for argument in arguments)
        or any(a in ("-o", "--output") and b in ("json", "ndjson") for a, b in pairs)
        or environment_value("EXOCTL_OUTPUT") in ("json", "ndjson")
        or environment_value("EXOCTL_JSON").lower() in ("1", "true", "yes", "on")
    )
