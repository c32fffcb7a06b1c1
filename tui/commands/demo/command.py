"""The command `exoctl demo`."""

import signal
import sys
from typing import TYPE_CHECKING, Annotated

import anyio
import typer
from anyio.abc import TaskStatus

from node.model.errors import ExoctlError
from node.model.ids import ModelId
from tui.commands.console import Console
from tui.commands.failures import leaves
from tui.commands.jsonable import encode, error_object
from tui.commands.units import nodes_text
from tui.viewmodel.text import clean

if TYPE_CHECKING:
    from tui.commands.demo.children import DemoNodes
    from tui.commands.demo.story import Story

NODES_MAX = 5
FAILED = 1
_SIGNAL_BASE = 128
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def demo(
    console: Console,
    *,
    nodes: Annotated[
        int, typer.Option("--nodes", metavar="N", min=1, max=NODES_MAX, help="How many nodes.")
    ] = 2,
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="Else the one that exoctl brings along.")
    ] = "",
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster running, and say how to end it.")
    ] = False,
) -> None:
    """Show a cluster at work: nodes on this machine alone, one model over all, a dead master.

    Everything lies under one temporary directory and is gone afterwards. Exit 0 if all held.
    """
    console.exit(anyio.run(_play, console, nodes, model, keep))


class _Interruption:
    """A signal ends the acts; the nodes are ended all the same, however many more come."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.signal: signal.Signals | None = None

    async def watch(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(*_ENDING) as signals:
            task_status.started()
            async for number in signals:
                self.signal = self.signal or number
                sys.stderr.write("\nending the demo's nodes first\n")
                self.scope.cancel()


async def _play(console: Console, count: int, model: str, keep: bool) -> int:
    from tui.commands.demo.children import DemoNodes
    from tui.commands.demo.story import Story

    story, nodes = Story(console), DemoNodes(console.settings.config(), keep=keep)
    interruption, held = _Interruption(), False
    async with anyio.create_task_group() as tasks:
        await tasks.start(interruption.watch)
        with interruption.scope:
            async with nodes:
                held = await _acts(console, story, nodes, (count, model))
        held = _end(story, nodes, keep=keep) and held
        tasks.cancel_scope.cancel()
    story.finish(held=held)
    if interruption.signal is not None:
        return _SIGNAL_BASE + interruption.signal
    return 0 if held else FAILED


async def _acts(
    console: Console, story: "Story", nodes: "DemoNodes", wanted: tuple[int, str]
) -> bool:
    """Play every act; a failing one is told with what the nodes logged."""
    from tui.commands.demo import acts
    from tui.commands.demo.children import trouble_tail
    from tui.commands.demo.moves import Cast
    from tui.commands.demo.takeover import survive

    cast = Cast(console=console, nodes=nodes, story=story)
    count, name = wanted
    model = ModelId(name) if name else acts.DEFAULT_MODEL
    try:
        await acts.start_nodes(cast, count)
        await acts.join_nodes(cast)
        model = await acts.ask_all(cast, model)
        await survive(cast, model)
    except (ExoctlError, BaseExceptionGroup) as raised:
        errors = [leaf for leaf in leaves(raised) if isinstance(leaf, ExoctlError)]
        if not errors:
            raise
        story.note(error=error_object(errors[0].failure, type(errors[0]).__name__)["error"])
        _say_failure(console, errors[0], trouble_tail(nodes))
        return False
    return True


def _say_failure(console: Console, error: ExoctlError, tail: list[str]) -> None:
    if console.is_json:
        sys.stderr.write(
            encode(error_object(error.failure, type(error).__name__), pretty=False) + "\n"
        )
        return
    sys.stderr.write(clean(f"\nerror: {error.failure.message}\n", keep="\n"))
    if error.failure.remedy:
        sys.stderr.write(clean(f"  try: {error.failure.remedy}\n", keep="\n"))
    for line in tail:
        sys.stderr.write(clean(line) + "\n")


def _end(story: "Story", nodes: "DemoNodes", *, keep: bool) -> bool:
    """Tell what was ended, or how to talk to what is kept; False where something is left over."""
    if keep:
        story.headline("the cluster runs on")
        for node in nodes.nodes:
            if node.is_running:
                story.say(f"exoctl --state-dir {node.directory} status")
                story.say(f"exoctl --state-dir {node.directory} down")
        story.say(f"then remove {nodes.root}")
        story.note(kept=str(nodes.root))
        return True
    count = len(nodes.nodes)
    story.headline("ending everything")
    story.note(left_over=nodes.left_over)
    if nodes.left_over:
        story.say(f"LEFT OVER: {', '.join(nodes.left_over)}")
        return False
    story.say(
        f"nothing is left: {nodes_text(count)} and {nodes.ended_runners} runners are gone, "
        f"{nodes.root} is removed"
    )
    return True
