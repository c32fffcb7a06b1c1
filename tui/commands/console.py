"""What every command is given: its settings, a way to the node, and one way to write."""

import contextlib
import inspect
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Annotated, NoReturn, TypeVar

import msgspec
import typer

from node.config import API_PORT, environment_value, parse_address
from node.handle import NodeHandle
from node.io.node_lock import is_suspended, read_lock
from node.model.errors import ExoctlError, TimeoutExpiredError, UnreachableError, UsageError
from node.model.machine import Address
from tui.commands.contexts_file import chosen_context
from tui.commands.failures import leaves
from tui.commands.jsonable import encode, envelope
from tui.commands.plain import Table, render
from tui.commands.settings import COMMON_OPTIONS, OutputFormat, Settings, parameters
from tui.commands.yaml_text import yaml_lines
from tui.viewmodel.text import clean

Connector = Callable[[Address, str, bool, float | None], AbstractAsyncContextManager[NodeHandle]]
"""Opens a handle: address, token, whether it follows what happens, and the person's `--timeout`."""
Result = TypeVar("Result")
WATCH_SECONDS = 2.0
CLEAR = "\x1b[H\x1b[2J"
_CONTEXT = "typer_context"
_SILENT = (UnreachableError, TimeoutExpiredError)


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """What a command found, in every form that it can be written in."""

    kind: str
    index: int
    items: list[object]
    """Plain JSON types."""
    table: Table = Table((), ())
    names: tuple[str, ...]
    extra: dict[str, object] = {}
    """Further keys of the JSON object."""


class Console:
    """A command's settings, its way to the node, stdout for data and stderr for words."""

    def __init__(self, settings: Settings, connector: Connector) -> None:
        self.settings = settings
        self.connector = connector

    def overlaid(self, said: Mapping[str, object]) -> "Console":
        """The same console with a command's own options laid over the settings."""
        return Console(self.settings.overlaid(said), self.connector)

    # Writing

    def emit(self, listing: Listing) -> None:
        """Write what was found in the format that was asked for."""
        output = self.settings.format
        if output is OutputFormat.JSON:
            whole = envelope(listing.kind, listing.index, listing.items, listing.extra)
            self.write(encode(whole, pretty=sys.stdout.isatty()))
        elif output is OutputFormat.YAML:
            whole = envelope(listing.kind, listing.index, listing.items, listing.extra)
            for line in yaml_lines(whole):
                self.write(line)
        elif output is OutputFormat.NDJSON:
            for item in listing.items:
                self.write(encode(item, pretty=False))
        elif output is OutputFormat.NAME:
            for name in listing.names:
                self.write(clean(name))
        elif listing.table.rows:
            self.table(listing.table)
        elif listing.table.empty:
            self.say(listing.table.empty)

    def table(self, table: Table) -> None:
        """Write a table, cut to the terminal where stdout is one."""
        wide = self.settings.format is OutputFormat.WIDE
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal and not wide else 0
        for line in render(table, width=width, colour=self.has_colour, wide=wide):
            self.write(line)

    def write(self, line: str) -> None:
        """One line of data to stdout, at once."""
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """One line of words to the person; silent with `-q`."""
        if not self.settings.quiet:
            say(clean(text, keep="\n"))

    @property
    def is_json(self) -> bool:
        """Data is asked for as one JSON object or as lines of it."""
        return self.settings.is_json

    @property
    def has_colour(self) -> bool:
        """Stdout is a terminal that may be coloured."""
        return (
            sys.stdout.isatty()
            and not self.settings.no_color
            and not environment_value("NO_COLOR")
            and environment_value("TERM") != "dumb"
        )

    def confirm(self, question: str) -> None:
        """Ask before something that can't be taken back.

        Raises:
            UsageError: nobody is there to ask, and `-y` was not given.
            typer.Abort: the answer is no.
        """
        if self.settings.yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError.because(
                "confirmation_needed", f"{question} Nobody is there to ask", "say yes with -y"
            )
        # The loop's own handler would only note ctrl-c, and the prompt would go on.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            typer.confirm(clean(question), abort=True, err=True)
        finally:
            signal.signal(signal.SIGINT, before)

    def exit(self, code: int) -> NoReturn:
        """End the command with this code."""
        raise typer.Exit(code)

    # Reaching the node

    def connected(
        self, work: Callable[[NodeHandle], Awaitable[Result]], *, follow: bool = False
    ) -> Result:
        """Run the work with a handle of the node that the options name.

        Raises:
            UnreachableError: none runs, or it does not answer.
        """
        import anyio

        address, token = self.target()

        async def main() -> Result:
            async with self.connector(address, token, follow, self.patience_seconds) as handle:
                return await work(handle)

        try:
            return anyio.run(main)
        except (ExoctlError, BaseExceptionGroup) as error:
            self._blame_suspension(address, error)
            raise

    @property
    def patience_seconds(self) -> float | None:
        """What `--timeout` allows for an answer of the node; None where it is not said."""
        return None if self.settings.timeout is None else self.settings.timeout_seconds(0.0)

    def _blame_suspension(self, address: Address, error: BaseException) -> None:
        """Say so where a node of this machine did not answer because its process is suspended.

        Raises:
            UnreachableError: it is.
        """
        if not any(isinstance(leaf, _SILENT) for leaf in leaves(error)):
            return
        record = read_lock(self.settings.config().state_directory)
        if record is None or record.api != address or not is_suspended(record.process_id):
            return
        raise UnreachableError.because(
            "node_suspended",
            f"the node {record.name} answers nothing: its process {record.process_id} is suspended",
            f"let it go on with `kill -CONT {record.process_id}`, or `fg` in its terminal",
        ) from error

    def target(self) -> tuple[Address, str]:
        """Where the node's API is, and the token for it."""
        if self.settings.host:
            return parse_url(self.settings.host), self._token()
        chosen = chosen_context(self.settings.cluster)
        if chosen is not None:
            return parse_url(chosen.host), self.settings.token or chosen.token
        config = self.settings.config()
        record = read_lock(config.state_directory)
        if record is None:
            raise UnreachableError.because(
                "no_node",
                f"no node runs here (state directory {config.state_directory})",
                "start one with `exoctl` or `exoctl up`, or name one with --host URL",
            )
        if record.api is None:
            raise UnreachableError.because(
                "no_api",
                f"the node {record.name} (process {record.process_id}) has no API",
                "start it without --api-port -1",
            )
        return record.api, config.api_token

    def _token(self) -> str:
        return self.settings.token or self.settings.config().api_token


