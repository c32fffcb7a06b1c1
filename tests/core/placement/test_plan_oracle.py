"""Plans against trying everything: never a refusal where something fits, never over a limit."""

from collections.abc import Iterator
from itertools import combinations, pairwise, permutations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from node.core.facts import Facts
from node.core.placement.layers import Costs, spread
from node.core.placement.plan import plan
from node.core.placement.room import RUNNER_BYTES, bytes_kept_free
from node.model.card import ModelCard
from node.model.command import Wish
from node.model.ids import NodeId
from node.model.instance import WeightFormat
from node.model.state import State
from node.model.topology import Candidate
from tests.fakes.fleet import BOX, GIB, MAC, amend, card, fleet, linked

KEPT = bytes_kept_free(16 * GIB)
UNIT = GIB // 8
NAMES = "abcde"


@st.composite
def situations(draw: st.DrawFn) -> tuple[State, ModelCard, Facts]:
    """A few nodes, some links between them, and a model that may or may not fit."""
    names = NAMES[: draw(st.integers(1, 5))]
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=7))
    forbidden = draw(st.sets(st.integers(1, 6), max_size=2))
    model = card(
        [size * UNIT for size in sizes],
        embedding_bytes=draw(st.integers(0, 4)) * UNIT,
        forbidden_cuts=tuple(forbidden),
        dense=draw(st.sampled_from([0, 2])),
    )
    free = {name: RUNNER_BYTES * 2 + draw(st.integers(-4, 24)) * UNIT + KEPT for name in names}
    state, facts = fleet(free, model, draw(st.sampled_from([MAC, BOX])))
    pairs = list(combinations(names, 2))
    absent = draw(st.sets(st.sampled_from(pairs), max_size=3)) if pairs else set[tuple[str, str]]()
    links = linked([pair for pair in pairs if pair not in absent])
    facts = replace(facts, links={NodeId(n): links.get(NodeId(n), {}) for n in names})
    if draw(st.booleans()):
        state = amend(state, names[0], machine=MAC)
    return state, model, facts


def every_ring(state: State, facts: Facts) -> Iterator[tuple[NodeId, ...]]:
    for count in range(1, len(state.nodes) + 1):
        for ring in permutations(state.nodes, count):
            around = pairwise((*ring, ring[0])) if count > 1 else ()
            if all(facts.reachable(*pair) for pair in around):
                yield ring


def fits_somewhere(state: State, model: ModelCard, facts: Facts, wish: Wish) -> bool:
    """Whether any split over any circle of nodes fits; packed weights need the least."""
    costs = Costs(model, WeightFormat.AS_STORED, 4096)
    free = {node: facts.machines[node].memory_bytes_available - KEPT for node in state.nodes}
    return any(
        spread(costs, [free[node] for node in ring]) is not None
        for ring in every_ring(state, facts)
        if len(ring) >= wish.nodes_min and (wish.strategy != "pipeline" or len(ring) > 1)
    )


def assert_sound(candidate: Candidate, model: ModelCard, facts: Facts) -> None:
    boundaries = [share.first_layer for share in candidate.shares] + [model.layer_count]
    assert boundaries[0] == 0
    assert all(first < end for first, end in pairwise(boundaries))
    assert [share.end_layer for share in candidate.shares] == boundaries[1:]
    assert len({share.node for share in candidate.shares}) == len(candidate.shares)
    assert not set(boundaries[1:-1]) & set(model.forbidden_cuts)
    if candidate.fits:
        assert all(share.bytes_slack >= 0 for share in candidate.shares)
        for hop in candidate.hops:
            assert facts.reachable(hop.source, hop.target)


@settings(max_examples=300, deadline=None)
@given(situations(), st.sampled_from([Wish(), Wish(strategy="pipeline"), Wish(nodes_min=3)]))
def test_a_model_is_placed_exactly_where_it_fits(
    situation: tuple[State, ModelCard, Facts], wish: Wish
) -> None:
    state, model, facts = situation
    stages = max(wish.nodes_min, 2 if wish.strategy == "pipeline" else 1)
    made = plan(state, model, wish, facts)
    for candidate in made.candidates:
        assert_sound(candidate, model, facts)
        assert len(candidate.shares) >= stages
    fitting = [candidate.fits for candidate in made.candidates]
    assert fitting == sorted(fitting, reverse=True), "what fits comes first"
    assert any(fitting) == (made.refusal is None)
    possible = stages <= Costs(model, WeightFormat.AS_STORED, 4096).stages_max
    assert any(fitting) == (possible and fits_somewhere(state, model, facts, wish))


@settings(max_examples=150, deadline=None)
@given(situations(), st.permutations(NAMES), st.booleans())
def test_named_nodes_are_all_used_or_refused(
    situation: tuple[State, ModelCard, Facts], order: list[str], force: bool
) -> None:
    state, model, facts = situation
    named = tuple(NodeId(name) for name in order if name in state.nodes)
    made = plan(state, model, Wish(nodes=named, force=force), facts)
    for candidate in made.candidates:
        assert {share.node for share in candidate.shares} == set(named)
        if not force:
            assert_sound(candidate, model, facts)
    assert (made.refusal is None) == any(candidate.fits for candidate in made.candidates)


@settings(max_examples=150, deadline=None)
@given(situations())
def test_nodes_of_one_machine_never_take_more_than_it_has(
    situation: tuple[State, ModelCard, Facts],
) -> None:
    state, model, facts = situation
    pairs = list(combinations(state.nodes, 2))
    facts = replace(facts, links=linked(pairs, medium="loopback"))
    machines = dict.fromkeys(state.nodes, facts.machines[NodeId("a")])
    facts = replace(facts, machines=machines)
    least = facts.machines[NodeId("a")].memory_bytes_available - KEPT
    for candidate in plan(state, model, Wish(), facts).candidates:
        if candidate.fits:
            assert sum(share.bytes_added for share in candidate.shares) <= least
