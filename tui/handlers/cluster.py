"""Actions that change the cluster."""

from node.model.command import (
    Command,
    CordonNode,
    RemoveNode,
    RestartInstance,
    StepDown,
    StopInstance,
)
from node.model.errors import ExoctlError
from node.model.ids import InstanceId, NodeId, RequestId
from tui.shell import Handler, Question, Shell, submit
from tui.viewmodel import text
from tui.viewmodel.rows import NodeRow, PlacementRow


def handlers(shell: Shell) -> dict[str, Handler]:
    """Instances and nodes."""
    return {
        "placements.chat": lambda argument: _chat(shell, argument),
        "placements.stop": lambda argument: _stop(shell, argument),
        "placements.restart": lambda argument: _restart(shell, argument),
        "placements.cancel": lambda argument: _cancel(shell, argument),
        "nodes.cordon": lambda argument: _cordon(shell, argument),
        "nodes.remove": lambda argument: _remove(shell, argument),
        "nodes.step_down": lambda _: _step_down(shell),
        "global.leave": lambda _: _leave(shell),
    }


def _step_down(shell: Shell) -> None:
    view = shell.context.view
    master = next((row.name for row in view.nodes if row.is_master), "the master")
    question = Question(
        title=f"Have {master} hand over?",
        lines=("Another node decides from then on; models and requests go on.",),
        verb="Hand over",
    )
    shell.ask(question, lambda: submit(shell, StepDown(), f"{master} hands over"))


def _instance(shell: Shell, argument: str) -> PlacementRow | None:
    rows = shell.context.view.placements
    if argument:
        found = [row for row in rows if argument in (row.instance, row.model)]
        found = found or [row for row in rows if row.instance.startswith(argument)]
        if len(found) != 1:
            count = text.plural(len(found), "instance")
            shell.say(f"{argument!r} names {count}; :placements shows their ids", "warn")
            return None
        return found[0]
    chosen = shell.context.instance
    row = next((row for row in rows if row.instance == chosen), None)
    row = row or (rows[0] if len(rows) == 1 else None)
    if row is None:
        words = "choose an instance first, in placements" if rows else "nothing is placed"
        shell.say(words, "warn")
    return row


def _chat(shell: Shell, argument: str) -> None:
    row = _instance(shell, argument)
    if row is not None:
        shell.context.conversation.model = row.model
        shell.show_view("chat")


def _stop(shell: Shell, argument: str) -> None:
    row = _instance(shell, argument)
    if row is None:
        return
    lines = [f"{row.instance} runs on {', '.join(run.name for run in row.runs)}."]
    if row.running or row.queued:
        lines.append(f"{row.running} running and {row.queued} queued requests end.")
    lines.append(f"{text.memory(row.memory_bytes)} come free. The model's files stay.")
    question = Question(title=f"Stop {row.model}?", lines=tuple(lines), verb="Stop")
    command = StopInstance(instance=InstanceId(row.instance))
    shell.ask(question, lambda: submit(shell, command, f"{row.model} is being stopped"))


def _restart(shell: Shell, argument: str) -> None:
    row = _instance(shell, argument)
    if row is None:
        return
    lines = [f"All {text.plural(len(row.runs), 'runner')} of {row.instance} start again together."]
    if row.running or row.queued:
        lines.append(f"{row.running} running and {row.queued} queued requests end.")
    question = Question(title=f"Restart {row.model}?", lines=tuple(lines), verb="Restart")
    command = RestartInstance(instance=InstanceId(row.instance))
    shell.ask(question, lambda: submit(shell, command, f"{row.model} starts again"))


def _cancel(shell: Shell, argument: str) -> None:
    running = [row for row in shell.context.view.requests if row.level in ("busy", "idle")]
    wanted = argument or (shell.context.chosen_request or "")
    found = [row for row in running if row.request == wanted or not wanted]
    if len(found) != 1:
        words = f"{text.plural(len(running), 'request')} running: name one by its id"
        shell.say(words, "warn")
        return
    request = RequestId(found[0].request)

    def answered(result: object) -> None:
        if isinstance(result, ExoctlError):
            shell.report(result)
        else:
            shell.say(f"{request} cancelled" if result else f"{request} is not running any more")

    shell.context.node.call(lambda node: node.cancel(request), answered)


def do_to(shell: Shell, action: str, key: str) -> None:
    """Do an action to one of several marked rows; what was asked before is not asked again."""
    node, instance = NodeId(key), InstanceId(key)
    commands: dict[str, tuple[Command, str]] = {
        "nodes.cordon": (CordonNode(node=node), "takes no new shards"),
        "nodes.remove": (RemoveNode(node=node), "is removed"),
        "placements.stop": (StopInstance(instance=instance), "is being stopped"),
        "placements.restart": (RestartInstance(instance=instance), "starts again"),
    }
    if action == "placements.cancel":
        _cancel(shell, key)
        return
    command, done = commands[action]
    record = shell.context.view.state.nodes.get(node)
    submit(shell, command, f"{record.name if record else key} {done}")


def _node(shell: Shell, argument: str) -> NodeRow | None:
    rows = shell.context.view.nodes
    if argument:
        found = [row for row in rows if argument in (row.name, row.node)]
        found = found or [row for row in rows if row.node.startswith(argument)]
        if len(found) == 1:
            return found[0]
        shell.say(f"{argument!r} names {text.plural(len(found), 'node')}", "warn")
        return None
    chosen = shell.context.chosen_node
    row = next((row for row in rows if row.node == chosen), None)
    if row is None:
        shell.say("choose a node first, among the nodes", "warn")
    return row


def _cordon(shell: Shell, argument: str) -> None:
    row = _node(shell, argument)
    if row is None:
        return
    record = shell.context.view.state.nodes[row.node]
    command = CordonNode(node=NodeId(row.node), cordoned=not record.cordoned)
    done = "takes shards again" if record.cordoned else "takes no new shards"
    submit(shell, command, f"{row.name} {done}")


def _remove(shell: Shell, argument: str) -> None:
    row = _node(shell, argument)
    if row is None:
        return
    lines = ["Its links are refused everywhere; it comes back only by a new invite."]
    if row.layer_count:
        held = text.plural(row.layer_count, "layer")
        lines.append(f"It holds {held}: instances over it stop serving.")
    question = Question(title=f"Remove {row.name}?", lines=tuple(lines), verb="Remove")
    command = RemoveNode(node=NodeId(row.node))
    shell.ask(question, lambda: submit(shell, command, f"{row.name} is removed"))


def _leave(shell: Shell) -> None:
    others = len(shell.context.view.nodes) - 1
    if others < 1:
        shell.say("this node is alone already", "warn")
        return
    lines = (
        f"This node leaves {text.plural(others, 'other node')} and becomes a cluster of one.",
        "Its shards stop. Models on disk stay. To come back it needs a new invite.",
    )
    question = Question(title="Leave the cluster?", lines=lines, verb="Leave")

    def answered(result: object) -> None:
        if isinstance(result, ExoctlError):
            shell.report(result)
        else:
            shell.say("left: this is a cluster of one now")

    shell.ask(question, lambda: shell.context.node.call(lambda node: node.leave(), answered))
