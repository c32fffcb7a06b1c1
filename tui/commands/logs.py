"""`exoctl logs`: the lines of a node and its runners."""

from collections.abc import Sequence
from typing import Annotated

import anyio
import typer

from node.handle import LogLine, NodeHandle
from node.model.errors import NotFoundError, UsageError
from tui.commands.console import Console
from tui.commands.jsonable import encode, envelope, fields_of
from tui.commands.naming import find_node, node_name
from tui.commands.plain import coloured
from tui.commands.settings import OutputFormat
from tui.commands.units import clock_text
from tui.viewmodel.text import clean

LOOK_SECONDS = 0.5
LINES_MAX = 5000
_LEVELS = ("debug", "info", "warning", "error")
_INKS = {"warning": "warn", "error": "bad"}


def logs(
    console: Console,
    *,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with new lines.")] = False,
    source: Annotated[
        str, typer.Option("--source", metavar="NAME", help="A part, such as `worker` or a runner.")
    ] = "",
    node: Annotated[
        str, typer.Option("--node", metavar="NODE", help="All that another node logs.")
    ] = "",
    lines: Annotated[
        int,
        typer.Option("-n", "--lines", metavar="N", min=1, max=LINES_MAX, help="The last so many."),
    ] = 100,
    level: Annotated[
        str, typer.Option("--level", metavar="NAME", help="This and worse: debug to error.")
    ] = "debug",
) -> None:
    """Show the node's log and what its runners wrote; runners of other nodes too."""
    if node and source:
        raise UsageError.because("bad_source", "--node is all that it logs: leave out --source")
    if level not in _LEVELS:
        raise UsageError.because(
            "bad_level", f"no level is called {level!r}", f"use {', '.join(_LEVELS)}"
        )

    async def work(handle: NodeHandle) -> None:
        wanted = source
        if node and (chosen := find_node(handle.state, node)) != (await handle.local()).node:
            wanted = f"node {node_name(handle.state, chosen)}"
        if wanted:
            await _check_source(handle, wanted)
        newest = await handle.logs(wanted, LINES_MAX)
        writer = _Writer(console, handle, follow=follow)
        writer.write([line for line in newest if _at_least(line, level)][-lines:])
        while follow:
            await anyio.sleep(LOOK_SECONDS)
            found = await handle.logs(wanted, LINES_MAX)
            new = lines_after(newest, found)
            writer.write([line for line in new if _at_least(line, level)])
            newest = found
        writer.finish()

    console.connected(work)


async def _check_source(handle: NodeHandle, source: str) -> None:
    sources = await handle.log_sources()
    if source not in sources:
        raise NotFoundError.because(
            "log_source_not_found",
            f"nothing logs as {source!r}",
            f"there are: {', '.join(sources) or 'none yet'}",
        )


def lines_after(seen: Sequence[LogLine], found: Sequence[LogLine]) -> list[LogLine]:
    """The lines of `found` that come after the end of `seen`; all of them where it is not in."""
    if not seen:
        return list(found)
    for end in range(len(found), 0, -1):
        overlap = min(end, len(seen))
        if found[end - 1] == seen[-1] and list(found[end - overlap : end]) == list(seen[-overlap:]):
            return list(found[end:])
    return list(found)


def _at_least(line: LogLine, level: str) -> bool:
    # A runner's own output carries no level; it is shown unless only trouble is asked for.
    rank = _LEVELS.index(line.level) if line.level in _LEVELS else 1
    return rank >= _LEVELS.index(level)


class _Writer:
    def __init__(self, console: Console, handle: NodeHandle, *, follow: bool) -> None:
        self._console, self._handle = console, handle
        wanted = console.settings.format
        self._ndjson = wanted is OutputFormat.NDJSON or (follow and wanted is OutputFormat.JSON)
        self._object = wanted is OutputFormat.JSON and not follow
        self._items: list[object] = []

    def write(self, lines: Sequence[LogLine]) -> None:
        for line in lines:
            if self._object:
                self._items.append(fields_of(line))
            elif self._ndjson:
                self._console.write(encode(fields_of(line), pretty=False))
            else:
                self._console.write(self._text(line))

    def finish(self) -> None:
        if self._object:
            index = self._handle.state.index
            self._console.write(encode(envelope("LogLine", index, self._items, {}), pretty=False))

    def _text(self, line: LogLine) -> str:
        level = f"{line.level:<7}"
        if self._console.has_colour:
            level = coloured(level, _INKS.get(line.level, "idle"))
        head = f"{clock_text(line.at)}  {level}"
        return f"{head}  {clean(f'{line.source:<12}  {line.text}', keep=chr(10))}"
