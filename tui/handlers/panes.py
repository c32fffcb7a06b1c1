"""Actions on the pane that has the focus, or on the pane of their scope."""

from pathlib import Path

import msgspec

from tui.bridge.store import NODES, PLACEMENTS
from tui.shell import Handler, Shell
from tui.viewmodel import text
from tui.viewmodel.events import whole_entry
from tui.viewmodel.sorting import find_column
from tui.widgets.event_log import EventLog
from tui.widgets.list_pane import ListPane
from tui.widgets.table_pane import TablePane
from tui.widgets.topology import TopologyPane

EXPORT_NAME = "exoctl-events.ndjson"


def handlers(shell: Shell) -> dict[str, Handler]:
    """Lists, topology and events."""
    found: dict[str, Handler] = {}
    for verb in ("up", "down", "page_up", "page_down", "top", "bottom"):
        found[f"list.{verb}"] = _mover(shell, verb)
    found["list.open"] = lambda _: _open(shell)
    found["list.next_hit"] = lambda _: _hit(shell, 1)
    found["list.previous_hit"] = lambda _: _hit(shell, -1)
    found["table.sort"] = lambda column: _sort(shell, column)
    found["table.reverse"] = lambda _: _reverse(shell)
    found["table.columns"] = lambda _: _columns(shell)
    found["topology.next_node"] = lambda _: _walk(shell, 1)
    found["topology.previous_node"] = lambda _: _walk(shell, -1)
    found["topology.next_placement"] = lambda _: _next_ring(shell)
    found["topology.matrix"] = lambda _: _matrix(shell)
    found["events.follow"] = lambda _: _follow(shell)
    found["events.goto"] = lambda argument: _goto(shell, argument)
    found["events.kinds"] = lambda _: _choose(shell, "kind")
    found["events.origins"] = lambda _: _choose(shell, "origin")
    found["events.next_problem"] = lambda _: _next_problem(shell)
    found["events.export"] = lambda name: _export(shell, name)
    return found


def _mover(shell: Shell, verb: str) -> Handler:
    def move(_argument: str) -> None:
        pane = shell.pane_for("list")
        if isinstance(pane, ListPane):
            pane.move(verb)

    return move


def _open(shell: Shell) -> None:
    pane = shell.pane_for("list")
    if pane is not None:
        pane.open_chosen()


def _hit(shell: Shell, step: int) -> None:
    pane = shell.pane_for("list")
    if not isinstance(pane, ListPane) or not pane.filter_words:
        shell.say("no filter is set: / sets one", "warn")
    elif not pane.step_round(step):
        shell.say("nothing matches the filter", "warn")


def _table(shell: Shell) -> TablePane | None:
    pane = shell.pane_for("table")
    if isinstance(pane, TablePane):
        return pane
    shell.say("no table is shown here: 2 nodes, 3 placements, 4 models, 5 downloads", "warn")
    return None


def _sort(shell: Shell, words: str) -> None:
    pane = _table(shell)
    if pane is None:
        return
    if not words:
        pane.sort_next()
        return
    column = find_column(pane.sortable, words)
    if column is None:
        shell.say(f"it can be sorted by {', '.join(pane.sortable)}", "warn")
        return
    pane.sort(column)


def _reverse(shell: Shell) -> None:
    pane = _table(shell)
    if pane is not None and pane.sort_by:
        pane.turn_round()
    elif pane is not None:
        shell.say("it is not sorted: s sorts it by a column", "warn")


def _columns(shell: Shell) -> None:
    from tui.dialogs.columns import ColumnsDialog  # noqa: PLC0415 - only once it is asked for

    pane = _table(shell)
    if pane is not None and pane.optional:
        shell.open_dialog(ColumnsDialog(shell.context, pane))
    elif pane is not None:
        shell.say("every column of this table is always shown", "warn")


def _topology(shell: Shell) -> TopologyPane | None:
    pane = shell.pane_for("topology")
    return pane if isinstance(pane, TopologyPane) else None


def _walk(shell: Shell, step: int) -> None:
    pane = _topology(shell)
    if pane is not None:
        pane.walk(step)


def _matrix(shell: Shell) -> None:
    pane = _topology(shell)
    if pane is not None:
        pane.shows_matrix = not pane.shows_matrix
        pane.paint()


def _next_ring(shell: Shell) -> None:
    rows = shell.context.view.placements
    if not rows:
        shell.say("nothing is placed yet: n places a model", "warn")
        return
    known = [row.instance for row in rows]
    here = shell.context.instance
    place = known.index(here) + 1 if here is not None and here in known else 0
    shell.context.instance = known[place % len(known)]
    shell.mark(frozenset((NODES, PLACEMENTS)))


def _log(shell: Shell) -> EventLog | None:
    pane = shell.pane_for("events")
    return pane if isinstance(pane, EventLog) else None


def _follow(shell: Shell) -> None:
    log = _log(shell)
    if log is not None:
        log.follow()


def _choose(shell: Shell, field: str) -> None:
    """Show only the events of one kind or of one node, of those that there are."""
    from tui.dialogs.chooser import Choice, ChooserDialog  # noqa: PLC0415 - as above

    log = _log(shell)
    if log is None:
        return
    counted = log.counted(field)
    choices = [Choice(key="", label="all", note=text.plural(sum(counted.values()), "event"))]
    choices += [
        Choice(key=name, label=name, note=str(number)) for name, number in sorted(counted.items())
    ]
    title = "Which kind of event?" if field == "kind" else "Written by which node?"
    take = log.narrow_to_kind if field == "kind" else log.narrow_to_origin
    shell.open_dialog(ChooserDialog(shell.context, title, choices, take))


def _goto(shell: Shell, argument: str) -> None:
    log = _log(shell)
    if log is None:
        return
    digits = argument.replace(",", "").replace("_", "")
    if not digits.isdecimal():
        shell.prompt("goto ", f"{argument!r} is no index" if argument else "")
        return
    if not log.go_to(int(digits)):
        shown = log.shown
        if not shown:
            shell.say("no event is here yet", "warn")
            return
        span = f"{text.count(shown[0].index)} to {text.count(shown[-1].index)}"
        shell.say(f"index {digits} is not among {span}", "warn")


def _export(shell: Shell, name: str) -> None:
    log = _log(shell)
    if log is None:
        return
    path = Path(name or EXPORT_NAME).expanduser()
    names = shell.context.view.names
    lines = [msgspec.json.encode(whole_entry(entry, names)) for entry in log.shown]
    try:
        path.write_bytes(b"".join(line + b"\n" for line in lines))
    except OSError as error:
        shell.say(f"{path} not written: {error.strerror}", "bad")
        return
    shell.say(f"{text.plural(len(lines), 'event')} written to {path}")


def _next_problem(shell: Shell) -> None:
    log = _log(shell)
    if log is not None and not log.next_problem():
        shell.say("no warning and no failure among these events")
