"""Nonsense in registers, cards and wishes: a plan or a refusal comes of it, never an exception."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from node.core.decide import Decided, decide
from node.core.facts import Facts
from node.core.placement.plan import plan
from node.core.refusal import Refusal
from node.model.card import LayerBytes, ModelCard
from node.model.command import PlaceInstance, Wish
from node.model.ids import ModelId, NodeId
from node.model.register import HeldModel, LinkRecord
from node.model.state import State
from node.model.topology import Plan
from tests.fakes.fleet import BOX, GIB, HERE, MAC, card, counted, figures, record, request

M = ModelId("m")
NAMES = [NodeId(name) for name in "abc"]
INTEGER_MAX = 2**63 - 1
wide = st.integers(-(2**63), INTEGER_MAX)
sizes = st.one_of(st.integers(0, 3), st.integers(0, INTEGER_MAX), st.integers(0, GIB))
numbers = st.none() | st.floats(allow_nan=True, allow_infinity=True)
keys = st.sampled_from([*NAMES, NodeId("ghost"), NodeId("")])

layers = st.builds(LayerBytes, sizes, sizes, sizes)
wild_layers = st.builds(LayerBytes, wide, wide, wide)


@st.composite
def cards(draw: st.DrawFn, layer: st.SearchStrategy[LayerBytes]) -> ModelCard:
    return replace(
        card(),
        layers=tuple(draw(st.lists(layer, max_size=5))),
        embedding_bytes=draw(sizes),
        activation_bytes_per_token=draw(sizes),
        context_tokens_max=draw(st.integers(0, INTEGER_MAX)),
        parameters=draw(sizes),
        forbidden_cuts=tuple(draw(st.lists(wide, max_size=2))),
    )


links = st.dictionaries(
    st.sampled_from(NAMES),
    st.dictionaries(
        st.sampled_from(NAMES),
        st.builds(
            LinkRecord,
            peer=keys,
            address=st.just(HERE),
            up=st.booleans(),
            medium=st.sampled_from(["", "wifi", "loopback"]),
            rtt_seconds=numbers,
            bits_per_second=numbers,
        ),
    ),
)
wishes = st.one_of(
    st.just(Wish()),
    st.builds(
        Wish,
        nodes=st.lists(st.sampled_from(NAMES), unique=True).map(tuple),
        nodes_min=st.just(1),
        context_tokens=st.one_of(st.just(0), st.integers(0, INTEGER_MAX)),
        force=st.booleans(),
    ),
    st.builds(
        Wish,
        nodes=st.lists(keys, max_size=3).map(tuple),
        exclude=st.lists(keys, max_size=2).map(tuple),
        nodes_min=wide,
        context_tokens=wide,
        strategy=st.sampled_from(["auto", "single", "pipeline", ""]),
        layers=st.lists(wide, max_size=3).map(tuple),
        weight_format=st.sampled_from(["auto", "as_stored", "dense", "?"]),
    ),
)


@st.composite
def worlds(draw: st.DrawFn, models: st.SearchStrategy[ModelCard]) -> tuple[State, Facts]:
    """Three nodes, of which some facts may be missing and any number may be wrong."""
    state = State(nodes={name: record(name, draw(st.sampled_from([MAC, BOX]))) for name in NAMES})
    held = HeldModel(card=draw(models), complete=True, bytes_on_disk=1)
    facts = Facts(
        machines={name: figures(draw(wide), draw(wide)) for name in NAMES},
        held={name: {M: held} for name in NAMES[: draw(st.integers(1, 3))]},
        links=draw(links),
    )
    return state, facts


def assert_answered(state: State, facts: Facts, wish: Wish) -> Plan:
    asked = request(PlaceInstance(model=M, wish=wish))
    decision = decide(state, asked, facts, counted())
    assert isinstance(decision, Decided | Refusal)
    msgspec.msgpack.encode(decision)
    known = facts.card(M)
    assert known is not None
    made = plan(state, known, wish, facts)
    assert (made.refusal is None) == isinstance(decision, Decided)
    msgspec.msgpack.encode(made)
    return made


@settings(max_examples=250, deadline=None)
@given(worlds(cards(layers)), wishes)
def test_numbers_that_make_no_sense_are_answered(world: tuple[State, Facts], wish: Wish) -> None:
    assert_answered(*world, wish)


@settings(max_examples=50, deadline=None)
@given(worlds(cards(wild_layers)), wishes)
def test_cards_that_make_no_sense_are_answered(world: tuple[State, Facts], wish: Wish) -> None:
    assert_answered(*world, wish)
