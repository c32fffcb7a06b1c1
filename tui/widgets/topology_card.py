"""A node's card."""

import msgspec

from tui.paint.bars import bar, columns, graph, line
from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs, text
from tui.viewmodel.nodes import MEMORY_WARN
from tui.viewmodel.rows import SYMBOLS, NodeRow, Run
from tui.viewmodel.topology_layout import Card, Layout

Place = tuple[int, int]
Other = tuple[str, Run]
"""A model's name, and the node's run of its layers."""
LABEL_CELLS = 4
MODEL_CELLS_MIN = 6
"""A model's name in fewer cells says nothing."""


class CardLook(msgspec.Struct, frozen=True, kw_only=True):
    """What a card shows beside the node itself."""

    runs: tuple[Run, ...] = ()
    """The node's part of the ring that is drawn."""
    others: tuple[Other, ...] = ()
    """What it holds of other instances."""
    speeds: tuple[float, ...] = ()
    """Tokens a second of late."""
    loads: tuple[float, ...] = ()
    """Load of late, 0 to 1."""
    is_chosen: bool = False

    @property
    def layers(self) -> str:
        """Its layer ranges in this ring; those in other ones where it has no part in it."""
        runs = self.runs or tuple(run for _, run in self.others)
        return " ".join(text.layers(run.first_layer, run.end_layer) for run in runs)

    def holding(self, width: int) -> tuple[str, str]:
        """What the node holds, and a word on it, as far as both fit.

        Where it holds nothing of the ring that is drawn, the word is the other model's name.
        """
        if not self.layers:
            return "no layers", ""
        if self.runs:
            word = text.plural(sum(run.layer_count for run in self.runs), "layer")
            word += f" +{len(self.others)}" if self.others else ""
            return text.shorten(self.layers, width - len(word) - 1), word
        room = width - len(self.layers) - 4
        model = text.middle(self.others[0][0], room) if room >= MODEL_CELLS_MIN else ""
        return text.shorten(self.layers, width), f"of {model}" if model else ""


def draw_card(canvas: Canvas, layout: Layout, card: Card, row: NodeRow, look: CardLook) -> None:
    """Frame in the node's hue (the master's in amber), name in the border, figures inside."""
    width, height = layout.card_width, layout.card_height
    edge = "bad" if row.level == "bad" else "master" if row.is_master else f"{row.hue}%55"
    top, bottom = card.y, card.y + height - 1
    left_top, right_top, left_bottom, right_bottom = glyphs.ROUND
    canvas.put(card.x, top, left_top + glyphs.THIN * (width - 2) + right_top, edge)
    for y in range(top + 1, bottom):
        canvas.put(card.x, y, glyphs.THIN_DOWN + " " * (width - 2) + glyphs.THIN_DOWN, edge)
    canvas.put(card.x, bottom, left_bottom + glyphs.THIN * (width - 2) + right_bottom, edge)
    _draw_title(canvas, (card.x, top), width, row, look)
    _draw_body(canvas, (card.x + 2, top + 1), (width - 4, height - 2), row, look)
    for y in range(top + 1, bottom):
        canvas.ground(y, "raised", card.x + 1, width - 2)


def _draw_title(canvas: Canvas, at: Place, width: int, row: NodeRow, look: CardLook) -> None:
    x, y = at
    mark = f"{glyphs.DIAMOND} " if row.is_master else ""
    name = text.middle(row.name, width - 6 - len(mark))
    end = canvas.put(x + 2, y, f" {mark}", "master b")
    end = canvas.put(end, y, name, f"{row.hue} b{'r' if look.is_chosen else ''}")
    end = canvas.put(end, y, " ")
    if row.is_here and end + 7 < x + width:
        canvas.put(x + width - 8, y, " here ", "dim")


