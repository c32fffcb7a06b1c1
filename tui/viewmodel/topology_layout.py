"""Where the topology's cards and links lie: a racetrack, pipeline order clockwise.

The first half of the nodes goes left to right above, the rest right to left below, so that every
hop is horizontal or one vertical, and the closing hop at most one elbow. Up to three nodes lie in
one row and the closing hop returns underneath.
"""

from collections.abc import Sequence

import msgspec

from node.model.ids import NodeId

Point = tuple[int, int]

CARD_SIZES = ((38, 13), (30, 11), (25, 9), (25, 7), (22, 5), (20, 3))
"""Width and height of a card, from the richest to the plainest."""
GAP_MIN = 13
GAP_MAX = 24
RISE_MIN = 2
RISE_MAX = 6
RETURN_ROWS = 2
"""Rows under a single row of cards that the closing hop takes."""


class Card(msgspec.Struct, frozen=True):
    """A node's card, by its left upper corner."""

    node: NodeId
    x: int
    y: int


class Spot(msgspec.Struct, frozen=True):
    """Room for a label."""

    x: int
    y: int
    width: int
    is_centred: bool = True


class Path(msgspec.Struct, frozen=True):
    """The way of a hop from the cell beside one card to the cell beside the next."""

    source: NodeId
    target: NodeId
    points: tuple[Point, ...]
    """Corners, ends included; each step is horizontal or vertical."""
    spots: tuple[Spot, ...]
    """Room for what the link is, then for its round trip."""
    is_closing: bool = False


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """A drawing of the cluster in cells."""

    cards: tuple[Card, ...] = ()
    paths: tuple[Path, ...] = ()
    card_width: int = 0
    card_height: int = 0

    @property
    def is_empty(self) -> bool:
        """Nothing fits: draw rows."""
        return not self.cards


class _Grid(msgspec.Struct, frozen=True):
    """Columns and rows that were found to fit."""

    columns: int
    is_single: bool
    card: tuple[int, int]
    gap: int
    rise: int
    left: int
    top: int

    def x(self, column: int) -> int:
        return self.left + column * (self.card[0] + self.gap)

    def y(self, row: int) -> int:
        return self.top + row * (self.card[1] + self.rise)


def arrange(order: Sequence[NodeId], width: int, height: int) -> Layout:
    """Lay the nodes out in that order; the richest cards that fit; empty where none do."""
    if not order:
        return Layout()
    for card in CARD_SIZES:
        grid = _grid(len(order), card, width, height)
        if grid is not None:
            return _place(order, grid)
    return Layout()


def _grid(number: int, card: tuple[int, int], width: int, height: int) -> _Grid | None:
    card_width, card_height = card
    is_single = number <= 3 and number * card_width + (number - 1) * GAP_MIN <= width
    columns = number if is_single else (number + 1) // 2
    spare = width - columns * card_width
    gap = min(GAP_MAX, spare // (columns - 1)) if columns > 1 else 0
    if spare < 0 or (columns > 1 and gap < GAP_MIN):
        return None
    used_width = columns * card_width + (columns - 1) * gap
    if is_single:
        rise = RETURN_ROWS if number == 3 else 0
        used_height = card_height + rise
    else:
        rise = min(RISE_MAX, height - 2 * card_height)
        used_height = 2 * card_height + rise
        if rise < RISE_MIN:
            return None
    if used_height > height:
        return None
    return _Grid(
        columns=columns,
        is_single=is_single,
        card=card,
        gap=gap,
        rise=rise,
        left=(width - used_width) // 2,
        top=(height - used_height) // 2,
    )


def _place(order: Sequence[NodeId], grid: _Grid) -> Layout:
    cards: list[Card] = []
    for place, node in enumerate(order):
        if place < grid.columns:
            column, row = place, 0
        else:
            column, row = 2 * grid.columns - 1 - place, 1
        cards.append(Card(node, grid.x(column), grid.y(row)))
    paths = [_hop(cards[i], cards[i + 1], grid) for i in range(len(cards) - 1)]
    if len(cards) > 2:
        paths.append(_closing(cards[-1], cards[0], grid))
    return Layout(
        cards=tuple(cards),
        paths=tuple(paths),
        card_width=grid.card[0],
        card_height=grid.card[1],
    )


def _hop(source: Card, target: Card, grid: _Grid) -> Path:
    width, height = grid.card
    if source.y == target.y:
        y = source.y + height // 2
        if source.x < target.x:
            start, end = source.x + width, target.x - 1
        else:
            start, end = source.x - 1, target.x + width
        left, right = min(start, end), max(start, end)
        room = right - left - 1
        spots = (Spot(left + 1, y - 1, room), Spot(left + 1, y + 1, room))
        return Path(source.node, target.node, ((start, y), (end, y)), spots)
    return _vertical(source, target, grid)


def _vertical(source: Card, target: Card, grid: _Grid) -> Path:
    width, height = grid.card
    x = source.x + width // 2
    upper, lower = min(source.y, target.y), max(source.y, target.y)
    first, last = upper + height, lower - 1
    points = ((x, first), (x, last)) if source.y < target.y else ((x, last), (x, first))
    room = width - width // 2 - 3
    middle = (first + last) // 2
    spots = (
        Spot(x + 2, middle, room, is_centred=False),
        Spot(x + 2, middle + 1, room, is_centred=False),
    )
    return Path(source.node, target.node, points, spots)


def _closing(source: Card, target: Card, grid: _Grid) -> Path:
    width, height = grid.card
    if grid.is_single:
        bottom = source.y + height
        away, home = source.x + width // 2, target.x + width // 2
        points = ((away, bottom), (away, bottom + 1), (home, bottom + 1), (home, bottom))
        room = away - home - 2
        spots = (Spot(home + 2, bottom, room), Spot(home + 2, bottom, 0))
    elif source.x == target.x:
        path = _vertical(source, target, grid)
        return msgspec.structs.replace(path, is_closing=True)
    else:
        y = source.y + height // 2
        home = target.x + width // 2
        points = ((source.x - 1, y), (home, y), (home, target.y + height))
        room = source.x - home - 3
        spots = (
            Spot(home + 2, y - 1, room, is_centred=False),
            Spot(home + 2, y + 1, room, is_centred=False),
        )
    return Path(source.node, target.node, points, spots, is_closing=True)


def cells(points: Sequence[Point]) -> list[Point]:
    """Every cell of a way, in order, each once."""
    found: list[Point] = [points[0]]
    for x, y in points[1:]:
        last_x, last_y = found[-1]
        step_x = (x > last_x) - (x < last_x)
        step_y = (y > last_y) - (y < last_y)
        while (last_x, last_y) != (x, y):
            last_x, last_y = last_x + step_x, last_y + step_y
            found.append((last_x, last_y))
    return found
