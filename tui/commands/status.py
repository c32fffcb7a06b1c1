"""`exoctl status`: is the cluster well, and what needs the person."""

import msgspec

from node.handle import LocalView, NodeHandle
from node.io import clock
from node.model.ids import NodeId
from node.model.register import MachineFigures, RouterFigures
from tui.commands.console import Console, Listing
from tui.commands.figures import condition, figures, node_word
from tui.commands.jsonable import fields_of, jsonable
from tui.commands.naming import node_name
from tui.commands.plain import Column, Table
from tui.commands.requests import RUNNING, all_requests
from tui.commands.units import bytes_text, duration_text

DISK_BYTES_LOW = 2_000_000_000
DEGRADED = 1


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be."""

    subject: str
    message: str
    remedy: str = ""


def status(console: Console) -> None:
    """Tell whether all is well: exit 0 yes, 1 degraded, 2 no node answers."""

    async def work(handle: NodeHandle) -> int:
        local = await handle.local()
        problems = find_problems(handle, local)
        console.emit(_listing(handle, local, problems))
        if not console.settings.is_plain_data:
            for problem in problems:
                remedy = f"; {problem.remedy}" if problem.remedy else ""
                console.say(f"! {problem.subject}: {problem.message}{remedy}")
        return DEGRADED if problems else 0

    console.exit(console.connected(work))


def find_problems(handle: NodeHandle, local: LocalView) -> list[Problem]:
    """Everything that is not as it should be, worst first."""
    state = handle.state
    problems = [Problem(subject=local.name, message=waiting) for waiting in local.waiting]
    if not state.master and not local.waiting:
        problems.append(Problem(subject="cluster", message="no master yet"))
    for node, record in state.nodes.items():
        if record.lost:
            problems.append(
                Problem(
                    subject=record.name,
                    message=f"{node_word(record)}: {record.lost_reason or 'not heard'}",
                    remedy=f"start it again, or `exoctl node rm {record.name}`",
                )
            )
        else:
            problems += _disk_problems(handle, node)
    problems += _instance_problems(handle)
    return problems


def _disk_problems(handle: NodeHandle, node: NodeId) -> list[Problem]:
    router, machine = figures(handle, node, RouterFigures), figures(handle, node, MachineFigures)
    name = node_name(handle.state, node)
    if router and router.disk_full:
        return [Problem(subject=name, message="its disk is full: it writes nothing")]
    if router and router.disk_trouble:
        return [Problem(subject=name, message=f"its disk takes nothing: {router.disk_trouble}")]
    if machine and machine.disk_bytes_free < DISK_BYTES_LOW:
        free = bytes_text(machine.disk_bytes_free)
        return [Problem(subject=name, message=f"only {free} of disk are free")]
    return []


def _instance_problems(handle: NodeHandle) -> list[Problem]:
    problems: list[Problem] = []
    for key, instance in handle.state.instances.items():
        found = condition(handle, instance)
        if found.word not in ("FAILED", "DEGRADED"):
            continue
        failure, word = found.failure, found.word
        problems.append(
            Problem(
                subject=f"{key} ({instance.model})",
                message=f"{word}: {failure.message}"
                if failure
                else f"{word} {found.detail}".rstrip(),
                remedy=failure.remedy if failure and failure.remedy else f"`exoctl unload {key}`",
            )
        )
    return problems


def _log_positions(handle: NodeHandle) -> list[object]:
    """How far each node's log is; at the same index every node's state has the same hash."""
    positions: list[object] = []
    for node in handle.state.nodes:
        router = figures(handle, node, RouterFigures)
        if router is not None:
            name = node_name(handle.state, node)
            positions.append({"node": node, "name": name, **fields_of(router)})
    return positions


def _listing(handle: NodeHandle, local: LocalView, problems: list[Problem]) -> Listing:
    state = handle.state
    word = "degraded" if problems else "ok"
    up = sum(not record.lost for record in state.nodes.values())
    found = [condition(handle, instance) for instance in state.instances.values()]
    ready = sum(each.ready for each in found)
    running = sum(each.phase in RUNNING for each in all_requests(handle))
    uptime = clock.wall() - local.started_at
    master = node_name(state, state.master) if state.master else "none"
    rows = (
        ("state", word),
        ("cluster", f"{state.cluster_name or 'unnamed'} ({state.cluster[:12]})"),
        ("master", f"{master}, term {state.session.term}, index {state.index}"),
        ("nodes", f"{up} of {len(state.nodes)} up"),
        ("instances", f"{ready} of {len(found)} ready"),
        ("requests", f"{running} running"),
        ("this node", f"{local.name}, process {local.process_id}, up {duration_text(uptime)}"),
        ("api", f"http://{local.api}" if local.api else "none"),
        ("cluster port", str(local.cluster_address) if local.cluster_address else "none"),
        ("trust", local.trust + (": ANYONE on the network is admitted" * (local.trust == "lan"))),
        ("version", local.version),
    )
    item: dict[str, object] = {
        "state": word,
        "cluster": state.cluster,
        "cluster_name": state.cluster_name,
        "session": jsonable(state.session),
        "master": state.master,
        "master_name": master,
        "nodes_up": up,
        "nodes_total": len(state.nodes),
        "instances_ready": ready,
        "instances_total": len(found),
        "requests_running": running,
        "logs": _log_positions(handle),
        "problems": [fields_of(problem) for problem in problems],
        "local": fields_of(local),
    }
    return Listing(
        kind="Status",
        index=state.index,
        items=[item],
        table=Table((Column("CLUSTER"), Column("STATUS", shrinks=True, toned=True)), rows),
        names=(word,),
    )
