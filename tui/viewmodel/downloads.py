"""Rows of downloads and of models."""

import msgspec

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
_ORDER = ("failed", "downloading", "converting", "verifying", "resolving", "paused", "queued")


def download_rows(
    state: State, registers: Registers, hues: dict[NodeId, str], now: float = 0.0
) -> list[DownloadRow]:
    """Every download, those first that need or move something, finished ones last.

    `now` is by the wall clock.
    """
    rows = [
        _download(state, node, hues.get(node, "dim"), record, now)
        for node, value in each(registers, DownloadFigures)
        if node in state.nodes
        for record in value.downloads
    ]
    rows.sort(key=lambda row: _ORDER.index(row.phase) if row.phase in _ORDER else len(_ORDER))
    return rows


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
        failure=record.failure.message if record.failure else "",
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
        on_the_way = {n: words for n, (words, _) in arriving.pop(row.model, {}).items()}
        whole = {n: words for n, words in row.places.items() if words == glyphs.CHECK}
        rows[place] = msgspec.structs.replace(row, places={**row.places, **on_the_way, **whole})
    rows += [_unknown(model, places) for model, places in arriving.items()]
    return sorted(rows, key=lambda row: row.model)


def _arriving(registers: Registers) -> dict[ModelId, dict[NodeId, tuple[str, int]]]:
    """Models on their way: by node how far, and how many bytes they have in all."""
    found: dict[ModelId, dict[NodeId, tuple[str, int]]] = {}
    for node, value in each(registers, DownloadFigures):
        for record in value.downloads:
            if record.phase != "complete":
                share = record.bytes_done / record.bytes_total if record.bytes_total else 0.0
                words = glyphs.CROSS if record.phase == "failed" else text.percent(share).strip()
                found.setdefault(record.model, {})[node] = (words, record.bytes_total)
    return found


def _unknown(model: ModelId, places: dict[NodeId, tuple[str, int]]) -> ModelRow:
    """A model that lies nowhere whole: nothing is known of it but its bytes."""
    return ModelRow(
        model=model,
        architecture="",
        bytes_on_disk=max(total for _, total in places.values()),
        parameters=0,
        bits=0,
        layer_count=0,
        context_tokens=0,
        places={node: words for node, (words, _) in places.items()},
        whole=0,
        instances=0,
        fits="on its way",
        level="busy",
    )


def _model(
    card: ModelCard, held: dict[NodeId, HeldModel], rooms: list[int], running: int
) -> ModelRow:
    fits, level = _fit(card, rooms)
    failures = [item.failure.message for item in held.values() if item.failure]
    return ModelRow(
        model=card.model,
        architecture=card.architecture,
        bytes_on_disk=card.weight_bytes,
        parameters=card.parameters,
        bits=card.quantisation_bits,
        layer_count=card.layer_count,
        context_tokens=card.context_tokens_max,
        places={node: _place(item) for node, item in held.items()},
        whole=sum(item.complete for item in held.values()),
        instances=running,
        fits=fits,
        level=level,
        note=failures[0] if failures else card.uncuttable_reason,
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
