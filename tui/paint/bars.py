"""Bars, stacked runs and column graphs: filled eighths on a track, hatching where colour lacks."""

from collections.abc import Sequence

from tui.paint.canvas import Canvas
from tui.viewmodel import glyphs

Piece = tuple[float, str]
"""How many cells, in which colour."""


def bar(canvas: Canvas, at: tuple[int, int], width: int, fraction: float, colour: str) -> None:
    """A bar from the left, filled to a fraction."""
    fraction = max(0.0, min(1.0, fraction))
    stacked(canvas, at, width, [(fraction * width, colour)])


def line(canvas: Canvas, at: tuple[int, int], width: int, fraction: float, colour: str) -> None:
    """A thin bar, to the half of a cell: for what is said beside a filled one."""
    x, y = at
    halves = round(max(0.0, min(1.0, fraction)) * width * 2)
    track = glyphs.THIN if canvas.is_plain else glyphs.HEAVY
    canvas.put(x, y, track * width, "faint" if canvas.is_plain else "track")
    canvas.put(x, y, glyphs.HEAVY * (halves // 2), colour)
    if halves % 2:
        canvas.put(x + halves // 2, y, glyphs.HALF_HEAVY, colour)


def stacked(
    canvas: Canvas, at: tuple[int, int], width: int, pieces: Sequence[Piece], track: str = "track"
) -> None:
    """Pieces one after another on a track. Each boundary falls on an eighth of a cell."""
    if width <= 0:
        return
    x, y = at
    if canvas.is_plain:
        _hatched(canvas, at, width, pieces)
        return
    edges: list[tuple[int, str]] = []
    position = 0.0
    for length, colour in pieces:
        position = min(float(width), position + max(0.0, length))
        edges.append((round(position * 8), colour))
    for cell in range(width):
        left, right = cell * 8, cell * 8 + 8
        inside = [(end, colour) for end, colour in edges if end > left]
        if not inside:
            canvas.put(x + cell, y, " ", f"text/{track}")
            continue
        end, colour = inside[0]
        if end >= right:
            canvas.put(x + cell, y, " ", f"text/{colour}")
            continue
        ground = inside[1][1] if len(inside) > 1 else track
        canvas.put(x + cell, y, glyphs.EIGHTHS[end - left], f"{colour}/{ground}")


_HATCH = (glyphs.FULL, glyphs.DARK_SHADE)


def _hatched(canvas: Canvas, at: tuple[int, int], width: int, pieces: Sequence[Piece]) -> None:
    x, y = at
    canvas.put(x, y, glyphs.LIGHT_SHADE * width, "faint")
    position = 0.0
    for place, (length, colour) in enumerate(pieces):
        start = round(position)
        position = min(float(width), position + max(0.0, length))
        filled = max(round(position) - start, 1 if length > 0 else 0)
        canvas.put(x + start, y, _HATCH[place % 2] * min(filled, width - start), colour)


def runs(
    canvas: Canvas, at: tuple[int, int], width: int, pieces: Sequence[Piece], loaded: float = 1.0
) -> list[tuple[int, int]]:
    """Runs that fill a width in proportion, parted by a hairline; returns each one's (x, width).

    Below 1, `loaded` leaves the later part of each run dim.
    """
    x, y = at
    total = sum(length for length, _ in pieces)
    if width <= 0 or total <= 0:
        return []
    spans: list[tuple[int, int]] = []
    position = 0.0
    for place, (length, colour) in enumerate(pieces):
        start = round(position)
        position += length * width / total
        cells = max(1, round(position) - start)
        spans.append((x + start, cells))
        _run(canvas, (x + start, y), cells, colour, (place, loaded))
    return spans


def _run(
    canvas: Canvas, at: tuple[int, int], cells: int, colour: str, order: tuple[int, float]
) -> None:
    x, y = at
    place, loaded = order
    full = round(cells * loaded)
    if canvas.is_plain:
        canvas.put(x, y, _HATCH[place % 2] * full + glyphs.LIGHT_SHADE * (cells - full), colour)
        return
    for cell in range(cells):
        ground = colour if cell < full else f"{colour}%28"
        edge = cell == 0 and place > 0
        canvas.put(x + cell, y, glyphs.HAIRLINE if edge else " ", f"pane/{ground}")


def columns(
    canvas: Canvas, at: tuple[int, int], width: int, values: Sequence[float], colour: str
) -> None:
    """One row of block columns, the newest at the right, brighter as they rise. Values 0 to 1."""
    x, y = at
    shown = list(values)[-width:]
    start = x + width - len(shown)
    if len(shown) < width:
        canvas.put(x, y, glyphs.COLUMNS[1] * (width - len(shown)), "track")
    for place, value in enumerate(shown):
        level = max(1, min(8, round(max(0.0, min(1.0, value)) * 8)))
        share = 45 + round(55 * level / 8)
        ink = f"{colour}%{share}" if canvas.palette.has_colour else colour
        canvas.put(start + place, y, glyphs.COLUMNS[level], ink)


def graph(
    canvas: Canvas, at: tuple[int, int], size: tuple[int, int], values: Sequence[float], colour: str
) -> None:
    """Block columns over several rows. Values 0 to 1, the newest at the right.

    Full ones leave an eighth free, so that what stands above does not run into them.
    """
    x, y = at
    width, height = size
    shown = list(values)[-width:]
    start = x + width - len(shown)
    top = height * 8 - (1 if height > 1 else 0)
    canvas.put(x, y + height - 1, glyphs.COLUMNS[1] * (width - len(shown)), "track")
    for row in range(height):
        floor = height - 1 - row
        share = 45 + round(55 * (floor + 1) / height)
        ink = f"{colour}%{share}" if canvas.palette.has_colour else colour
        for place, value in enumerate(shown):
            eighths = round(max(0.0, min(1.0, value)) * top) - floor * 8
            level = max(0, min(8, eighths))
            if floor == 0:
                level = max(1, level)
            if level:
                canvas.put(start + place, y + row, glyphs.COLUMNS[level], ink)
