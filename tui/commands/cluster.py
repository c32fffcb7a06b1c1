"""`exoctl cluster`: who belongs together, and how a machine comes in or goes."""

from typing import Annotated

import anyio
import typer

from node.config import parse_address
from node.handle import NodeHandle
from node.model.errors import UsageError
from node.model.ids import short
from node.model.machine import NodeRecord
from node.model.register import RouterFigures
from tui.commands.approval import join_by_approval
from tui.commands.changes import check_may_change
from tui.commands.console import Console, Listing
from tui.commands.figures import figures, node_word
from tui.commands.jsonable import fields_of, jsonable
from tui.commands.naming import node_name
from tui.commands.plain import Column, Table
from tui.commands.units import NOTHING, parse_duration, rfc3339
from tui.viewmodel.text import clean

JOIN_SECONDS = 60.0
_COLUMNS = (
    Column("NAME", shrinks=True),
    Column("ID", wide=True),
    Column("STATE", toned=True),
    Column("ROLE", toned=True),
    Column("IN SYNC"),
    Column("APPLIED", right=True),
    Column("LAG", right=True),
    Column("WAITING", right=True),
    Column("ELECTIONS", right=True, extra=True),
    Column("LOG", right=True, wide=True),
)


def cluster_status(console: Console) -> None:
    """Show the members: who leads, whose disks are in sync, who lags behind."""

    async def work(handle: NodeHandle) -> None:
        state = handle.state
        if not console.settings.is_plain_data:
            master = node_name(state, state.master) if state.master else "nobody"
            name = f"{state.cluster_name or 'unnamed'} ({state.cluster[:12]})"
            console.write(
                clean(f"{name}: {master} leads term {state.session.term}, index {state.index}")
            )
        records = sorted(state.nodes.values(), key=lambda record: record.admitted_index)
        members = [_member(handle, record) for record in records]
        console.emit(
            Listing(
                kind="Member",
                index=state.index,
                items=[item for item, _ in members],
                table=Table(_COLUMNS, tuple(row for _, row in members)),
                names=tuple(record.name for record in records),
                extra={
                    "cluster": state.cluster,
                    "cluster_name": state.cluster_name,
                    "session": state.session,
                    "rejections": list(state.rejections),
                },
            )
        )

    console.connected(work)


def _member(handle: NodeHandle, record: NodeRecord) -> tuple[dict[str, object], tuple[str, ...]]:
    """A member as JSON and as a row."""
    state = handle.state
    router = figures(handle, record.node, RouterFigures)
    in_sync = record.node in state.in_sync
    role = "master" if record.node == state.master and not record.lost else "member"
    lag = max(state.index - router.index_applied, 0) if router else None
    item: dict[str, object] = {
        "node": record.node,
        "name": record.name,
        "state": node_word(record),
        "role": role,
        "in_sync": in_sync,
        "lag": lag,
        "router": jsonable(router),
    }
    row = (
        record.name,
        short(record.node),
        node_word(record),
        role,
        "yes" if in_sync else "-",
        str(router.index_applied) if router else NOTHING,
        NOTHING if lag is None else str(lag),
        str(router.unacknowledged) if router else NOTHING,
        str(router.elections) if router else NOTHING,
        f"{router.log_bytes}" if router else NOTHING,
    )
    return item, row


def cluster_invite(
    console: Console,
    ttl: Annotated[
        str, typer.Option("--ttl", metavar="10m", help="How long the code may be used.")
    ] = "10m",
) -> None:
    """Make a one-time code that lets another machine join."""
    lifetime_seconds = parse_duration(ttl)
    if not 1 <= lifetime_seconds <= 7 * 86_400:
        raise UsageError.because("bad_ttl", f"--ttl {ttl} is out of range", "use 1s to 7d")

    async def work(handle: NodeHandle) -> None:
        check_may_change(console)
        invite = await handle.invite(lifetime_seconds)
        if console.settings.is_plain_data:
            listing = Listing(
                kind="Invite",
                index=handle.state.index,
                items=[fields_of(invite)],
                names=(invite.code,),
            )
            console.emit(listing)
            return
        console.write(clean(invite.code))
        console.say(f"on the other machine, until {rfc3339(invite.expires_at)}:")
        console.say(f"  exoctl cluster join {invite.code}")
        for address in invite.addresses:
            console.say(f"  exoctl cluster join {invite.code} --peer {address}")

    console.connected(work)


def cluster_join(
    console: Console,
    code: Annotated[
        str,
        typer.Argument(
            metavar="[CODE]", help="What `cluster invite` printed; without, a person there decides."
        ),
    ] = "",
    *,
    peer: Annotated[
        str,
        typer.Option("--peer", metavar="HOST:PORT", help="Where a node of the cluster listens."),
    ] = "",
) -> None:
    """Join this node to another cluster: by the code of an invite, or by approval on screen."""
    address = parse_address(peer) if peer else None

    async def work(handle: NodeHandle) -> None:
        check_may_change(console)
        if not code.strip():
            await join_by_approval(console, handle, address)
        else:
            with anyio.fail_after(console.settings.timeout_seconds(JOIN_SECONDS)):
                await handle.join(code.strip(), address)
        await _say_membership(console, handle, "joined")

    console.connected(work, follow=True)


def cluster_leave(console: Console) -> None:
    """Leave the cluster: this node becomes a cluster of one again."""

    async def work(handle: NodeHandle) -> None:
        check_may_change(console)
        local = await handle.local()
        others = len(handle.state.nodes) - 1
        console.confirm(f"Take {local.name} out of a cluster with {others} other node(s)?")
        await handle.leave()
        await _say_membership(console, handle, "left")

    console.connected(work)


async def _say_membership(console: Console, handle: NodeHandle, change: str) -> None:
    local = await handle.local()
    item: dict[str, object] = {"node": local.node, "name": local.name, "change": change}
    if console.settings.is_plain_data:
        console.emit(
            Listing(kind="Change", index=handle.state.index, items=[item], names=(local.name,))
        )
    else:
        console.write(clean(f"{local.name} {change} the cluster"))
