"""Views, and the actions that act everywhere."""

from tui.actions.action import Action

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
    Action(id=f"global.{name}", title=f"Show {title}", command=name, keys=(str(digit),))
    for digit, (name, title) in enumerate(VIEWS, start=1)
)

GLOBAL_ACTIONS = (
    Action(
        id="global.help",
        title="Keys and commands of this view",
        command="help",
        keys=("question_mark", "f1"),
        hint="help",
    ),
    Action(
        id="global.command",
        title="Command line",
        command="command",
        keys=("colon",),
        hint="command",
        argument="LINE",
    ),
    Action(
        id="global.place",
        title="Place a model",
        command="place",
        keys=("n",),
        hint="place",
        argument="MODEL",
        is_writing=True,
    ),
    Action(
        id="global.palette",
        title="Search every action",
        command="palette",
        keys=("ctrl+p",),
        is_priority=True,
    ),
    Action(id="global.last_view", title="Last view", command="last", keys=("minus",)),
    Action(id="global.next_pane", title="Next pane", command="next", keys=("tab",)),
    Action(id="global.previous_pane", title="Pane before", command="previous", keys=("shift+tab",)),
    Action(id="global.zoom", title="This pane alone", command="zoom", keys=("z",), hint="zoom"),
    Action(
        id="global.filter",
        title="Filter: words, !not, ~about, /regex/",
        command="filter",
        keys=("slash",),
        hint="filter",
        argument="WORDS",
    ),
    Action(id="global.mark", title="Mark the row, or not", command="mark", keys=("space",)),
    Action(
        id="global.act",
        title="Act on the marked rows (asks)",
        command="act",
        keys=("a",),
        argument="VERB",
        is_writing=True,
    ),
    Action(id="global.back", title="Clear, close, go back", command="back", keys=("escape",)),
    Action(id="global.pause", title="Hold the screen still", command="pause", keys=("p",)),
    Action(id="global.copy", title="Copy the row or the message", command="copy", keys=("y",)),
    Action(
        id="global.invite",
        title="Invite a machine by a code",
        command="invite",
        keys=("i",),
        is_writing=True,
    ),
    Action(
        id="global.requests",
        title="Machines that ask to join",
        command="requests",
        keys=("A",),
        is_writing=True,
    ),
    Action(
        id="global.join",
        title="Join another cluster",
        command="join",
        keys=("J",),
        argument="CODE [HOST:PORT]",
        is_writing=True,
    ),
    Action(
        id="global.leave",
        title="Leave this cluster (asks)",
        command="leave",
        keys=("X",),
        is_writing=True,
    ),
    Action(
        id="global.theme",
        title="Next theme, or the one named",
        command="theme",
        keys=("comma",),
        argument="NAME",
    ),
    Action(
        id="global.screenshot",
        title="Save the screen as SVG",
        command="screenshot",
        keys=("ctrl+s",),
        argument="FILE",
    ),
    Action(
        id="global.quit",
        title="Quit (asks if something stops)",
        command="quit",
        keys=("q",),
        aliases=("q", "exit"),
        hint="quit",
    ),
    Action(
        id="global.quit_now",
        title="Quit at once",
        command="quit!",
        keys=("ctrl+q",),
        aliases=("q!",),
    ),
)
