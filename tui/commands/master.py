"""`exoctl master`: who decides, and handing the office over."""

from node.handle import NodeHandle
from node.io import clock
from node.model.command import StepDown
from tui.commands.changes import say_done, submit, until
from tui.commands.console import Console
from tui.commands.naming import node_name

HAND_OVER_SECONDS = 10.0


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
