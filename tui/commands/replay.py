"""`exoctl record` and `exoctl replay`: what happened, kept in a file and seen again."""

from pathlib import Path
from typing import Annotated

import anyio
import typer

from node.handle import NodeHandle
from node.io import clock
from node.model.errors import InternalError, UsageError
from tui.commands.console import Console
from tui.commands.progress import ProgressLine
from tui.commands.units import parse_duration

SPEED_MAX = 1000.0
_LOOK_SECONDS = 0.5


def record(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written; must not exist yet.")],
    *,
    seconds: Annotated[
        str, typer.Option("--for", metavar="5m", help="Stop after this long; else at ctrl-c.")
    ] = "",
) -> None:
    """Keep everything that the node says from now on in a file, for `exoctl replay`.

    The entries that its log still has come first. Neither prompts nor answers are in it.
    """
    from tui.bridge.recording import record as record_stream

    limit = parse_duration(seconds) if seconds else float("inf")

    async def show(line: ProgressLine) -> None:
        started = clock.monotonic()
        while True:
            size = file.stat().st_size
            line.update(f"recording to {file}", f"{clock.monotonic() - started:.0f} s, {size:,} B")
            await anyio.sleep(_LOOK_SECONDS)

    async def work(handle: NodeHandle) -> None:
        try:
            with file.open("xb") as opened, ProgressLine(console) as line:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(show, line)
                    with anyio.move_on_after(limit):
                        await record_stream(handle, opened, clock.wall)
                    tasks.cancel_scope.cancel()
        except FileExistsError as error:
            raise UsageError.because(
                "file_exists", f"{file} exists already", "name another file"
            ) from error
        except OSError as error:
            raise InternalError.because("not_written", f"{file}: {error.strerror}") from error

    console.connected(work, follow=True)
    console.say(f"`exoctl replay {file}` shows it again")


def replay(
    console: Console,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written by `exoctl record`.")],
    *,
    speed: Annotated[
        float, typer.Option("--speed", metavar="N", help="So many times as fast.")
    ] = 1.0,
    skip: Annotated[
        str, typer.Option("--from", metavar="30s", help="Begin so long after its beginning.")
    ] = "0s",
) -> None:
    """Show a recording in the app, as if it happened now. Nothing in it can be changed."""
    from tui.commands.launch import check_terminal, options_of

    if not 0 < speed <= SPEED_MAX:
        raise UsageError.because(
            "bad_speed", f"--speed {speed:g} is off", f"use more than 0, up to {SPEED_MAX:g}"
        )
    if not file.is_file():
        raise UsageError.because("recording_unreadable", f"{file}: no such file")
    check_terminal()
    from tui.app import run_replay

    console.exit(run_replay(file, speed, parse_duration(skip), options_of(console)))
