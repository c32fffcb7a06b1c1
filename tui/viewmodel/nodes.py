"""Rows of nodes, their places in the log, and the links between them."""

from collections.abc import Sequence

import msgspec

from node.core.facts import Facts
from node.core.placement.room import machine_groups
from node.model.ids import NodeId, RunnerId
from node.model.machine import NodeRecord
from node.model.register import LinkFigures, LinkRecord, MachineFigures, RouterFigures
from node.model.state import State
from tui.viewmodel import text
from tui.viewmodel.figures import Registers, each, figures, runner_progress
from tui.viewmodel.rows import IndexRow, Level, LinkRow, NodeRow, Note

LAG_WARN = 100
"""Entries behind from which a node is marked."""
MEMORY_WARN = 0.92
DISK_WARN_BYTES = 10_000_000_000
SLOW_BITS = 100e6
NO_FACTS = Facts()


def node_rows(
    state: State, registers: Registers, hues: dict[NodeId, str], here: NodeId, now: float
) -> list[NodeRow]:
    """Every admitted node, in the order of admission."""
    speeds = {runner: item.tokens_per_second for runner, item in runner_progress(registers).items()}
    ranges = _layer_ranges(state)
    stalled = _stalled(state)
    newest = newest_applied(registers)
    ordered = sorted(state.nodes.values(), key=lambda item: (item.admitted_index, item.node))
    rows: list[NodeRow] = []
    for record in ordered:
        machine = figures(registers, record.node, MachineFigures)
        router = figures(registers, record.node, RouterFigures)
        held = ranges.get(record.node, [])
        level, word = _status(record, router)
        gpu = machine.gpu_fraction if machine else None
        system, chip = _describe(record)
        rows.append(
            NodeRow(
                node=record.node,
                name=record.name,
                hue=hues[record.node],
                level=level,
                word=word,
                is_master=record.node == state.master,
                is_here=record.node == here,
                has_figures=machine is not None,
                memory_used=_used(machine),
                memory_total=machine.memory_bytes_total if machine else 0,
                load_label="cpu" if gpu is None else "gpu",
                load=(machine.processor_fraction if machine else 0.0) if gpu is None else gpu,
                celsius=machine.temperature_celsius if machine else None,
                watts=machine.power_watts if machine else None,
                chip=chip,
                layers=" ".join(text.layers(first, end) for first, end, _ in held),
                layer_count=sum(end - first for first, end, _ in held),
                speed=max(
                    (speeds.get(run, 0.0) for _, _, run in held if run not in stalled), default=0.0
                ),
                disk_free=machine.disk_bytes_free if machine else 0,
                system=system,
                version=record.version,
                labels=text.labels(record.labels),
                applied=router.index_applied if router else -1,
                lag=max(0, newest - router.index_applied) if router else 0,
                notes=_notes(state, record, machine, router, now),
            )
        )
    return rows


def memory_of_all(state: State, rows: Sequence[NodeRow]) -> tuple[int, int]:
    """Memory in use and in all, of the whole cluster; nodes on one machine share its memory."""
    groups = machine_groups(state, NO_FACTS)
    counted: set[NodeId] = set()
    used = total = 0
    for row in rows:
        if row.node not in counted and row.memory_total:
            used += row.memory_used
            total += row.memory_total
            counted |= groups.get(row.node, frozenset((row.node,)))
    return used, total


def _describe(record: NodeRecord) -> tuple[str, str]:
    machine = record.machine
    if machine is None:
        return "", ""
    system = "macOS" if machine.system == "darwin" else machine.system
    return f"{system} {machine.release}", machine.chip.removeprefix("Apple ")


def _used(machine: MachineFigures | None) -> int:
    return machine.memory_bytes_total - machine.memory_bytes_available if machine else 0


def _stalled(state: State) -> set[RunnerId]:
    """Runners whose instance has lost a node: what they say of their speed is of before."""
    found: set[RunnerId] = set()
    for instance in state.instances.values():
        records = [state.nodes.get(node) for node in instance.nodes]
        if any(record is None or record.lost for record in records):
            found |= {shard.runner for shard in instance.shards}
    return found


def _layer_ranges(state: State) -> dict[NodeId, list[tuple[int, int, RunnerId]]]:
    ranges: dict[NodeId, list[tuple[int, int, RunnerId]]] = {}
    for instance in state.instances.values():
        for shard in instance.shards:
            held = ranges.setdefault(shard.node, [])
            held.append((shard.first_layer, shard.end_layer, shard.runner))
    return ranges


def _status(record: NodeRecord, router: RouterFigures | None) -> tuple[Level, str]:
    found: tuple[Level, str] = ("ok", "up")
    if record.lost:
        found = ("idle", "stopped") if record.stopped else ("bad", "lost")
    elif router is None:
        found = "busy", "silent"
    elif router.disk_full:
        found = "bad", "disk full"
    elif router.disk_trouble:
        found = "bad", "disk stuck"
    elif router.gap_first >= 0:
        found = "warn", "gap"
    elif record.cordoned:
        found = "warn", "cordoned"
    return found


