"""Actions on downloads, and on the models that lie on nodes."""

from node.model.download import (
    ModelOrder,
    OrderDone,
    PrioritiseDownload,
    PullModel,
    RemoveModel,
    SteerDownload,
    VerifyModel,
)
from node.model.errors import ExoctlError
from node.model.ids import ModelId, NodeId
from tui.shell import Handler, Question, Shell
from tui.viewmodel import text
from tui.viewmodel.rows import DownloadRow, ModelRow
from tui.widgets.downloads import DownloadsPane
from tui.widgets.model_table import ModelTable

STEP = 1


def handlers(shell: Shell) -> dict[str, Handler]:
    """The queue, and whole models."""
    return {
        "downloads.add": lambda argument: _add(shell, argument),
        "downloads.pause": lambda argument: _pause(shell, argument),
        "downloads.retry": lambda argument: _steer(shell, argument, "retry"),
        "downloads.cancel": lambda argument: _cancel(shell, argument),
        "downloads.sooner": lambda argument: _move(shell, argument, STEP),
        "downloads.later": lambda argument: _move(shell, argument, -STEP),
        "models.pull": lambda argument: _pull_chosen(shell, argument),
        "models.delete": lambda argument: _delete(shell, argument),
        "models.verify": lambda argument: _verify(shell, argument),
    }


def order(shell: Shell, node: NodeId, wanted: ModelOrder) -> None:
    """Have a node carry out an order; say what comes of it, or why not."""

    def answered(result: object) -> None:
        if isinstance(result, OrderDone):
            freed = f", {text.size(result.bytes_freed)} freed" if result.bytes_freed else ""
            shell.say(f"{shell.context.view.names.name(node)}: {result.words}{freed}")
        elif isinstance(result, ExoctlError):
            shell.report(result)

    shell.context.node.call(lambda handle: handle.order(node, wanted), answered)


def _add(shell: Shell, argument: str) -> None:
    """`OWNER/NAME`, and after `@` the nodes that are to fetch it: all of them for `*`."""
    name, _, where = argument.partition("@")
    name = name.strip()
    if not name:
        shell.prompt("pull ", "OWNER/NAME, and @node, or @* for every node")
        return
    rows = shell.context.view.nodes
    wanted = [part.strip() for part in where.split(",") if part.strip()]
    if wanted == ["*"]:
        nodes = [row.node for row in rows]
    elif wanted:
        nodes = [row.node for row in rows if row.name in wanted]
        if len(nodes) != len(wanted):
            shell.say(f"no node is called {where.strip()!r}", "warn")
            return
    else:
        nodes = [row.node for row in rows if row.is_here] or [row.node for row in rows[:1]]
    together = tuple(NodeId(node) for node in nodes)
    for node in together:
        order(shell, node, PullModel(model=ModelId(name), companions=together))


def _chosen(shell: Shell, argument: str) -> DownloadRow | None:
    pane = shell.pane_for("downloads")
    rows = pane.rows if isinstance(pane, DownloadsPane) else []
    if argument:
        found = [row for row in rows if argument in (row.model, row.model.rpartition("/")[2])]
        if len(found) == 1:
            return found[0]
        shell.say(f"{argument!r} names {text.plural(len(found), 'download')}", "warn")
        return None
    if isinstance(pane, DownloadsPane) and pane.cursor < len(rows):
        return rows[pane.cursor]
    shell.say("no download is chosen: 5 downloads, a adds one", "warn")
    return None


def _steer(shell: Shell, argument: str, action: str) -> None:
    row = _chosen(shell, argument)
    if row is not None:
        order(shell, row.node, SteerDownload(model=row.model, action=action))


def _pause(shell: Shell, argument: str) -> None:
    row = _chosen(shell, argument)
    if row is not None:
        action = "resume" if row.phase in ("paused", "failed") else "pause"
        order(shell, row.node, SteerDownload(model=row.model, action=action))


def _cancel(shell: Shell, argument: str) -> None:
    row = _chosen(shell, argument)
    if row is None:
        return
    wanted = SteerDownload(model=row.model, action="cancel")
    if not row.bytes_done:
        order(shell, row.node, wanted)
        return
    lines = (f"{text.size(row.bytes_done)} that came to {row.name} in part are deleted.",)
    question = Question(title=f"Give {row.model} up?", lines=lines, verb="Give up")
    shell.ask(question, lambda: order(shell, row.node, wanted))


def _move(shell: Shell, argument: str, step: int) -> None:
    row = _chosen(shell, argument)
    if row is not None:
        wanted = PrioritiseDownload(model=row.model, priority=row.priority + step)
        order(shell, row.node, wanted)


def _model(shell: Shell, argument: str) -> ModelRow | None:
    rows = shell.context.view.models
    pane = shell.pane_for("models")
    if argument:
        found = [row for row in rows if row.model == argument]
        if found:
            return found[0]
        shell.say(f"no node holds {argument!r}", "warn")
        return None
    if isinstance(pane, ModelTable) and pane.cursor < len(pane.rows):
        return pane.rows[pane.cursor]
    shell.say("choose a model first: 4 models", "warn")
    return None


def _node_with(shell: Shell, row: ModelRow) -> NodeId | None:
    """Which copy is meant: the one on the chosen node, the one here, or the only one."""
    chosen = shell.context.chosen_node
    here = next((node.node for node in shell.context.view.nodes if node.is_here), None)
    for node in (chosen, here):
        if node is not None and node in row.places:
            return NodeId(node)
    if len(row.places) == 1:
        return next(iter(row.places))
    shell.say("it lies on several nodes: choose one in 2 nodes", "warn")
    return None


def _pull_chosen(shell: Shell, argument: str) -> None:
    if argument:
        _add(shell, argument)
        return
    pane = shell.pane_for("models")
    chosen = pane.chosen_text() if pane is not None else ""
    shell.prompt(f"pull {chosen}@" if "/" in chosen else "pull ", "OWNER/NAME, @node or @*")


def _delete(shell: Shell, argument: str) -> None:
    row = _model(shell, argument)
    node = _node_with(shell, row) if row is not None else None
    if row is None or node is None:
        return
    name = shell.context.view.names.name(node)
    lines = [f"{text.size(row.bytes_on_disk)} come free on {name}."]
    if row.whole > 1:
        lines.append(f"{text.plural(row.whole - 1, 'other node')} still has it.")
    question = Question(title=f"Delete {row.model}?", lines=tuple(lines), verb="Delete")
    shell.ask(question, lambda: order(shell, node, RemoveModel(model=row.model)))


def _verify(shell: Shell, argument: str) -> None:
    row = _model(shell, argument)
    node = _node_with(shell, row) if row is not None else None
    if row is not None and node is not None:
        order(shell, node, VerifyModel(model=row.model))
