"""`exoctl node ping`: how far the other nodes are, and what the links carry."""

from typing import Annotated

import typer

from node.handle import NodeHandle
from node.model.errors import ConflictError, ExoctlError
from node.model.ids import NodeId
from node.model.register import LinkRecord
from tui.commands.console import Console, Listing
from tui.commands.jsonable import fields_of
from tui.commands.naming import find_node, node_name
from tui.commands.plain import Column, Table
from tui.commands.units import NOTHING

_COLUMNS = (
    Column("NODE", shrinks=True),
    Column("STATE", toned=True),
    Column("ROUND TRIP", right=True),
    Column("BANDWIDTH", right=True),
    Column("MEDIUM"),
    Column("ADDRESS"),
    Column("WHY", shrinks=True),
)
UNREACHED = 1


def node_ping(
    console: Console,
    node: Annotated[
        str, typer.Argument(metavar="[NODE]", help="Name or id; every other node without.")
    ] = "",
    *,
    bandwidth: Annotated[
        bool,
        typer.Option("--bw", help="Fill each link for a second too, to know what it carries."),
    ] = False,
) -> None:
    """Measure the links of this node: exit 1 where one is not there."""

    async def work(handle: NodeHandle) -> bool:
        local = await handle.local()
        others = [one for one in handle.state.nodes if one != local.node]
        wanted = [find_node(handle.state, node)] if node else others
        if wanted in ([], [local.node]):
            raise ConflictError.because(
                "alone", "there is no other node to ping", "exoctl cluster invite"
            )
        rows: list[tuple[str, ...]] = []
        items: list[object] = []
        for peer in wanted:
            record, why = await _measured(handle, peer, bandwidth=bandwidth)
            name = node_name(handle.state, peer)
            facts = fields_of(record) if record is not None else {"peer": peer, "up": False}
            items.append({**facts, "name": name, "error": why})
            rows.append(_row(handle, name, record, why))
        console.emit(
            Listing(
                kind="Link",
                index=handle.state.index,
                items=items,
                table=Table(_COLUMNS, tuple(rows)),
                names=tuple(row[0] for row in rows),
            )
        )
        return all(row[1] == "ok" for row in rows)

    if not console.connected(work):
        console.exit(UNREACHED)


async def _measured(
    handle: NodeHandle, peer: NodeId, *, bandwidth: bool
) -> tuple[LinkRecord | None, str]:
    try:
        return await handle.ping(peer, bandwidth=bandwidth), ""
    except ExoctlError as error:
        return None, error.failure.message


def _row(handle: NodeHandle, name: str, record: LinkRecord | None, why: str) -> tuple[str, ...]:
    if record is None:
        return (name, "failed", NOTHING, NOTHING, NOTHING, NOTHING, why)
    rtt, bits = record.rtt_seconds, record.bits_per_second
    return (
        name,
        "ok",
        NOTHING if rtt is None else f"{1000 * rtt:.2f} ms",
        NOTHING if bits is None else f"{bits / 1e6:,.0f} Mb/s",
        record.medium or NOTHING,
        f"by way of {node_name(handle.state, record.via)}" if record.via else str(record.address),
        "",
    )