def _notes(
    state: State,
    record: NodeRecord,
    machine: MachineFigures | None,
    router: RouterFigures | None,
    now: float,
) -> tuple[Note, ...]:
    notes: list[Note] = []
    if record.lost:
        ago = f" {text.duration(now - record.lost_at)} ago" if record.lost_at else ""
        word = "stopped" if record.stopped else "lost"
        why = f"{word}{ago}: {record.lost_reason or 'no answer'}"
        notes.append(Note(why, "start it there, or 2 nodes, K removes it"))
    if router is not None and router.disk_trouble:
        notes.append(Note(f"the disk of its log: {router.disk_trouble}", "look after the disk"))
    if router is not None and router.gap_first >= 0:
        gap = f"gap {text.count(router.gap_first)} to {text.count(router.gap_last)}, "
        asked = f"replay asked {router.replay_attempts} times"
        notes.append(Note(gap + asked, "6 events, t tests its link"))
    if machine is not None and machine.memory_bytes_total:
        if _used(machine) / machine.memory_bytes_total > MEMORY_WARN:
            left = f"memory: {text.memory(machine.memory_bytes_available)} left"
            notes.append(Note(left, "3 placements, x stops one"))
        if machine.disk_bytes_free < DISK_WARN_BYTES:
            left = f"disk: {text.size(machine.disk_bytes_free)} left"
            notes.append(Note(left, "4 models, D deletes one"))
    master = state.nodes.get(state.master)
    if master is not None and record.version and master.version not in ("", record.version):
        words = f"version {record.version}, the master has {master.version}"
        notes.append(Note(words, "update exoctl there"))
    if record.cordoned:
        notes.append(Note("cordoned: no new shards", "2 nodes, C allows them"))
    return tuple(notes)


def newest_applied(registers: Registers) -> int:
    """The highest index that any node says it applied; said at the same pace as all the others,
    so that the difference is a lag and not the age of a register.
    """
    return max((item.index_applied for _, item in each(registers, RouterFigures)), default=-1)


def index_rows(state: State, registers: Registers, hues: dict[NodeId, str]) -> list[IndexRow]:
    """Every node's place in the log, in the order of admission."""
    routers = dict(each(registers, RouterFigures))
    newest = newest_applied(registers)
    rows: list[IndexRow] = []
    for record in sorted(state.nodes.values(), key=lambda item: (item.admitted_index, item.node)):
        router = routers.get(record.node)
        is_master = record.node == state.master
        level: Level
        if router is None:
            level = "bad" if record.lost else "busy"
            row = IndexRow(
                node=record.node,
                name=record.name,
                hue=hues[record.node],
                level=level,
                is_master=is_master,
                has_figures=False,
                role="lost" if record.lost else "silent",
            )
        else:
            lag = max(0, newest - router.index_applied)
            behind = router.gap_first >= 0 or lag > LAG_WARN
            level = "bad" if record.lost else "warn" if behind else "ok"
            row = IndexRow(
                node=record.node,
                name=record.name,
                hue=hues[record.node],
                level=level,
                is_master=is_master,
                has_figures=True,
                role="lost" if record.lost else router.role,
                written=router.written,
                applied=router.index_applied,
                committed=router.index_committed,
                lag=lag,
                buffered=router.buffered,
                gap_first=router.gap_first,
                gap_last=router.gap_last,
                unacknowledged=router.unacknowledged,
                oldest_seconds=router.oldest_seconds,
                replays=router.replay_attempts,
                elections=router.elections,
                log_bytes=router.log_bytes,
            )
        rows.append(row)
    return rows


def link_rows(state: State, registers: Registers) -> dict[frozenset[NodeId], LinkRow]:
    """The best link of each pair of nodes, by pair."""
    reports: dict[tuple[NodeId, NodeId], LinkRecord] = {}
    for node, value in each(registers, LinkFigures):
        for link in value.links:
            held = reports.get((node, link.peer))
            if held is None or _rank(link) > _rank(held):
                reports[node, link.peer] = link
    rows: dict[frozenset[NodeId], LinkRow] = {}
    for (node, peer), link in reports.items():
        pair = frozenset((node, peer))
        if pair in rows or node not in state.nodes or peer not in state.nodes:
            continue
        back = reports.get((peer, node))
        row = _merge(node, peer, link, back)
        if state.nodes[node].lost or state.nodes[peer].lost:
            row = msgspec.structs.replace(row, up=False, note="lost")
        rows[pair] = row
    return rows


def _rank(link: LinkRecord) -> tuple[bool, float]:
    return link.up, link.bits_per_second or 0.0


def _merge(node: NodeId, peer: NodeId, link: LinkRecord, back: LinkRecord | None) -> LinkRow:
    best = link if back is None or _rank(link) >= _rank(back) else back
    one_way = back is not None and link.up != back.up
    note = ""
    if not best.up:
        note = best.failure.message if best.failure else "down"
    elif one_way:
        down = link if not link.up else back
        reason = down.failure.message if down and down.failure else "no reason given"
        note = f"one way only: {reason}"
    rtts = [item.rtt_seconds for item in (link, back) if item and item.rtt_seconds is not None]
    return LinkRow(
        source=node,
        target=peer,
        medium=best.medium,
        bits_per_second=best.bits_per_second,
        rtt_seconds=min(rtts) if rtts else None,
        up=best.up,
        one_way=one_way,
        note=note,
    )
