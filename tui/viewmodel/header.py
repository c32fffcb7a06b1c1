"""The top line, and what needs the person."""

from node.handle import LocalView
from node.model.ids import NodeId
from node.model.register import LinkFigures, RouterFigures
from node.model.state import State
from tui.viewmodel import text
from tui.viewmodel.figures import Registers, figures
from tui.viewmodel.joins import waiting_requests
from tui.viewmodel.nodes import newest_applied
from tui.viewmodel.rows import DownloadRow, Header, Level, NodeRow, Notice, PlacementRow

NOTICES_MAX = 8
_WORST_FIRST: dict[Level, int] = {"bad": 0, "warn": 1}


def header(
    state: State, registers: Registers, nodes: list[NodeRow], local: LocalView | None
) -> Header:
    """The cluster in one line, as the node behind the handle sees it."""
    here = local.node if local else NodeId("")
    router = figures(registers, here, RouterFigures)
    master = next((row for row in nodes if row.node == state.master), None)
    level, word = _session(state, router, master)
    newest = newest_applied(registers)
    return Header(
        cluster=state.cluster_name,
        nodes_up=sum(row.level != "bad" for row in nodes),
        nodes_known=len(nodes),
        master=master.name if master else "",
        master_hue=master.hue if master else "dim",
        term=state.session.term,
        index=state.index,
        lag_here=max(0, newest - router.index_applied) if router else 0,
        lag_worst=max((row.lag for row in nodes if row.level != "bad"), default=0),
        buffered=router.buffered if router else 0,
        unacknowledged=router.unacknowledged if router else 0,
        replays=router.replay_attempts if router else 0,
        session_level=level,
        session_word=word,
        trust_lan=local is not None and local.trust == "lan",
    )


def _session(
    state: State, router: RouterFigures | None, master: NodeRow | None
) -> tuple[Level, str]:
    if router is not None and router.role == "looking":
        return "busy", f"electing t{state.session.term + 1}"
    if not state.master:
        return "busy", "no master yet"
    if master is None or master.word == "lost":
        return "warn", "master lost"
    return "ok", "live"


def notices(
    state: State,
    registers: Registers,
    rows: tuple[list[NodeRow], list[PlacementRow], list[DownloadRow]],
    local: LocalView | None,
) -> list[Notice]:
    """What needs the person now, the worst first."""
    nodes, placements, downloads = rows
    found: list[Notice] = []
    found += _about_session(state, registers, nodes, local)
    found += [
        Notice(
            level="bad",
            title=f"{row.model} failed",
            text=_join(row.failure, row.remedy),
            key="3 placements: R restarts, x stops it",
        )
        for row in placements
        if row.level == "bad"
    ]
    found += [
        Notice(
            level="bad" if row.level == "bad" else "warn",
            title=row.name,
            text=note.text,
            key=note.key,
        )
        for row in nodes
        for note in row.notes
        if row.level != "idle"
    ]
    found += [
        Notice(
            level="bad",
            title=f"{row.model} on {row.name}",
            text=_join(row.failure or "the download failed", row.remedy),
            key="5 downloads, r tries again",
        )
        for row in downloads
        if row.level == "bad"
    ]
    found += _about_requests(registers)
    found += _about_neighbours(registers, local)
    return sorted(found, key=lambda notice: _WORST_FIRST.get(notice.level, 2))[:NOTICES_MAX]


def _join(message: str, remedy: str) -> str:
    return f"{message}. {remedy[0].upper()}{remedy[1:]}." if remedy else message


def _about_session(
    state: State, registers: Registers, nodes: list[NodeRow], local: LocalView | None
) -> list[Notice]:
    here = local.node if local else NodeId("")
    router = figures(registers, here, RouterFigures)
    master = next((row.name for row in nodes if row.node == state.master), "the master")
    found: list[Notice] = []
    if router is not None and router.role == "looking":
        heard = sum(row.has_figures for row in nodes)
        waiting = local.commands_pending if local else 0
        words = f"{heard} of {len(nodes)} nodes are heard. "
        if waiting:
            words += f"{text.plural(waiting, 'command')} wait and run once. "
        words += "Models that run go on serving."
        title = f"No master: electing term {state.session.term + 1}, {master} is not heard"
        found.append(Notice(level="warn", title=title, text=words, key="6 events"))
    if router is not None and router.disk_full:
        words = "The ordered log can't be written: this node answers nobody until there is room."
        found.append(
            Notice(level="bad", title="Disk full", text=words, key="free space, then wait")
        )
    elif router is not None and router.disk_trouble:
        words = f"Nothing reaches the ordered log here: {router.disk_trouble}."
        found.append(Notice(level="bad", title="Disk stuck", text=words, key="look after the disk"))
    if state.rejections:
        last = state.rejections[-1]
        words = _join(last.failure.message, last.failure.remedy)
        found.append(
            Notice(level="warn", title="Withdrawn after a partition", text=words, key="6 events")
        )
    return found


def _about_requests(registers: Registers) -> list[Notice]:
    return [
        Notice(
            level="warn",
            title=f"{request.name} wants to join",
            text=f"Its screen must show {text.grouped(request.code)}.",
            key="A lets it in or denies it",
        )
        for _, request in waiting_requests(registers)
    ]


def _about_neighbours(registers: Registers, local: LocalView | None) -> list[Notice]:
    if local is None:
        return []
    links = figures(registers, local.node, LinkFigures)
    if links is None:
        return []
    found = [
        Notice(
            level="idle",
            title=f"{link.address} is near, in another cluster",
            text=link.failure.message if link.failure else "not a member",
            key="J asks it to let this node in, i shows a code for it",
        )
        for link in links.heard[:3]
    ]
    if links.discovery not in ("on", "off", ""):
        found.append(
            Notice(
                level="warn",
                title="Discovery does not work",
                text=links.discovery,
                key=":join asks for an address",
            )
        )
    return found
