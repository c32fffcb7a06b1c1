"""Every action there is. Help, key bar, palette, `:` line and the README's table are made of it."""

from tui.actions.action import Action, action
from tui.actions.everywhere import GLOBAL_ACTIONS, VIEW_ACTIONS

SCOPE_TITLES = {
    "global": "Everywhere",
    "list": "Lists",
    "table": "Tables",
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
    action("list.up", "Up", "up", "up", "k"),
    action("list.down", "Down", "down", "down", "j"),
    action("list.page_up", "Page up", "pageup", "pageup"),
    action("list.page_down", "Page down", "pagedown", "pagedown"),
    action("list.top", "First row", "top", "home", "g"),
    action("list.bottom", "Last row", "bottom", "end", "G"),
    action("list.open", "Open the row", "open", "enter", hint="open"),
    action("list.next_hit", "Next match; n too, while a filter is set", "hit", "f3"),
    action("list.previous_hit", "Match before", "hit-", "N"),
)

_TABLE = (
    action(
        "table.sort",
        "Sort by the next column, or the one named",
        "sort",
        "s",
        hint="sort",
        argument="COLUMN",
    ),
    action("table.reverse", "Turn the order round", "reverse", "S"),
    action("table.columns", "Choose columns", "columns", "o"),
)

_TOPOLOGY = (
    action("topology.next_node", "Next node along the ring", "node+", "right"),
    action("topology.previous_node", "Node before", "node-", "left"),
    action("topology.next_placement", "Ring of the next placement", "ring", "s", hint="next ring"),
    action("topology.matrix", "Every link as a matrix", "matrix", "m", hint="matrix"),
)

_NODES = (
    action(
        "nodes.cordon",
        "Cordon: keep new shards off, or allow",
        "cordon",
        "C",
        hint="cordon",
        argument="NODE",
        is_writing=True,
    ),
    action(
        "nodes.remove",
        "Remove the node for good (asks)",
        "remove",
        "K",
        hint="remove",
        argument="NODE",
        is_writing=True,
    ),
    action(
        "nodes.step_down", "Have the master hand over (asks)", "step-down", "H", is_writing=True
    ),
)

_PLACEMENTS = (
    action("placements.chat", "Chat with the model", "talk", "c", hint="chat", argument="MODEL"),
    action(
        "placements.stop",
        "Stop the instance (asks)",
        "stop",
        "x",
        hint="stop",
        argument="INSTANCE",
        is_writing=True,
    ),
    action(
        "placements.restart",
        "Start its runners again (asks)",
        "restart",
        "R",
        hint="restart",
        argument="INSTANCE",
        is_writing=True,
    ),
    action(
        "placements.cancel", "Cancel a request", "cancel", "D", argument="REQUEST", is_writing=True
    ),
)

_DOWNLOADS = (
    action(
        "downloads.add",
        "Fetch a model from the hub",
        "pull",
        "a",
        aliases=("download",),
        hint="add",
        argument="OWNER/NAME[@NODE]",
        is_writing=True,
    ),
    action(
        "downloads.pause",
        "Pause, or go on",
        "pause-download",
        "space",
        hint="pause",
        argument="MODEL",
        is_writing=True,
    ),
    action(
        "downloads.retry",
        "Try again now",
        "retry-download",
        "r",
        hint="retry",
        argument="MODEL",
        is_writing=True,
    ),
    action(
        "downloads.cancel",
        "Give it up (asks)",
        "cancel-download",
        "x",
        hint="give up",
        argument="MODEL",
        is_writing=True,
    ),
    action(
        "downloads.sooner",
        "Before others",
        "sooner",
        "less_than_sign",
        hint="sooner",
        argument="MODEL",
        is_writing=True,
    ),
    action(
        "downloads.later",
        "After others",
        "later",
        "greater_than_sign",
        argument="MODEL",
        is_writing=True,
    ),
)

_MODELS = (
    action(
        "models.pull",
        "Fetch it to a node, or another one",
        "fetch",
        "a",
        hint="fetch",
        argument="OWNER/NAME[@NODE]",
        is_writing=True,
    ),
    action(
        "models.verify",
        "Hash its files anew, mend what is damaged",
        "verify",
        "v",
        hint="verify",
        argument="MODEL",
        is_writing=True,
    ),
    action(
        "models.delete",
        "Delete it from a node (asks)",
        "delete",
        "D",
        hint="delete",
        argument="MODEL",
        is_writing=True,
    ),
)

_EVENTS = (
    action("events.follow", "Follow the newest", "follow", "f", hint="follow"),
    action("events.goto", "Go to an index", "goto", "number_sign", hint="go to", argument="INDEX"),
    action("events.kinds", "Only one kind of event", "kinds", "t", hint="kinds"),
    action("events.origins", "Only what one node wrote", "origins", "o", hint="origins"),
    action("events.next_problem", "Next warning or failure", "problem", "e", hint="next problem"),
    action("events.export", "Write the shown events to a file", "export", "E", argument="FILE"),
)

_CHAT = (
    action("chat.stop", "Stop the answer", "halt", "escape", hint="stop"),
    action(
        "chat.model", "Choose the model", "model", "m", "ctrl+o", hint="model", argument="MODEL"
    ),
    action("chat.retry", "Answer the last question again", "retry", "r", "ctrl+r", hint="retry"),
    action("chat.new", "New conversation", "new", "ctrl+n", hint="new"),
    action("chat.thinking", "Show or hide the model's thinking", "thinking", "T", "ctrl+t"),
)

_LOGS = (
    action("logs.source", "Next source", "source", "s", hint="source"),
    action("logs.level", "Least level shown", "level", "v", hint="level"),
    action("logs.follow", "Follow the newest line", "tail", "f", hint="follow"),
    action("logs.wrap", "Long lines whole, or cut", "wrap", "w", hint="wrap"),
    action("logs.save", "Save the shown lines", "save", "S", argument="FILE"),
    action("logs.reload", "Read again", "reload", "r", hint="reload"),
)

ACTIONS: tuple[Action, ...] = (
    *GLOBAL_ACTIONS,
    *VIEW_ACTIONS,
    *_LIST,
    *_TABLE,
    *_TOPOLOGY,
    *_NODES,
    *_PLACEMENTS,
    *_MODELS,
    *_DOWNLOADS,
    *_EVENTS,
    *_CHAT,
    *_LOGS,
)