def say(text: str) -> None:
    """A line on stderr; nothing ends because it can't be written."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def parse_url(text: str) -> Address:
    """Read `http://host:port`, `host:port` or `host`.

    Raises:
        UsageError: it is https, has a path, or is no address.
    """
    rest = text.strip()
    scheme, separator, tail = rest.partition("://")
    if separator:
        rest = tail
        if scheme.lower() != "http":
            raise UsageError.because(
                "bad_host", f"{text!r}: nodes serve plain http", "write http://host:port"
            )
    return parse_address(rest.removesuffix("/"), API_PORT)


def add_command(
    application: typer.Typer,
    name: str,
    function: Callable[..., None],
    *,
    panel: str | None = None,
    options: tuple[str, ...] = COMMON_OPTIONS,
    is_watched: bool = False,
) -> None:
    """Register a function whose first parameter is its `Console`; its docstring is its help.

    The shared options are added to its own; where it has one of the same name, its own holds. A
    watched one has `--watch` too.
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    taken = {parameter.name for parameter in own}
    shared = [p for p in parameters(options, from_environment=False) if p.name not in taken]

    def run(typer_context: typer.Context, **arguments: object) -> None:
        said = {parameter.name: arguments.pop(parameter.name) for parameter in shared}
        base: Console = typer_context.obj
        console = base.overlaid(said)
        if is_watched and arguments.pop(WATCH.name):
            again_and_again(console, lambda: function(console, **arguments))
        function(console, **arguments)

    run.__doc__ = function.__doc__
    give_signature(run, [*own, *shared, *((WATCH,) if is_watched else ())])
    application.command(name, rich_help_panel=panel)(run)


WATCH = inspect.Parameter(
    "watch",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("-w", "--watch", help="Again every two seconds, until ctrl-c.")
    ],
)


def again_and_again(console: Console, show: Callable[[], None]) -> NoReturn:
    """Show it until the person has seen enough; on a terminal each time in the same place."""
    import anyio

    clears = sys.stdout.isatty() and not console.settings.is_plain_data
    while True:
        if clears:
            sys.stdout.write(CLEAR)
        with contextlib.suppress(typer.Exit):  # how it went is seen, not told by a code
            show()
        anyio.run(anyio.sleep, WATCH_SECONDS)


def give_signature(run: Callable[..., None], taken: list[inspect.Parameter]) -> None:
    """Let typer see these parameters behind the context of a function with `**arguments`."""
    context = inspect.Parameter(
        _CONTEXT, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    every = [context, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in taken)]
    vars(run)["__signature__"] = inspect.Signature(every)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
