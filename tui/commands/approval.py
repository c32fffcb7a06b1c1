"""`exoctl cluster pending|approve|deny`: joining where two people, or one, compare a code."""

from typing import Annotated

import typer

from node.handle import NodeHandle
from node.model.errors import ConflictError, NotFoundError
from node.model.ids import NodeId, short
from node.model.machine import Address
from node.model.register import JoinFigures, JoinRequest
from tui.commands.changes import check_may_change, say_done, until
from tui.commands.console import Console, Listing
from tui.commands.jsonable import fields_of
from tui.commands.naming import node_name
from tui.commands.plain import Column, Table
from tui.commands.units import rfc3339
from tui.viewmodel.text import grouped

ADMISSION_SECONDS = 60.0
APPROVAL_SECONDS = 600.0
_REQUEST_COLUMNS = (
    Column("NAME", shrinks=True),
    Column("ID"),
    Column("CODE"),
    Column("CONFIRMED"),
    Column("ADDRESS", extra=True),
    Column("ASKED"),
    Column("EXPIRES", extra=True),
)


async def join_by_approval(console: Console, handle: NodeHandle, address: Address | None) -> None:
    """Ask to be let in, have the person compare the codes, and wait for the other side."""
    seconds = console.settings.timeout_seconds(APPROVAL_SECONDS)
    request = await handle.ask_to_join(address)
    console.say(f"{request.name} ({short(request.node)}) at {request.address} was asked.")
    console.say(f"Both screens must show {grouped(request.code)}; approve it there:")
    console.say("  `A` in the app, or `exoctl cluster approve`")
    try:
        console.confirm(f"Does {request.name} show {grouped(request.code)} too?")
    except BaseException:
        await handle.finish_join(request.id, matches=False)
        raise
    console.say(f"waiting for {request.name}")
    await handle.finish_join(request.id, matches=True, timeout_seconds=seconds)


def cluster_pending(console: Console) -> None:
    """List the machines that ask to be let in, with the code that their screens must show."""

    async def work(handle: NodeHandle) -> None:
        found = waiting_requests(handle)
        rows = tuple(
            (
                request.name,
                request.id,
                grouped(request.code),
                "yes" if request.is_confirmed else "not yet",
                str(request.address),
                node_name(handle.state, asked),
                rfc3339(request.expires_at) or "",
            )
            for asked, request in found
        )
        console.emit(
            Listing(
                kind="JoinRequest",
                index=handle.state.index,
                items=[{**fields_of(request), "asked": asked} for asked, request in found],
                table=Table(_REQUEST_COLUMNS, rows, empty="no machine asks to be let in"),
                names=tuple(request.id for _, request in found),
            )
        )

    console.connected(work)


RequestArgument = Annotated[
    str, typer.Argument(metavar="[NAME|ID]", help="Which machine; not needed where only one asks.")
]


def cluster_approve(console: Console, machine: RequestArgument = "") -> None:
    """Let a machine in that asks, once its screen shows the same code."""

    async def work(handle: NodeHandle) -> None:
        check_may_change(console)
        request = _one_request(handle, machine)
        console.confirm(f"Does {request.name} show {grouped(request.code)} too?")
        await handle.judge_join(request.id, approve=True)
        seconds = console.settings.timeout_seconds(ADMISSION_SECONDS)
        console.say(f"approved; {request.name} must confirm the code too")
        await until(
            handle,
            lambda: request.node in handle.state.nodes,
            timeout_seconds=seconds,
            what=f"{request.name} to confirm the code and join",
        )
        say_done(
            console,
            subject=request.node,
            name=request.name,
            change="joined",
            index=handle.state.index,
        )

    console.connected(work, follow=True)


def cluster_deny(console: Console, machine: RequestArgument = "") -> None:
    """Send a machine away that asks to be let in."""

    async def work(handle: NodeHandle) -> None:
        check_may_change(console)
        request = _one_request(handle, machine)
        await handle.judge_join(request.id, approve=False)
        say_done(
            console,
            subject=request.node,
            name=request.name,
            change="denied",
            index=handle.state.index,
        )

    console.connected(work)


def waiting_requests(handle: NodeHandle) -> list[tuple[NodeId, JoinRequest]]:
    """Each machine that asks, with the member that it asks."""
    return [
        (node, request)
        for (node, _), register in handle.registers.items()
        if isinstance(register.value, JoinFigures)
        for request in register.value.requests
    ]


def _one_request(handle: NodeHandle, machine: str) -> JoinRequest:
    found = [
        request
        for _, request in waiting_requests(handle)
        if not machine or machine in (request.id, request.name) or request.node.startswith(machine)
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFoundError.because(
            "no_such_request",
            f"no machine {machine!r} asks to be let in" if machine else "no machine asks",
            "on the machine that is to join: `exoctl cluster join --peer HOST:PORT`",
        )
    names = ", ".join(f"{request.name} ({request.id})" for request in found)
    raise ConflictError.because(
        "ambiguous_request", f"{len(found)} machines ask: {names}", "name one by its id"
    )


def cluster_rotate(console: Console) -> None:
    """Withdraw every open invite and waiting machine, and change the secret of a fleet."""

    async def work(handle: NodeHandle) -> None:
        check_may_change(console)
        console.confirm("Withdraw all open invites, and the fleet's secret if there is one?")
        rotation = await handle.rotate()
        if console.settings.is_plain_data:
            console.emit(
                Listing(
                    kind="Rotation",
                    index=handle.state.index,
                    items=[fields_of(rotation)],
                    names=(rotation.secret_file,),
                )
            )
            return
        console.write(f"withdrawn: {rotation.withdrawn}; members told: {rotation.members_told}")
        if rotation.secret_file:
            console.say(
                f"The new secret is in {rotation.secret_file}, here and on linked members that have"
                " one; bring it to machines that are off."
            )

    console.connected(work)
