"""The command `exoctl`: its options and commands, and how failures are said."""

import io
import itertools
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TextIO

import typer
from typer.exceptions import TyperException

from node.config import environment_value
from node.handle import NodeHandle
from node.model.errors import ExoctlError, Failure, InternalError, UsageError
from node.model.machine import Address
from tui.commands.console import Connector, Console, say
from tui.commands.failures import leaves
from tui.commands.input_text import check_text
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
    for stream, errors in ((sys.stdin, "strict"), (sys.stdout, "replace"), (sys.stderr, "replace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
    code = execute(sys.argv[1:], connect_over_http)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is said: there is nothing left to interrupt
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
        code = PIPE_CLOSED
    except OSError:  # it was said when it first failed
        _silence(sys.stdout)
        code = code or ExoctlError.exit_code
    sys.exit(code)


def execute(arguments: Sequence[str], connector: Connector) -> int:
    """Run one command line and return its exit code; failures are said on stderr."""
    as_json = _wants_json(arguments)
    try:
        check_text(arguments)
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
    except UnicodeEncodeError as error:
        return report(_no_text(error), as_json=as_json)
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
    where = f" (on {failure.node})" if failure.node else ""
    remedy = f"\n  try: {failure.remedy}" if failure.remedy else ""
    words = clean(f"error: {failure.message}{where}{remedy}", keep="\n")
    if as_json:
        words = encode(error_object(failure, type(error).__name__), pretty=False)
    say(words)
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
        _silence(sys.stdout)
        return PIPE_CLOSED
    for leaf in found:
        if isinstance(leaf, typer.Exit):
            return leaf.exit_code
        if isinstance(leaf, ExoctlError):
            return report(leaf, as_json=as_json)
        if isinstance(leaf, UnicodeEncodeError):
            return report(_no_text(leaf), as_json=as_json)
    if all(isinstance(leaf, OSError) for leaf in found):
        return report(_system_error(found[0]), as_json=as_json)
    raise error


def _system_error(error: BaseException) -> ExoctlError:
    """What the system refused: a full disk, a missing permission, too many open files."""
    return InternalError.because("system", str(error), "see `exoctl doctor`")


def _no_text(error: UnicodeEncodeError) -> ExoctlError:
    """A name of the system's, such as a directory's, that no protocol of ours can carry."""
    return UsageError.because(
        "not_text", f"{error.object!r} is no text in UTF-8", "rename it, or name another"
    )


def _silence(stream: TextIO) -> None:
    """Keep the interpreter from writing what is left to where it can't be written."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether errors are to be JSON, known even where the arguments can't be parsed."""
    pairs = itertools.pairwise(arguments)
    return (
        any(argument in _JSON_WORDS for argument in arguments)
        or any(a in ("-o", "--output") and b in ("json", "ndjson") for a, b in pairs)
        or environment_value("EXOCTL_OUTPUT") in ("json", "ndjson")
        or environment_value("EXOCTL_JSON").lower() in ("1", "true", "yes", "on")
    )
