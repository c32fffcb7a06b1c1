"""`exoctl bench`: how fast a model answers several clients at once; compares two measurements."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from node.handle import NodeHandle
from node.model.errors import UsageError
from tui.commands.bench_run import Asked, Point, Run, measure, provenance_of
from tui.commands.console import Console, Listing
from tui.commands.generation import make_ready
from tui.commands.jsonable import fields_of
from tui.commands.naming import find_model
from tui.commands.plain import Column, Table
from tui.commands.progress import ProgressLine
from tui.commands.units import duration_text, rate_text

CONCURRENCY = "1,2,3,4,5,8,16"
CONCURRENCY_MAX = 64
FAILED = 1
COMPARED = (
    "version", "model", "nodes", "chips", "mlx", "placement", "weight_format", "prompt_tokens",
    "output_tokens", "reuses_prefix",
)  # fmt: skip
"""What makes two runs alike."""
_POINT_COLUMNS = (
    Column("CLIENTS", right=True),
    Column("TOK/S", right=True),
    Column("FIRST", right=True),
    Column("WORST", right=True),
    Column("OUTPUT", right=True),
    Column("CACHED", right=True),
    Column("WHY", shrinks=True),
)
_COMPARISON_COLUMNS = (
    Column("CLIENTS", right=True),
    Column("BEFORE", right=True),
    Column("AFTER", right=True),
    Column("RATIO", right=True),
    Column("FIRST", right=True),
)


def bench(
    console: Console,
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="Loaded first where it is not loaded.")
    ] = None,
    *,
    concurrency: Annotated[
        str,
        typer.Option("--concurrency", metavar="N,N…", help="Clients at once, one after another."),
    ] = CONCURRENCY,
    prompt: Annotated[
        int, typer.Option("--prompt", metavar="TOKENS", min=1, max=1_000_000, help="About so long.")
    ] = 64,
    gen: Annotated[
        int, typer.Option("--gen", metavar="TOKENS", min=1, max=100_000, help="Tokens per answer.")
    ] = 32,
    prefix_reuse: Annotated[
        bool,
        typer.Option(
            "--prefix-reuse", help="All prompts begin alike, as with one long system text."
        ),
    ] = False,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Keep the figures, as JSON.")
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--compare", metavar="A B", help="Compare two kept runs; measures nothing."),
    ] = None,
) -> None:
    """Measure how fast a model answers several clients at once, or compare two measurements.

    Exit 1 where a request failed.
    """
    if compare is not None:
        _show_comparison(console, _read(compare[0]), _read(compare[1]))
        return
    if model is None:
        raise UsageError.because(
            "no_model", "which model is to be measured?", "name it, or --compare"
        )
    numbers = _read_concurrency(concurrency)

    async def work(handle: NodeHandle) -> None:
        found = find_model(handle, model)
        await make_ready(console, handle, found)
        asked = Asked(
            model=found, prompt_tokens=prompt, output_tokens=gen, reuses_prefix=prefix_reuse
        )
        provenance = await provenance_of(handle, asked)
        points = await _points(console, handle, asked, numbers)
        run = Run(provenance=provenance, points=points)
        _show(console, handle, run)
        if save is not None:
            _save(save, run)
        if any(point.failed for point in points):
            console.exit(FAILED)

    console.connected(work, follow=True)


async def _points(
    console: Console, handle: NodeHandle, asked: Asked, numbers: list[int]
) -> list[Point]:
    points: list[Point] = []
    with ProgressLine(console) as line:
        await measure(handle, asked, 1)  # the first prompt of all meets the first time of much
        for number in numbers:
            line.update("one client" if number == 1 else f"{number} clients at once")
            points.append(await measure(handle, asked, number))
    return points


def _show(console: Console, handle: NodeHandle, run: Run) -> None:
    made = run.provenance
    if not console.is_json:
        console.say(
            f"{made.model} on {', '.join(made.nodes)} ({made.placement}, {made.weight_format}),"
            f" prompts of about {made.prompt_tokens} tokens, answers of {made.output_tokens},"
            f" load average {made.load_average:.1f}"
        )
    console.emit(
        Listing(
            kind="BenchPoint",
            index=handle.state.index,
            items=[fields_of(point) for point in run.points],
            names=tuple(str(point.concurrency) for point in run.points),
            table=Table(_POINT_COLUMNS, tuple(_row(point) for point in run.points)),
            extra={"provenance": fields_of(made)},
        )
    )


def _row(point: Point) -> tuple[str, ...]:
    return (
        str(point.concurrency),
        rate_text(point.tokens_per_second),
        duration_text(point.first_token_median_seconds),
        duration_text(point.first_token_worst_seconds),
        str(point.output_tokens),
        str(point.cached_tokens),
        f"{point.failed} failed: {point.failure}" if point.failed else "",
    )


def _show_comparison(console: Console, before: Run, after: Run) -> None:
    earlier = {point.concurrency: point for point in before.points}
    pairs = [
        (earlier[each.concurrency], each) for each in after.points if each.concurrency in earlier
    ]
    if not pairs:
        raise UsageError.because(
            "nothing_in_common", "the two runs have no number of clients in common"
        )
    for name in COMPARED:
        one, other = getattr(before.provenance, name), getattr(after.provenance, name)
        if one != other:
            console.say(f"not alike: {name} was {one}, is {other}")
    rows = [
        (
            now.concurrency,
            then.tokens_per_second,
            now.tokens_per_second,
            _ratio(now.tokens_per_second, then.tokens_per_second),
            _ratio(now.first_token_median_seconds, then.first_token_median_seconds),
        )
        for then, now in pairs
    ]
    names = ("concurrency", "before", "after", "ratio", "first_token_ratio")
    console.emit(
        Listing(
            kind="BenchComparison",
            index=0,
            items=[dict(zip(names, row, strict=True)) for row in rows],
            names=tuple(str(row[0]) for row in rows),
            table=Table(
                _COMPARISON_COLUMNS, tuple(tuple(str(cell) for cell in row) for row in rows)
            ),
        )
    )


def _ratio(after: float, before: float) -> float:
    return round(after / before, 3) if before else 0.0


def _read_concurrency(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",") if part.strip().isdecimal()]
    known = len(numbers) == text.count(",") + 1
    if not known or not 0 < min(numbers) <= max(numbers) <= CONCURRENCY_MAX:
        raise UsageError.because(
            "bad_concurrency",
            f"{text!r} is no list of numbers from 1 to {CONCURRENCY_MAX}",
            f"write it like {CONCURRENCY}",
        )
    return numbers


def _save(file: Path, run: Run) -> None:
    try:
        file.write_bytes(msgspec.json.encode(run))
    except OSError as error:
        raise UsageError.because("not_saved", f"{file} can't be written: {error}") from error


def _read(file: Path) -> Run:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Run)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError.because("no_run", f"{file} holds no kept run: {error}") from error
