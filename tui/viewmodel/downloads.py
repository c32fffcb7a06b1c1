"""Rows of downloads and of models."""

import msgspec

from node.core.failure_text import without_subject
from node.model.card import ModelCard
from node.model.ids import ModelId, NodeId
from node.model.register import (
    DownloadFigures,
    DownloadRecord,
    HeldModel,
    MachineFigures,
    ModelFigures,
)
from node.model.state import State
from tui.viewmodel import glyphs, text
from tui.viewmodel.figures import Registers, each
from tui.viewmodel.rows import DownloadRow, Level, ModelRow

LEVELS: dict[str, Level] = {
    "downloading": "busy",
    "converting": "busy",
    "verifying": "busy",
    "resolving": "busy",
    "queued": "idle",
    "paused": "warn",
    "failed": "bad",
    "complete": "ok",
}
_MOVING = 3
_HOPE = {"failed": 0, "paused": 1, "queued": 2}
"""Which of a model's downloads speaks for it: the one that is nearest to an end."""
_ORDER = ("failed", "downloading", "converting", "verifying", "resolving", "paused", "queued")


def download_rows(
    state: State, registers: Registers, hues: dict[NodeId, str], now: float = 0.0
) -> list[DownloadRow]:
    """Every download, those first that need or move something, finished ones last.

    `now` is by the wall clock.
    """
    lies = {
        (node, item.card.model): item.bytes_on_disk
        for node, value in each(registers, ModelFigures)
        for item in value.held
        if item.complete
    }
    rows = [
        _download(
            state,
            node,
            hues.get(node, "dim"),
            _as_it_lies(record, lies.get((node, record.model))),
            now,
        )
        for node, value in each(registers, DownloadFigures)
        if node in state.nodes
        for record in value.downloads
    ]
    rows.sort(key=lambda row: _ORDER.index(row.phase) if row.phase in _ORDER else len(_ORDER))
    return rows


def _as_it_lies(record: DownloadRecord, bytes_on_disk: int | None) -> DownloadRecord:
    """A finished one with the size that the model has on the disk: what was unpacked is larger
    than its package, and is told of everywhere by one figure.
    """
    if record.phase != "complete" or not bytes_on_disk:
        return record
    return msgspec.structs.replace(record, bytes_done=bytes_on_disk, bytes_total=bytes_on_disk)


def _download(
    state: State, node: NodeId, hue: str, record: DownloadRecord, now: float
) -> DownloadRow:
    fraction = record.bytes_done / record.bytes_total if record.bytes_total else 0.0
    return DownloadRow(
        node=node,
        name=state.nodes[node].name,
        hue=hue,
        model=record.model,
        phase=record.phase,
        level=LEVELS.get(record.phase, "busy"),
        fraction=1.0 if record.phase == "complete" else min(1.0, fraction),
        bytes_done=record.bytes_done,
        bytes_total=record.bytes_total,
        bytes_per_second=record.bytes_per_second,
        source=record.source,
        failure=without_subject(record.failure.message, record.model) if record.failure else "",
        remedy=record.failure.remedy if record.failure else "",
        priority=record.priority,
        retry_seconds=max(1.0, record.retry_at - now) if record.retry_at else 0.0,
    )


def model_rows(state: State, registers: Registers) -> list[ModelRow]:
    """Every model that lies on some node of the cluster, by name."""
    cards: dict[ModelId, ModelCard] = {}
    held: dict[ModelId, dict[NodeId, HeldModel]] = {}
    for node, value in each(registers, ModelFigures):
        for item in value.held:
            cards[item.card.model] = item.card
            held.setdefault(item.card.model, {})[node] = item
    rooms = sorted(
        (value.memory_bytes_available for _, value in each(registers, MachineFigures)),
        reverse=True,
    )
    running: dict[ModelId, int] = {}
    for instance in state.instances.values():
        running[instance.model] = running.get(instance.model, 0) + 1
    arriving = _arriving(registers)
    rows = [
        _model(cards[model], held[model], rooms, running.get(model, 0)) for model in sorted(cards)
    ]
    for place, row in enumerate(rows):
        on_the_way = {n: _share(record) for n, record in arriving.pop(row.model, {}).items()}
        whole = {n: words for n, words in row.places.items() if words == glyphs.CHECK}
        rows[place] = msgspec.structs.replace(row, places={**row.places, **on_the_way, **whole})
    rows += [_unknown(model, records) for model, records in arriving.items()]
    return sorted(rows, key=lambda row: row.model)


def _arriving(registers: Registers) -> dict[ModelId, dict[NodeId, DownloadRecord]]:
    """Models that are fetched, or were to be, by node."""
    found: dict[ModelId, dict[NodeId, DownloadRecord]] = {}
    for node, value in each(registers, DownloadFigures):
        for record in value.downloads:
            if record.phase != "complete":
                found.setdefault(record.model, {})[node] = record
    return found


def _share(record: DownloadRecord) -> str:
    if record.phase == "failed":
        return glyphs.CROSS
    share = record.bytes_done / record.bytes_total if record.bytes_total else 0.0
    return text.percent(share).strip()


def _unknown(model: ModelId, records: dict[NodeId, DownloadRecord]) -> ModelRow:
    """A model that lies nowhere whole: nothing is known of it but its bytes, and how it gets on."""
    hopeful = max(records.values(), key=lambda record: _HOPE.get(record.phase, _MOVING))
    words = {"failed": "not fetched", "paused": "paused", "queued": "queued"}
    failure = hopeful.failure if hopeful.phase == "failed" else None
    return ModelRow(
        model=model,
        architecture="",
        bytes_on_disk=max(record.bytes_total for record in records.values()),
        parameters=0,
        bits=0,
        layer_count=0,
        context_tokens=0,
        places={node: _share(record) for node, record in records.items()},
        whole=0,
        instances=0,
        fits=words.get(hopeful.phase, "on its way"),
        level=LEVELS.get(hopeful.phase, "busy"),
        note=without_subject(failure.message, model) if failure else "",
        remedy=failure.remedy if failure else "",
    )


def _model(
    card: ModelCard, held: dict[NodeId, HeldModel], rooms: list[int], running: int
) -> ModelRow:
    fits, level = _fit(card, rooms)
    failures = [item.failure for item in held.values() if item.failure]
    sizes = [item.bytes_on_disk for item in held.values() if item.complete]
    return ModelRow(
        model=card.model,
        architecture=card.architecture,
        bytes_on_disk=max(sizes, default=card.weight_bytes),
        weight_bytes=card.weight_bytes,
        parameters=card.parameters,
        bits=card.quantisation_bits,
        layer_count=card.layer_count,
        context_tokens=card.context_tokens_max,
        places={node: _place(item) for node, item in held.items()},
        whole=sum(item.complete for item in held.values()),
        instances=running,
        fits=fits,
        level=level,
        note=without_subject(failures[0].message, card.model)
        if failures
        else card.uncuttable_reason,
        remedy=failures[0].remedy if failures else "",
    )


def _place(item: HeldModel) -> str:
    if item.failure is not None:
        return glyphs.CROSS
    return glyphs.CHECK if item.complete else text.percent(item.fraction).strip()


def _fit(card: ModelCard, rooms: list[int]) -> tuple[str, Level]:
    """Whether the weights alone fit into the memory free now; a plan says it exactly."""
    need = card.weight_bytes
    together = 0
    for place, room in enumerate(rooms, start=1):
        together += room
        if together >= need:
            if place == 1:
                return "one node", "ok"
            return ("cannot be cut", "warn") if card.uncuttable_reason else (f"{place} nodes", "ok")
    return f"short {text.memory(need - together)}", "bad"
