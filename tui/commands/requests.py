"""`exoctl req`: generations that run or just ended, and ending one."""

from typing import Annotated

import typer

from node.handle import NodeHandle
from node.io import clock
from node.model.errors import NotFoundError, UsageError
from node.model.ids import RequestId
from node.model.instance import Instance
from node.model.register import RequestFigures
from node.model.request import RequestPhase, RequestRecord
from tui.commands.changes import check_may_change, say_done
from tui.commands.console import Console, Listing
from tui.commands.figures import figures, placement_text
from tui.commands.jsonable import fields_of
from tui.commands.naming import node_name
from tui.commands.plain import Column, Table
from tui.commands.units import NOTHING, duration_text, rate_text, rfc3339

RUNNING = (RequestPhase.QUEUED, RequestPhase.PREFILL, RequestPhase.DECODE)
_COLUMNS = (
    Column("ID"),
    Column("STATE", toned=True),
    Column("MODEL", shrinks=True),
    Column("INSTANCE", extra=True),
    Column("TAKEN BY", shrinks=True, extra=True),
    Column("PROMPT", right=True, extra=True),
    Column("OUTPUT", right=True),
    Column("FIRST", right=True),
    Column("TOK/S", right=True),
    Column("AGE", right=True, extra=True),
    Column("WHY", shrinks=True),
)


def req_ls(
    console: Console,
    *,
    every: Annotated[bool, typer.Option("--all", "-a", help="Those that ended too.")] = False,
) -> None:
    """List the generations of the whole cluster."""

    async def work(handle: NodeHandle) -> None:
        shown = [each for each in all_requests(handle) if every or each.phase in RUNNING]
        console.emit(
            Listing(
                kind="Request",
                index=handle.state.index,
                items=[
                    {**fields_of(each), "taken_by_name": node_name(handle.state, each.taken_by)}
                    for each in shown
                ],
                table=Table(
                    _COLUMNS,
                    tuple(_row(handle, each) for each in shown),
                    empty="nothing is running" + ("" if every else "; --all shows what ended"),
                ),
                names=tuple(each.request for each in shown),
            )
        )

    console.connected(work)


def req_show(
    console: Console,
    request: Annotated[str, typer.Argument(metavar="ID", help="Id of the request, or its start.")],
) -> None:
    """Show one generation: who took it, which nodes work on it, how far it is."""

    async def work(handle: NodeHandle) -> None:
        record = _named(handle, request)
        instance = handle.state.instances.get(record.instance)
        item: dict[str, object] = {
            **fields_of(record),
            "taken_by_name": node_name(handle.state, record.taken_by),
            "route": [
                {**fields_of(shard), "node_name": node_name(handle.state, shard.node)}
                for shard in (instance.shards if instance else ())
            ],
        }
        columns = (Column("FACT"), Column("VALUE", shrinks=True))
        console.emit(
            Listing(
                kind="Request",
                index=handle.state.index,
                items=[item],
                table=Table(columns, _facts(handle, record, instance)),
                names=(record.request,),
            )
        )

    console.connected(work)


def _facts(
    handle: NodeHandle, record: RequestRecord, instance: Instance | None
) -> tuple[tuple[str, str], ...]:
    row = dict(zip((column.title for column in _COLUMNS), _row(handle, record), strict=True))
    facts = [(title.lower(), value) for title, value in row.items() if value and title != "PROMPT"]
    prefilled = f"{record.prefilled_tokens} of {record.prompt_tokens} tokens read"
    facts.append(("prompt", prefilled))
    facts.append(("started", rfc3339(record.started_at) or NOTHING))
    if record.ended_at:
        facts.append(("ended", rfc3339(record.ended_at) or NOTHING))
    if instance is None:
        facts.append(("route", f"{record.instance} is gone"))
    else:
        facts.append(("route", placement_text(handle.state, instance)))
    if record.failure is not None and record.failure.remedy:
        facts.append(("remedy", record.failure.remedy))
    return tuple(facts)


def req_cancel(
    console: Console,
    request: Annotated[str, typer.Argument(metavar="ID", help="Id of the request, or its start.")],
) -> None:
    """End a generation, wherever it runs."""

    async def work(handle: NodeHandle) -> None:
        check_may_change(console)
        found = _find(handle, request)
        if not await handle.cancel(found):
            raise NotFoundError.because(
                "request_not_running", f"{found} does not run (any more)", "see `exoctl req ls -a`"
            )
        say_done(console, subject=found, name=found, change="cancelled", index=handle.state.index)

    console.connected(work)


def all_requests(handle: NodeHandle) -> list[RequestRecord]:
    """The requests of every node, oldest first."""
    found: list[RequestRecord] = []
    for node in handle.state.nodes:
        taken = figures(handle, node, RequestFigures)
        found.extend(taken.requests if taken else ())
    return sorted(found, key=lambda record: record.started_at)


def _named(handle: NodeHandle, text: str) -> RequestRecord:
    """The request of an id or its start, running or ended.

    Raises:
        NotFoundError: no such request. UsageError: several match; all are named.
    """
    every = all_requests(handle)
    found = [each for each in every if each.request == text]
    found = found or [
        each for each in every if len(text) > 2 and each.request.startswith((text, f"q-{text}"))
    ]
    if len(found) > 1:
        names = ", ".join(each.request for each in found)
        raise UsageError.because("ambiguous_request", f"{text!r} names several: {names}")
    if not found:
        raise NotFoundError.because(
            "request_not_found",
            f"no request is called {text!r}; a node remembers the last that ended",
            "see `exoctl req ls --all`",
        )
    return found[0]


def _find(handle: NodeHandle, text: str) -> RequestId:
    """The running request of an id or its start; the text itself where it is a whole id.

    Raises:
        NotFoundError: no such request. UsageError: several match; all are named.
    """
    running = [each.request for each in all_requests(handle) if each.phase in RUNNING]
    found = [each for each in running if each == text or each.removeprefix("q-").startswith(text)]
    found = found or [each for each in running if each.startswith(text) and len(text) > 2]
    if len(found) > 1:
        raise UsageError.because(
            "ambiguous_request", f"{text!r} names more than one request: {', '.join(found)}"
        )
    if found:
        return found[0]
    if text.startswith("q-") and len(text) == 18:
        return RequestId(text)
    raise NotFoundError.because(
        "request_not_found", f"no running request is called {text!r}", "see `exoctl req ls`"
    )


def _row(handle: NodeHandle, record: RequestRecord) -> tuple[str, ...]:
    first = record.first_token_seconds
    until = record.ended_at or clock.wall()
    return (
        record.request,
        record.phase.value,
        record.model,
        record.instance,
        node_name(handle.state, record.taken_by),
        str(record.prompt_tokens),
        str(record.output_tokens),
        duration_text(first) if first > 0 else NOTHING,
        rate_text(record.tokens_per_second),
        duration_text(until - record.started_at) if record.started_at else NOTHING,
        record.failure.message if record.failure else "",
    )
