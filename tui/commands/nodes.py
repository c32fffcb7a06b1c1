"""`exoctl node`: the nodes of the cluster, and what an owner does with one."""

from typing import Annotated

import typer

from node.handle import NodeHandle
from node.model.command import CordonNode, LabelNode, NameNode, RemoveNode
from node.model.errors import UsageError
from node.model.ids import NodeId, short
from node.model.machine import NodeRecord
from node.model.register import (
    LinkFigures,
    LinkRecord,
    MachineFigures,
    ModelFigures,
    RouterFigures,
)
from tui.commands.changes import check_may_change, say_done, submit
from tui.commands.console import Console, Listing
from tui.commands.figures import condition, figures, node_word
from tui.commands.jsonable import fields_of, jsonable
from tui.commands.naming import find_node, has_labels, node_name
from tui.commands.plain import Column, Table
from tui.commands.units import NOTHING, bytes_text, rfc3339
from tui.viewmodel import text

NodeArgument = Annotated[
    str, typer.Argument(metavar="NODE", help="Name or id, or the start of one.")
]
_COLUMNS = (
    Column("NAME", shrinks=True),
    Column("ID", wide=True),
    Column("STATE", toned=True),
    Column("ROLE", toned=True),
    Column("CHIP", shrinks=True, extra=True),
    Column("MEMORY", right=True),
    Column("CPU", right=True),
    Column("INSTANCES", right=True, extra=True),
    Column("LAG", right=True, wide=True),
    Column("SYSTEM", wide=True),
    Column("ADDRESS", wide=True),
    Column("VERSION", extra=True),
    Column("LABELS", wide=True),
)


def node_ls(
    console: Console,
    *,
    label: Annotated[
        str, typer.Option("-l", "--label", metavar="K=V,K", help="Only those with these labels.")
    ] = "",
) -> None:
    """List the nodes of the cluster."""

    async def work(handle: NodeHandle) -> None:
        found = [each for each in handle.state.nodes.values() if has_labels(each, label)]
        console.emit(nodes_listing(handle, found))

    console.connected(work)


def node_show(console: Console, node: NodeArgument) -> None:
    """Show everything known of one node."""

    async def work(handle: NodeHandle) -> None:
        record = handle.state.nodes[find_node(handle.state, node)]
        listing = nodes_listing(handle, [record])
        if console.is_json:
            console.emit(listing)
        else:
            console.table(_facts_table(handle, record))

    console.connected(work)


def node_cordon(console: Console, node: NodeArgument) -> None:
    """Keep new shards off a node."""
    _cordon(console, node, cordoned=True)


def node_uncordon(console: Console, node: NodeArgument) -> None:
    """Let new shards onto a node again."""
    _cordon(console, node, cordoned=False)


def node_rename(
    console: Console,
    node: NodeArgument,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="How to call it; empty: as it calls itself.")
    ],
) -> None:
    """Call a node otherwise, in every list of the cluster."""

    async def work(handle: NodeHandle) -> None:
        found = find_node(handle.state, node)
        before = node_name(handle.state, found)
        accepted = await submit(console, handle, NameNode(node=found, name=name.strip()))
        change = f"is called {name.strip()} now" if name.strip() else "has its own name again"
        say_done(console, subject=found, name=before, change=change, index=accepted.index)

    console.connected(work)


def node_label(
    console: Console,
    node: NodeArgument,
    labels: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE|KEY-", help="Sets one, or takes one off.")
    ],
) -> None:
    """Tell nodes apart by labels, such as room=cellar; `load` and `node ls` choose by them."""
    wanted = dict(_label(each) for each in labels)

    async def work(handle: NodeHandle) -> None:
        found = find_node(handle.state, node)
        accepted = await submit(console, handle, LabelNode(node=found, labels=wanted))
        after = {**handle.state.nodes[found].labels, **wanted}
        words = text.labels({key: value for key, value in after.items() if value})
        say_done(
            console,
            subject=found,
            name=node_name(handle.state, found),
            change=f"has {words}" if words else "has no labels",
            index=accepted.index,
        )

    console.connected(work)


def _label(words: str) -> tuple[str, str]:
    key, separator, value = words.partition("=")
    if separator and key and value:
        return key, value
    if not separator and words.endswith("-") and len(words) > 1:
        return words[:-1], ""
    raise UsageError.because(
        "bad_label", f"{words!r} is no label", "write KEY=VALUE to set one, KEY- to take it off"
    )


def node_rm(
    console: Console,
    node: NodeArgument,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why, for the others to read.")
    ] = "removed",
) -> None:
    """Take a node out of the cluster for good."""

    async def work(handle: NodeHandle) -> None:
        found = find_node(handle.state, node)
        name = node_name(handle.state, found)
        check_may_change(console)
        console.confirm(f"Remove {name} ({short(found)}) from the cluster for good?")
        accepted = await submit(console, handle, RemoveNode(node=found, reason=reason))
        say_done(console, subject=found, name=name, change="removed", index=accepted.index)

    console.connected(work)


