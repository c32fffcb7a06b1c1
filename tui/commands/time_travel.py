"""The state at an index: the cluster as it was, folded out of the log that a node still has."""

import anyio

from node.core.apply import apply
from node.handle import NodeHandle
from node.model.errors import NotFoundError
from node.model.session import Entry, Rewind
from node.model.state import Snapshot, State
from tui.commands.console import Console, Listing
from tui.commands.figures import layers_text
from tui.commands.jsonable import fields_of
from tui.commands.naming import node_name
from tui.commands.plain import Column, Table

QUIET_SECONDS = 5.0
"""So long an entry that should be there is waited for."""


async def state_at(handle: NodeHandle, index: int) -> State:
    """The state after the entry of that index.

    Raises:
        NotFoundError: the log does not reach there, or no longer does.
    """
    if index > handle.state.index:
        raise NotFoundError.because(
            "index_ahead", f"index {index} is not written yet: the last is {handle.state.index}"
        )
    state = State()
    async with handle.subscribe(0) as stream:
        while state.index < index:
            item = None
            with anyio.move_on_after(QUIET_SECONDS):
                item = await stream.receive()
            match item:
                case None:
                    break
                case Snapshot(state=whole) if whole.index > index:
                    raise NotFoundError.because(
                        "index_gone",
                        f"this node keeps no entries before {whole.index}: index {index} is gone",
                        "ask the node that is longest in the cluster (--host)",
                    )
                case Snapshot(state=whole):
                    state = whole
                case Entry():
                    state = apply(state, item)
                case Rewind(index=first):
                    raise NotFoundError.because(
                        "rewound", f"entries from {first} on were withdrawn meanwhile", "ask again"
                    )
                case _:
                    pass
    if state.index != index:
        raise NotFoundError.because("index_absent", f"the log ends at {state.index} here")
    return state


async def show_state(console: Console, handle: NodeHandle, index: int) -> None:
    """Write the cluster as it was."""
    state = await state_at(handle, index)
    rows: list[tuple[str, ...]] = [
        ("session", f"term {state.session.term}", f"master {node_name(state, state.master)}")
    ]
    for record in sorted(state.nodes.values(), key=lambda item: item.admitted_index):
        word = "lost" if record.lost else "cordoned" if record.cordoned else "up"
        rows.append(("node", record.name, word))
    for instance in state.instances.values():
        held = ", ".join(
            f"{node_name(state, shard.node)} {layers_text(shard.first_layer, shard.end_layer)}"
            for shard in instance.shards
        )
        rows.append(("instance", instance.instance, f"{instance.model} on {held}"))
    rows += [("runner", each.runner, each.phase.value) for each in state.runners.values()]
    console.emit(
        Listing(
            kind="State",
            index=index,
            items=[fields_of(state)],
            table=Table(
                (Column(f"AT {index}"), Column("WHAT"), Column("HOW", shrinks=True)), tuple(rows)
            ),
            names=tuple(state.instances),
        )
    )
