"""`exoctl master`: who decides, since when, who did before, and handing the office over."""

from collections.abc import AsyncGenerator

import anyio

from node.core.apply import read_event
from node.core.naming import with_names
from node.handle import NodeHandle
from node.io import clock
from node.model.command import StepDown
from node.model.event import SessionOpened
from node.model.register import RouterFigures
from node.model.session import Entry
from node.model.state import Snapshot
from tui.commands.changes import say_done, submit, until
from tui.commands.console import Console, Listing
from tui.commands.events import first_kept
from tui.commands.figures import figures, node_word
from tui.commands.jsonable import fields_of
from tui.commands.naming import node_name
from tui.commands.plain import Column, Table
from tui.commands.units import NOTHING, rfc3339

HAND_OVER_SECONDS = 10.0
QUIET_SECONDS = 3.0
"""So long an entry that should be there is waited for."""


def master_show(console: Console) -> None:
    """Show who decides, and how far each node follows: exit 1 where nobody masters."""

    async def work(handle: NodeHandle) -> bool:
        state = handle.state
        rows: list[tuple[str, ...]] = []
        items: list[object] = []
        for record in sorted(state.nodes.values(), key=lambda each: each.admitted_index):
            router = figures(handle, record.node, RouterFigures)
            lag = None if router is None else max(0, state.index - router.index_applied)
            role = "master" if record.node == state.master else "follower"
            synced = record.node in state.in_sync
            items.append(
                {
                    "node": record.node,
                    "name": record.name,
                    "role": role,
                    "state": node_word(record),
                    "in_sync": synced,
                    "lag": lag,
                    "router": fields_of(router) if router else None,
                }
            )
            rows.append(
                (
                    record.name,
                    role,
                    node_word(record),
                    "yes" if synced else "no",
                    NOTHING if router is None else str(router.index_applied),
                    NOTHING if lag is None else str(lag),
                    NOTHING if router is None else str(router.unacknowledged),
                )
            )
        columns = (
            Column("NODE", shrinks=True),
            Column("ROLE", toned=True),
            Column("STATE", toned=True),
            Column("IN SYNC"),
            Column("APPLIED", right=True),
            Column("LAG", right=True),
            Column("UNACKNOWLEDGED", right=True),
        )
        if not console.settings.is_plain_data:
            who = node_name(state, state.master) if state.master else "nobody"
            console.say(f"term {state.session.term}: {who} masters, index {state.index}")
        console.emit(
            Listing(
                kind="Master",
                index=state.index,
                items=items,
                table=Table(columns, tuple(rows)),
                names=(node_name(state, state.master),) if state.master else (),
                extra={"term": state.session.term, "master": state.master},
            )
        )
        return bool(state.master)

    if not console.connected(work):
        console.exit(1)


def master_history(console: Console) -> None:
    """List the sessions that the log still tells of: who mastered from which index on."""

    async def work(handle: NodeHandle) -> None:
        rows: list[tuple[str, ...]] = []
        items: list[object] = []
        async for entry in _entries(handle):
            event = read_event(entry.payload)
            if not isinstance(event, SessionOpened):
                continue
            session = event.session
            name = node_name(handle.state, session.master)
            rows.append(
                (
                    str(session.term),
                    name,
                    str(entry.index),
                    rfc3339(entry.written_at) or NOTHING,
                    with_names(handle.state, event.reason),
                )
            )
            items.append(
                {
                    **fields_of(event),
                    "name": name,
                    "index": entry.index,
                    "at": rfc3339(entry.written_at),
                }
            )
        columns = (
            Column("TERM", right=True),
            Column("MASTER", shrinks=True),
            Column("FROM INDEX", right=True),
            Column("AT"),
            Column("WHY", shrinks=True),
        )
        console.emit(
            Listing(
                kind="Session",
                index=handle.state.index,
                items=items,
                table=Table(
                    columns, tuple(rows), empty="the log here tells of no election any more"
                ),
                names=tuple(row[1] for row in rows),
            )
        )

    console.connected(work, follow=True)


async def _entries(handle: NodeHandle) -> AsyncGenerator[Entry]:
    """Every committed entry that the node still has."""
    last, index = handle.state.index, -1
    async with handle.subscribe(await first_kept(handle, 0)) as stream:
        while index < last:
            item = None
            with anyio.move_on_after(QUIET_SECONDS):
                item = await stream.receive()
            if item is None:
                return
            if isinstance(item, Snapshot):
                index = item.state.index
            elif isinstance(item, Entry):
                index = item.index
                yield item


def master_step_down(console: Console) -> None:
    """Have the master hand over to another node, as before a planned stop of it."""

    async def work(handle: NodeHandle) -> None:
        before = handle.state.session
        accepted = await submit(console, handle, StepDown())
        decided_at = clock.monotonic()
        await until(
            handle,
            lambda: handle.state.session != before,
            timeout_seconds=console.settings.timeout_seconds(HAND_OVER_SECONDS),
            what="another node to master",
        )
        state = handle.state
        old, new = node_name(state, before.master), node_name(state, state.master)
        took = clock.monotonic() - decided_at
        change = f"masters term {state.session.term}, after {old} ({took:.2f} s)"
        say_done(console, subject=state.master, name=new, change=change, index=accepted.index)

    console.connected(work, follow=True)