def _cordon(console: Console, wanted: str, *, cordoned: bool) -> None:
    async def work(handle: NodeHandle) -> None:
        found = find_node(handle.state, wanted)
        accepted = await submit(console, handle, CordonNode(node=found, cordoned=cordoned))
        say_done(
            console,
            subject=found,
            name=node_name(handle.state, found),
            change="cordoned" if cordoned else "uncordoned",
            index=accepted.index,
        )

    console.connected(work)


def nodes_listing(handle: NodeHandle, records: list[NodeRecord]) -> Listing:
    """Nodes in the order of their admission."""
    ordered = sorted(records, key=lambda record: record.admitted_index)
    return Listing(
        kind="Node",
        index=handle.state.index,
        items=[_item(handle, record) for record in ordered],
        table=Table(
            _COLUMNS,
            tuple(_row(handle, record) for record in ordered),
            empty="no nodes yet: the node has no cluster state",
        ),
        names=tuple(record.name for record in ordered),
    )


def _role(handle: NodeHandle, record: NodeRecord) -> str:
    return "master" if handle.state.master == record.node and not record.lost else "member"


def _instance_count(handle: NodeHandle, node: NodeId) -> int:
    return sum(node in instance.nodes for instance in handle.state.instances.values())


def _lag(handle: NodeHandle, node: NodeId) -> int | None:
    router = figures(handle, node, RouterFigures)
    return None if router is None else max(handle.state.index - router.index_applied, 0)


def _row(handle: NodeHandle, record: NodeRecord) -> tuple[str, ...]:
    machine, now = record.machine, figures(handle, record.node, MachineFigures)
    memory, processor = NOTHING, NOTHING
    if now and not record.lost:
        used = now.memory_bytes_total - now.memory_bytes_available
        memory = f"{text.memory(used)} / {text.memory(now.memory_bytes_total)}"
        processor = f"{now.processor_fraction:.0%}"
    elif machine:
        memory = text.memory(machine.memory_bytes)
    lag = _lag(handle, record.node)
    return (
        record.name,
        short(record.node),
        node_word(record),
        _role(handle, record),
        machine.chip if machine else NOTHING,
        memory,
        processor,
        str(_instance_count(handle, record.node)),
        NOTHING if lag is None else str(lag),
        f"{machine.system} {machine.release} {machine.architecture}" if machine else NOTHING,
        ", ".join(str(address) for address in record.addresses) or NOTHING,
        record.version or NOTHING,
        text.labels(record.labels) or NOTHING,
    )


def _item(handle: NodeHandle, record: NodeRecord) -> dict[str, object]:
    return {
        **fields_of(record),
        "state": node_word(record),
        "role": _role(handle, record),
        "instances": [
            instance.instance
            for instance in handle.state.instances.values()
            if record.node in instance.nodes
        ],
        "lag": _lag(handle, record.node),
        "figures": jsonable(figures(handle, record.node, MachineFigures)),
        "router": jsonable(figures(handle, record.node, RouterFigures)),
        "links": jsonable(figures(handle, record.node, LinkFigures)),
    }


def _facts_table(handle: NodeHandle, record: NodeRecord) -> Table:
    row = dict(zip((column.title for column in _COLUMNS), _row(handle, record), strict=True))
    facts = [(title.lower(), value) for title, value in row.items()]
    facts[1] = ("id", record.node)
    if record.lost:
        facts.append(("lost", f"{rfc3339(record.lost_at) or ''} {record.lost_reason}".strip()))
    now = figures(handle, record.node, MachineFigures)
    if now:
        free, total = bytes_text(now.disk_bytes_free), bytes_text(now.disk_bytes_total)
        facts.append(("disk free", f"{free} of {total}"))
    models = figures(handle, record.node, ModelFigures)
    for held in models.held if models else ():
        size = bytes_text(held.bytes_on_disk)
        facts.append(("model", f"{held.card.model}  {size}  {held.fraction:.0%}"))
    for instance in handle.state.instances.values():
        if record.node in instance.nodes:
            word = condition(handle, instance).word
            facts.append(("instance", f"{instance.instance}  {instance.model}  {word}"))
    links = figures(handle, record.node, LinkFigures)
    facts += [("link", _link_text(handle, link)) for link in (links.links if links else ())]
    return Table((Column("FACT"), Column("VALUE", shrinks=True)), tuple(facts))


def _link_text(handle: NodeHandle, link: LinkRecord) -> str:
    peer = node_name(handle.state, link.peer)
    if not link.up:
        return f"{peer}  down  {link.failure.message if link.failure else ''}".rstrip()
    trip = text.round_trip(link.rtt_seconds)
    speed = text.bandwidth(link.bits_per_second)
    return f"{peer}  up  {link.medium or 'unknown medium'}  {trip}  {speed}"