def _draw_body(canvas: Canvas, at: Place, size: Place, row: NodeRow, look: CardLook) -> None:
    x, y = at
    width, height = size
    if row.level == "bad":
        canvas.put(x, y, f"{SYMBOLS['bad']} {row.word}", "bad b", width)
        note = row.notes[0].text.removeprefix(f"{row.word} ") if row.notes else ""
        for place, words in enumerate(text.wrap(note, width)[: height - 1]):
            canvas.put(x, y + 1 + place, words, "dim")
        return
    if not row.has_figures:
        canvas.put(x, y, "no figures yet", "dim", width)
        return
    memory_ink = "warn" if row.memory_fraction > MEMORY_WARN else row.hue
    if height == 1:
        room = width - LABEL_CELLS - len(look.layers) - 1
        canvas.put(x, y, "mem", "dim")
        bar(canvas, (x + LABEL_CELLS, y), room, row.memory_fraction, memory_ink)
        canvas.right(x + width, y, look.layers, _layers_ink(row, look))
        return
    used = text.memory_pair(row.memory_used, row.memory_total)
    _label(canvas, at, width, "mem", used)
    room = width - LABEL_CELLS - max(len(used), 8) - 1
    if height >= 7:
        line(canvas, (x + LABEL_CELLS, y), room, row.memory_fraction, memory_ink)
        _draw_tall(canvas, at, size, row, look)
        return
    bar(canvas, (x + LABEL_CELLS, y), room, row.memory_fraction, memory_ink)
    _label(canvas, (x, y + 1), width, row.load_label, text.percent(row.load).strip())
    line(canvas, (x + LABEL_CELLS, y + 1), room, row.load, f"{row.hue}")
    if height >= 5:
        _draw_speed(canvas, (x, y + 2), (width, room, 1), row, look)
        _draw_chip(canvas, (x, y + 3), width, row)
        _draw_layers(canvas, (x, y + 4), width, row, look)
        return
    layers = look.layers or "no layers"
    layers = text.shorten(layers, width)
    warmth = _warmth(row) or row.chip
    if len(warmth) + len(layers) + 1 > width:
        warmth = warmth.partition(" ")[0]
    canvas.put(x, y + 2, warmth, "dim", width - len(layers) - 1)
    canvas.right(x + width, y + 2, layers, _layers_ink(row, look))


def _draw_tall(canvas: Canvas, at: Place, size: Place, row: NodeRow, look: CardLook) -> None:
    """Load and speed as graphs, with all the lines that the card has over."""
    x, y = at
    width, height = size
    lines = (height - 3) // 2
    room = width - LABEL_CELLS - 9
    label = text.percent(row.load).strip()
    canvas.put(x, y + 1, row.load_label, "dim")
    canvas.right(x + width, y + lines, label, "text b")
    graph(canvas, (x + LABEL_CELLS, y + 1), (room, lines), look.loads, row.hue)
    _draw_speed(canvas, (x, y + 1 + lines), (width, room, lines), row, look)
    _draw_chip(canvas, (x, y + height - 2), width, row)
    _draw_layers(canvas, (x, y + height - 1), width, row, look)


def _draw_chip(canvas: Canvas, at: Place, width: int, row: NodeRow) -> None:
    x, y = at
    warmth = _warmth(row)
    canvas.put(x, y, text.shorten(row.chip, width - len(warmth) - 1), "dim")
    canvas.right(x + width, y, warmth, "dim")


def _label(canvas: Canvas, at: Place, width: int, label: str, figure: str) -> None:
    x, y = at
    canvas.put(x, y, label, "dim")
    canvas.right(x + width, y, figure, "text")


def _draw_speed(
    canvas: Canvas, at: Place, size: tuple[int, int, int], row: NodeRow, look: CardLook
) -> None:
    x, y = at
    width, room, lines = size
    label = f"{row.speed:.1f} t/s" if row.speed else "idle"
    canvas.put(x, y, "out", "dim")
    canvas.right(x + width, y + lines - 1, label, "text b" if row.speed else "faint")
    peak = max((*look.speeds, 1.0))
    values = [value / peak for value in look.speeds]
    if lines > 1:
        graph(canvas, (x + LABEL_CELLS, y), (room, lines), values, row.hue)
    else:
        columns(canvas, (x + LABEL_CELLS, y), room, values, row.hue)


def _draw_layers(canvas: Canvas, at: Place, width: int, row: NodeRow, look: CardLook) -> None:
    x, y = at
    held, word = look.holding(width)
    canvas.put(x, y, held, _layers_ink(row, look))
    canvas.right(x + width, y, word, "dim")


def _layers_ink(row: NodeRow, look: CardLook) -> str:
    """Bright for the ring that is drawn, dimmer for layers of others."""
    if not look.layers:
        return "faint"
    return f"{row.hue} b" if look.runs else f"{row.hue}"


def _warmth(row: NodeRow) -> str:
    parts: list[str] = []
    if row.celsius is not None:
        parts.append(f"{row.celsius:.0f}{glyphs.DEGREE}C")
    if row.watts is not None:
        parts.append(f"{row.watts:.0f} W")
    return " ".join(parts)
