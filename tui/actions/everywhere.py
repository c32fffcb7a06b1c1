"""Views, and the actions that act everywhere."""

from tui.actions.action import action

VIEWS = (
    ("overview", "Overview"),
    ("nodes", "Nodes"),
    ("placements", "Placements"),
    ("models", "Models"),
    ("downloads", "Downloads"),
    ("events", "Events"),
    ("chat", "Chat"),
    ("logs", "Logs"),
)
"""Name and title of each view, in the order of its digit."""

VIEW_ACTIONS = tuple(
    action(f"global.{name}", f"Show {title}", name, str(digit))
    for digit, (name, title) in enumerate(VIEWS, start=1)
)

GLOBAL_ACTIONS = (
    action(
        "global.help", "Keys and commands of this view", "help", "question_mark", "f1", hint="help"
    ),
    action("global.command", "Command line", "command", "colon", hint="command", argument="LINE"),
    action(
        "global.place",
        "Place a model",
        "place",
        "n",
        hint="place",
        argument="MODEL",
        is_writing=True,
    ),
    action("global.palette", "Search every action", "palette", "ctrl+p", is_priority=True),
    action("global.last_view", "Last view", "last", "minus"),
    action("global.next_pane", "Next pane", "next", "tab"),
    action("global.previous_pane", "Pane before", "previous", "shift+tab"),
    action("global.zoom", "This pane alone", "zoom", "z", hint="zoom"),
    action(
        "global.filter",
        "Filter: words, !not, ~about, /regex/",
        "filter",
        "slash",
        hint="filter",
        argument="WORDS",
    ),
    action("global.mark", "Mark the row, or not", "mark", "space"),
    action(
        "global.act", "Act on the marked rows (asks)", "act", "a", argument="VERB", is_writing=True
    ),
    action("global.back", "Clear, close, go back", "back", "escape"),
    action("global.pause", "Hold the screen still", "pause", "p"),
    action("global.copy", "Copy the row or the message", "copy", "y"),
    action("global.invite", "Invite a machine by a code", "invite", "i", is_writing=True),
    action("global.requests", "Machines that ask to join", "requests", "A", is_writing=True),
    action(
        "global.join",
        "Join another cluster",
        "join",
        "J",
        argument="CODE [HOST:PORT]",
        is_writing=True,
    ),
    action("global.leave", "Leave this cluster (asks)", "leave", "X", is_writing=True),
    action("global.settings", "Settings of the app", "settings", "comma"),
    action("global.theme", "Next theme, or the one named", "theme", "f2", argument="NAME"),
    action("global.ping", "Test the links of this node", "ping", "t", argument="NODE"),
    action("global.screenshot", "Save the screen as SVG", "screenshot", "ctrl+s", argument="FILE"),
    action(
        "global.quit",
        "Quit (asks if something stops)",
        "quit",
        "q",
        aliases=("q", "exit"),
        hint="quit",
    ),
    action(
        "global.quit_now", "Quit at once; ctrl-c asks as q does", "quit!", "ctrl+q", aliases=("q!",)
    ),
)
