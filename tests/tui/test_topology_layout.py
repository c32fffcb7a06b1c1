"""The topology's layout: nothing overlaps, nothing falls outside, every hop connects."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from node.model.ids import NodeId
from tui.viewmodel.topology_layout import Card, Layout, arrange, cells

WIDTHS = st.integers(min_value=0, max_value=260)
HEIGHTS = st.integers(min_value=0, max_value=80)
COUNTS = st.integers(min_value=1, max_value=12)


def order(count: int) -> list[NodeId]:
    return [NodeId(f"node-{place}") for place in range(count)]


def area(layout: Layout, card: Card) -> set[tuple[int, int]]:
    return {
        (x, y)
        for x in range(card.x, card.x + layout.card_width)
        for y in range(card.y, card.y + layout.card_height)
    }


def touches(layout: Layout, card: Card, cell: tuple[int, int]) -> bool:
    x, y = cell
    around = {(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)}
    return bool(around & area(layout, card))


@given(COUNTS, WIDTHS, HEIGHTS)
@settings(max_examples=200, deadline=None)
def test_cards_lie_inside_apart_and_each_node_once(count: int, width: int, height: int) -> None:
    layout = arrange(order(count), width, height)
    if layout.is_empty:
        return
    assert [card.node for card in layout.cards] == order(count)
    taken: set[tuple[int, int]] = set()
    for card in layout.cards:
        mine = area(layout, card)
        assert not mine & taken
        taken |= mine
    assert all(0 <= x < width and 0 <= y < height for x, y in taken)


@given(COUNTS, WIDTHS, HEIGHTS)
@settings(max_examples=200, deadline=None)
def test_every_hop_leads_from_card_to_card_over_free_cells(
    count: int, width: int, height: int
) -> None:
    layout = arrange(order(count), width, height)
    cards = {card.node: card for card in layout.cards}
    covered = {cell for card in layout.cards for cell in area(layout, card)}
    used: set[tuple[int, int]] = set()
    for path in layout.paths:
        way = cells(path.points)
        assert len(set(way)) == len(way)
        assert all(abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1 for a, b in itertools.pairwise(way))
        assert not set(way) & covered
        assert not set(way) & used
        assert all(0 <= x < width and 0 <= y < height for x, y in way)
        assert touches(layout, cards[path.source], way[0])
        assert touches(layout, cards[path.target], way[-1])
        used |= set(way)


@given(st.integers(min_value=3, max_value=12), WIDTHS, HEIGHTS)
@settings(max_examples=200, deadline=None)
def test_the_ring_is_closed(count: int, width: int, height: int) -> None:
    layout = arrange(order(count), width, height)
    if layout.is_empty:
        return
    hops = [(path.source, path.target) for path in layout.paths]
    nodes = order(count)
    assert hops == [*itertools.pairwise(nodes), (nodes[-1], nodes[0])]
    assert [path.is_closing for path in layout.paths].count(True) == 1


@given(COUNTS, WIDTHS, HEIGHTS)
@settings(max_examples=200, deadline=None)
def test_labels_have_room_that_is_no_card_and_no_other_label(
    count: int, width: int, height: int
) -> None:
    layout = arrange(order(count), width, height)
    covered = {cell for card in layout.cards for cell in area(layout, card)}
    taken: set[tuple[int, int]] = set()
    for path in layout.paths:
        for spot in path.spots:
            room = {(spot.x + step, spot.y) for step in range(max(0, spot.width))}
            assert not room & covered
            assert not room & taken
            assert all(0 <= x < width and 0 <= y < height for x, y in room)
            taken |= room


def test_more_room_never_gives_plainer_cards() -> None:
    nodes = order(5)
    small, large = arrange(nodes, 96, 13), arrange(nodes, 160, 40)
    assert not small.is_empty
    assert large.card_width * large.card_height > small.card_width * small.card_height
    assert arrange(nodes, 60, 13).is_empty
    assert arrange([], 100, 30).is_empty
