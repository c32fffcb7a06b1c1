"""Every action there is. Help, key bar, palette, `:` line and the README's table are made of it."""

from tui.actions.action import Action
from tui.actions.everywhere import GLOBAL_ACTIONS, VIEW_ACTIONS

SCOPE_TITLES = {
    "global": "Everywhere",
    "list": "Lists",
    "topology": "Topology",
    "nodes": "Nodes",
    "placements": "Placements",
    "models": "Models",
    "downloads": "Downloads",
    "events": "Events",
    "chat": "Chat",
    "logs": "Logs",
}

_LIST = (
    Action(id="list.up", title="Up", command="up", keys=("up", "k")),
    Action(id="list.down", title="Down", command="down", keys=("down", "j")),
    Action(id="list.page_up", title="Page up", command="pageup", keys=("pageup",)),
    Action(id="list.page_down", title="Page down", command="pagedown", keys=("pagedown",)),
    Action(id="list.top", title="First row", command="top", keys=("home", "g")),
    Action(id="list.bottom", title="Last row", command="bottom", keys=("end", "G")),
    Action(id="list.open", title="Open the row", command="open", keys=("enter",), hint="open"),
)

_TOPOLOGY = (
    Action(
        id="topology.next_node", title="Next node along the ring", command="node+", keys=("right",)
    ),
    Action(id="topology.previous_node", title="Node before", command="node-", keys=("left",)),
    Action(
        id="topology.next_placement",
        title="Ring of the next placement",
        command="ring",
        keys=("s",),
        hint="next ring",
    ),
    Action(
        id="topology.matrix",
        title="Every link as a matrix",
        command="matrix",
        keys=("m",),
        hint="matrix",
    ),
)

_NODES = (
    Action(
        id="nodes.cordon",
        title="Cordon: keep new shards off, or allow",
        command="cordon",
        keys=("C",),
        hint="cordon",
        argument="NODE",
        is_writing=True,
    ),
    Action(
        id="nodes.remove",
        title="Remove the node for good (asks)",
        command="remove",
        keys=("K",),
        hint="remove",
        argument="NODE",
        is_writing=True,
    ),
    Action(
        id="nodes.step_down",
        title="Have the master hand over (asks)",
        command="step-down",
        keys=("H",),
        is_writing=True,
    ),
)

_PLACEMENTS = (
    Action(
        id="placements.chat",
        title="Chat with the model",
        command="talk",
        keys=("c",),
        hint="chat",
        argument="MODEL",
    ),
    Action(
        id="placements.stop",
        title="Stop the instance (asks)",
        command="stop",
        keys=("x",),
        hint="stop",
        argument="INSTANCE",
        is_writing=True,
    ),
    Action(
        id="placements.restart",
        title="Start its runners again (asks)",
        command="restart",
        keys=("R",),
        hint="restart",
        argument="INSTANCE",
        is_writing=True,
    ),
    Action(
        id="placements.cancel",
        title="Cancel a request",
        command="cancel",
        keys=("D",),
        argument="REQUEST",
        is_writing=True,
    ),
)

_DOWNLOADS = (
    Action(
        id="downloads.add",
        title="Fetch a model from the hub",
        command="pull",
        keys=("a",),
        aliases=("download",),
        hint="add",
        argument="OWNER/NAME[@NODE]",
        is_writing=True,
    ),
    Action(
        id="downloads.pause",
        title="Pause, or go on",
        command="pause-download",
        keys=("space",),
        hint="pause",
        argument="MODEL",
        is_writing=True,
    ),
    Action(
        id="downloads.retry",
        title="Try again now",
        command="retry-download",
        keys=("r",),
        hint="retry",
        argument="MODEL",
        is_writing=True,
    ),
    Action(
        id="downloads.cancel",
        title="Give it up (asks)",
        command="cancel-download",
        keys=("x",),
        hint="give up",
        argument="MODEL",
        is_writing=True,
    ),
    Action(
        id="downloads.sooner",
        title="Before others",
        command="sooner",
        keys=("less_than_sign",),
        hint="sooner",
        argument="MODEL",
        is_writing=True,
    ),
    Action(
        id="downloads.later",
        title="After others",
        command="later",
        keys=("greater_than_sign",),
        argument="MODEL",
        is_writing=True,
    ),
)

_MODELS = (
    Action(
        id="models.pull",
        title="Fetch it to a node, or another one",
        command="fetch",
        keys=("a",),
        hint="fetch",
        argument="OWNER/NAME[@NODE]",
        is_writing=True,
    ),
    Action(
        id="models.verify",
        title="Hash its files anew, mend what is damaged",
        command="verify",
        keys=("v",),
        hint="verify",
        argument="MODEL",
        is_writing=True,
    ),
    Action(
        id="models.delete",
        title="Delete it from a node (asks)",
        command="delete",
        keys=("D",),
        hint="delete",
        argument="MODEL",
        is_writing=True,
    ),
)

_EVENTS = (
    Action(
        id="events.follow",
        title="Follow the newest",
        command="follow",
        keys=("f",),
        hint="follow",
    ),
    Action(
        id="events.goto",
        title="Go to an index",
        command="goto",
        keys=("number_sign",),
        hint="go to",
        argument="INDEX",
    ),
    Action(
        id="events.next_problem",
        title="Next warning or failure",
        command="problem",
        keys=("e",),
        hint="next problem",
    ),
    Action(
        id="events.export",
        title="Write the shown events to a file",
        command="export",
        keys=("E",),
        argument="FILE",
    ),
)

_CHAT = (
    Action(id="chat.stop", title="Stop the answer", command="halt", keys=("escape",), hint="stop"),
    Action(
        id="chat.model",
        title="Choose the model",
        command="model",
        keys=("m", "ctrl+o"),
        hint="model",
        argument="MODEL",
    ),
    Action(
        id="chat.retry",
        title="Answer the last question again",
        command="retry",
        keys=("r", "ctrl+r"),
        hint="retry",
    ),
    Action(
        id="chat.new",
        title="New conversation",
        command="new",
        keys=("ctrl+n",),
        hint="new",
    ),
    Action(
        id="chat.thinking",
        title="Show or hide the model's thinking",
        command="thinking",
        keys=("T", "ctrl+t"),
    ),
)

_LOGS = (
    Action(id="logs.source", title="Next source", command="source", keys=("s",), hint="source"),
    Action(id="logs.level", title="Least level shown", command="level", keys=("v",), hint="level"),
    Action(
        id="logs.follow", title="Follow the newest line", command="tail", keys=("f",), hint="follow"
    ),
    Action(
        id="logs.save", title="Save the shown lines", command="save", keys=("S",), argument="FILE"
    ),
    Action(id="logs.reload", title="Read again", command="reload", keys=("r",), hint="reload"),
)

ACTIONS: tuple[Action, ...] = (
    *GLOBAL_ACTIONS,
    *VIEW_ACTIONS,
    *_LIST,
    *_TOPOLOGY,
    *_NODES,
    *_PLACEMENTS,
    *_MODELS,
    *_DOWNLOADS,
    *_EVENTS,
    *_CHAT,
    *_LOGS,
)
