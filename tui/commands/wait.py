"""`exoctl wait`: return once something holds, for scripts."""

from collections.abc import Callable
from typing import Annotated

import typer

from node.core.pull_status import raise_failure
from node.handle import NodeHandle
from node.model.errors import ExoctlError, UsageError
from node.model.register import DownloadFigures
from tui.commands.changes import until
from tui.commands.console import Console
from tui.commands.figures import condition, figures
from tui.commands.instances import ready_instances
from tui.commands.naming import find_instance, find_model, find_node

WAIT_SECONDS = 60.0
CONDITIONS = (
    "instance=ID, instance=ID:gone, model=NAME, node=NAME, node=NAME:lost, download=MODEL, master"
)


def wait(
    console: Console,
    what: Annotated[str, typer.Option("--for", metavar="WHAT", help=f"One of {CONDITIONS}.")],
) -> None:
    """Return once something holds: exit 0, or 124 where it did not in time."""

    async def work(handle: NodeHandle) -> None:
        await until(
            handle,
            _condition(handle, what),
            timeout_seconds=console.settings.timeout_seconds(WAIT_SECONDS),
            what=what,
        )

    console.connected(work, follow=True)


def _condition(handle: NodeHandle, text: str) -> Callable[[], bool]:
    kind, _, rest = text.partition("=")
    name, _, ending = rest.partition(":")
    match kind, bool(name), ending:
        case "master", False, "":
            return lambda: bool(handle.state.master)
        case "instance", True, "" | "ready":
            return _instance_ready(handle, name)
        case "instance", True, "gone":
            return lambda: not any(key.startswith(name) for key in handle.state.instances)
        case "model", True, "" | "ready":
            model = find_model(handle, name)
            return lambda: bool(ready_instances(handle, model))
        case "node", True, "" | "up" | "lost":
            return _node_is(handle, name, ending or "up")
        case "download", True, "" | "done":
            return _download_done(handle, name)
        case _:
            raise UsageError.because(
                "bad_condition", f"--for {text!r} can't be waited for", f"use {CONDITIONS}"
            )


def _node_is(handle: NodeHandle, name: str, word: str) -> Callable[[], bool]:
    if word == "up":
        return lambda: _has_node(handle, name, lost=False)
    node = find_node(handle.state, name)
    return lambda: node not in handle.state.nodes or handle.state.nodes[node].lost


def _has_node(handle: NodeHandle, name: str, *, lost: bool) -> bool:
    return any(
        record.lost is lost
        for record in handle.state.nodes.values()
        if name == record.name or record.node.startswith(name)
    )


def _download_done(handle: NodeHandle, name: str) -> Callable[[], bool]:
    """Every node that was told to fetch the model has it whole."""

    def holds() -> bool:
        found = [
            record
            for node in handle.state.nodes
            if (held := figures(handle, node, DownloadFigures)) is not None
            for record in held.downloads
            if name in (record.model, record.model.rpartition("/")[2])
        ]
        for record in found:
            raise_failure(record, 0.0)
        return bool(found) and all(record.phase == "complete" for record in found)

    return holds


def _instance_ready(handle: NodeHandle, name: str) -> Callable[[], bool]:
    wanted = find_instance(handle.state, name).instance

    def holds() -> bool:
        instance = handle.state.instances.get(wanted)
        if instance is None:
            find_instance(handle.state, wanted)
            return False
        found = condition(handle, instance)
        if found.word == "FAILED" and found.failure is not None:
            raise ExoctlError(found.failure)
        return found.ready

    return holds
