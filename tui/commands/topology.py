"""`exoctl topology`: which nodes reach each other, over what, and how fast; or as a drawing."""

from typing import Annotated

import typer

from node.handle import NodeHandle
from node.model.ids import NodeId
from node.model.register import LinkFigures, LinkRecord
from tui.commands.console import Console, Listing
from tui.commands.figures import figures, node_word
from tui.commands.jsonable import fields_of
from tui.commands.naming import node_name
from tui.commands.plain import Column, Table
from tui.commands.units import NOTHING
from tui.viewmodel import text

Pair = frozenset[NodeId]
_COLUMNS = (
    Column("NODE", shrinks=True),
    Column("NODE", shrinks=True),
    Column("STATE", toned=True),
    Column("MEDIUM"),
    Column("ROUND TRIP", right=True),
    Column("BANDWIDTH", right=True),
    Column("WHY", shrinks=True),
)


def topology(
    console: Console,
    *,
    dot: Annotated[bool, typer.Option("--dot", help="For Graphviz: `... | dot -Tsvg`.")] = False,
) -> None:
    """Show every link between two nodes, from both ends."""

    async def work(handle: NodeHandle) -> None:
        links = links_of(handle)
        if dot:
            for line in dot_lines(handle, links):
                console.write(line)
            return
        rows = tuple(_row(handle, pair, ends) for pair, ends in links.items())
        items: list[object] = [
            {
                "nodes": list(_ordered(handle, pair)),
                "names": [node_name(handle.state, node) for node in _ordered(handle, pair)],
                "up": any(record.up for record in ends.values()),
                "ends": {node: fields_of(record) for node, record in ends.items()},
            }
            for pair, ends in links.items()
        ]
        console.emit(
            Listing(
                kind="Link",
                index=handle.state.index,
                items=items,
                table=Table(_COLUMNS, rows, empty="this node is alone: `exoctl cluster invite`"),
                names=tuple(f"{row[0]} {row[1]}" for row in rows),
            )
        )

    console.connected(work)


def links_of(handle: NodeHandle) -> dict[Pair, dict[NodeId, LinkRecord]]:
    """By pair of members: what each end says of the link."""
    members = _members(handle)
    found: dict[Pair, dict[NodeId, LinkRecord]] = {
        frozenset((one, other)): {}
        for place, one in enumerate(members)
        for other in members[place + 1 :]
    }
    for node in members:
        said = figures(handle, node, LinkFigures)
        for record in said.links if said else ():
            ends = found.get(frozenset((node, record.peer)))
            if ends is not None:
                ends[node] = record
    return found


def dot_lines(handle: NodeHandle, links: dict[Pair, dict[NodeId, LinkRecord]]) -> list[str]:
    """The same for Graphviz."""
    lines = ["graph exoctl {", "  node [shape=box style=rounded]"]
    for node in _members(handle):
        record = handle.state.nodes[node]
        master = ", master" if handle.state.master == node else ""
        label = f"{record.name}\n{node_word(record)}{master}"
        lines.append(f"  {_quoted(node)} [label={_quoted(label)}]")
    for pair, ends in links.items():
        one, other = _ordered(handle, pair)
        record = _best(ends)
        up = record is not None and record.up
        facts = [*_facts(record)] if record is not None and up else ["down"]
        label = r"\n".join(fact for fact in facts if fact not in (NOTHING, "?"))
        style = "solid" if up else "dotted"
        lines.append(f"  {_quoted(one)} -- {_quoted(other)} [label={_quoted(label)} style={style}]")
    return [*lines, "}"]


def _quoted(words: str) -> str:
    safe = text.clean(words, keep="\n").replace('"', "'").replace("\n", r"\n")
    return f'"{safe}"'


def _members(handle: NodeHandle) -> list[NodeId]:
    records = handle.state.nodes.values()
    return [each.node for each in sorted(records, key=lambda record: record.admitted_index)]


def _ordered(handle: NodeHandle, pair: Pair) -> tuple[NodeId, NodeId]:
    one, other = (node for node in _members(handle) if node in pair)
    return one, other


def _best(ends: dict[NodeId, LinkRecord]) -> LinkRecord | None:
    """The end that sees the link up, else either."""
    known = sorted(ends.values(), key=lambda record: not record.up)
    return known[0] if known else None


def _facts(record: LinkRecord) -> tuple[str, str, str]:
    return (
        record.medium or NOTHING,
        text.round_trip(record.rtt_seconds),
        text.bandwidth(record.bits_per_second),
    )


def _row(handle: NodeHandle, pair: Pair, ends: dict[NodeId, LinkRecord]) -> tuple[str, ...]:
    one, other = _ordered(handle, pair)
    names = (node_name(handle.state, one), node_name(handle.state, other))
    record = _best(ends)
    if record is None:
        return (*names, "down", NOTHING, NOTHING, NOTHING, "no end knows of it")
    sides = [node_name(handle.state, node) for node, end in ends.items() if end.up]
    if not record.up:
        why = record.failure.message if record.failure else ""
        return (*names, "down", NOTHING, NOTHING, NOTHING, why)
    blind = [node for node in pair if node in ends and not ends[node].up]
    why = f"only {sides[0]} reaches the other" if blind else ""
    if record.via:
        why = f"by way of {node_name(handle.state, record.via)}"
    return (*names, "up", *_facts(record), why)
