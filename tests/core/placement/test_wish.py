"""What is refused before any memory is looked at."""

import pytest
from msgspec.structs import replace

from node.core.placement.plan import plan
from node.core.placement.wish import MODEL_PREPARING, check, context_tokens, find_card, resolve
from node.core.refusal import Refusal
from node.model.card import LayerBytes, ModelCard
from node.model.command import Wish
from node.model.errors import Failure
from node.model.ids import ModelId, NodeId
from node.model.register import DownloadRecord, HeldModel
from tests.fakes.fleet import GIB, amend, card, fleet

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
MODEL = card((1,) * 4, forbidden_cuts=(2, 9))


@pytest.mark.parametrize(
    ("wish", "code", "words"),
    [
        (Wish(strategy="magic"), "bad_wish", "no strategy is called 'magic'"),
        (Wish(weight_format="q2"), "bad_wish", "no weight format is called 'q2'"),
        (Wish(weight_format="dense"), "bad_wish", "nothing to unpack"),
        (Wish(context_tokens=-1), "context_out_of_range", "1 to 8192"),
        (Wish(context_tokens=8193), "context_out_of_range", "8193 tokens was asked"),
        (Wish(nodes_min=0), "bad_wish", "at least 0 nodes"),
        (Wish(nodes=(A, A)), "bad_wish", "named twice: a, a"),
        (Wish(nodes=(A, B), exclude=(B,)), "bad_wish", "b can't be both"),
        (Wish(nodes=(A,), nodes_min=2), "bad_wish", "only 1 named"),
        (Wish(nodes=(A, B), strategy="single"), "bad_wish", "a single node was asked"),
        (Wish(nodes_min=2, strategy="single"), "bad_wish", "a single node was asked"),
        (Wish(nodes=(A,), strategy="pipeline"), "bad_wish", "only a is named"),
        (Wish(nodes_min=4), "bad_wish", "into 3 stages at most, 4 were asked"),
        (Wish(layers=(4,)), "bad_wish", "1 layer counts were given for 0 nodes"),
        (Wish(nodes=(A, B), layers=(4, 0)), "bad_wish", "4 + 0 makes 4 layers"),
        (Wish(nodes=(A, B), layers=(1, 2)), "bad_wish", "makes 3 layers, m has 4"),
        (Wish(nodes=(A, B), layers=(2, 2)), "cut_forbidden", "before layer 2"),
    ],
    ids=str,
)
def test_a_wish_that_cannot_be_meant_is_refused_with_the_reason(
    wish: Wish, code: str, words: str
) -> None:
    state, facts = fleet({"a": GIB, "b": GIB}, MODEL)
    refused = check(state, MODEL, wish)
    assert refused is not None
    assert (refused.kind, refused.failure.code) == ("UsageError", code)
    assert words in refused.failure.message
    assert refused.failure.remedy
    planned = plan(state, MODEL, wish, facts)
    assert (planned.candidates, planned.refusal) == ((), refused.failure)


@pytest.mark.parametrize(
    "wish",
    [
        Wish(),
        Wish(nodes=(A, B), layers=(1, 3), nodes_min=2, strategy="pipeline"),
        Wish(nodes=(B,), exclude=(A,), strategy="single", context_tokens=8192),
        Wish(nodes_min=3),
    ],
)
def test_a_wish_that_makes_sense_is_not(wish: Wish) -> None:
    state, _ = fleet({"a": GIB, "b": GIB}, MODEL)
    assert check(state, MODEL, wish) is None


def test_a_model_that_cannot_be_cut_is_refused_several_nodes_with_the_reason() -> None:
    whole = replace(MODEL, uncuttable_reason="its layers share a cache")
    state, _ = fleet({"a": GIB, "b": GIB}, whole)
    for wish in (Wish(nodes=(A, B)), Wish(strategy="pipeline"), Wish(nodes_min=2)):
        refused = check(state, whole, wish)
        assert refused is not None
        assert refused.failure.code == "model_uncuttable"
        assert "its layers share a cache" in refused.failure.message
    assert check(state, whole, Wish()) is None


@pytest.mark.parametrize(
    "model",
    [
        card(()),
        replace(MODEL, context_tokens_max=0),
        replace(MODEL, parameters=-1),
        replace(MODEL, embedding_bytes=-1),
        replace(MODEL, layers=(LayerBytes(1, -1),)),
    ],
)
def test_a_card_that_makes_no_sense_is_refused(model: ModelCard) -> None:
    state, facts = fleet({"a": GIB}, model)
    refusal = plan(state, model, Wish(), facts).refusal
    assert refusal is not None
    assert refusal.code == "model_unreadable"


def test_named_nodes_that_are_lost_or_cordoned_are_refused() -> None:
    state, _ = fleet({"a": GIB, "b": GIB}, MODEL)
    lost = check(amend(state, "b", lost=True, lost_reason="cable"), MODEL, Wish(nodes=(A, B)))
    assert lost is not None
    assert (lost.kind, lost.failure.code) == ("ConflictError", "node_lost")
    assert "cable" in lost.failure.message
    silent = check(amend(state, "b", lost=True), MODEL, Wish(nodes=(B,)))
    assert silent is not None
    assert "it is not heard" in silent.failure.message
    cordoned = check(amend(state, "a", cordoned=True), MODEL, Wish(nodes=(A,)))
    assert cordoned is not None
    assert (cordoned.kind, cordoned.failure.code) == ("ConflictError", "node_cordoned")
    assert check(amend(state, "a", cordoned=True), MODEL, Wish(nodes=(B,))) is None


def test_nodes_are_resolved_by_name_and_unknown_ones_refused() -> None:
    state, facts = fleet({"a": GIB, "b": GIB}, MODEL)
    state = amend(state, "b", name="studio")
    found = resolve(state, Wish(nodes=(NodeId("studio"),), exclude=(A,)))
    assert not isinstance(found, Refusal)
    assert (found.nodes, found.exclude) == ((B,), (A,))
    refused = resolve(state, Wish(exclude=(C,)))
    assert isinstance(refused, Refusal)
    assert refused.failure.code == "node_not_found"
    assert plan(state, MODEL, Wish(nodes=(C,)), facts).refusal == refused.failure


def test_an_unknown_model_is_refused_with_those_there_are() -> None:
    _, facts = fleet({"a": GIB}, MODEL)
    assert find_card(facts, ModelId("m")) == MODEL
    refused = find_card(facts, ModelId("n"))
    assert isinstance(refused, Refusal)
    assert (refused.kind, refused.failure.code) == ("NotFoundError", "model_not_found")
    assert refused.failure.remedy == "models: m"


def test_a_model_that_is_on_its_way_is_refused_as_passing() -> None:
    _, facts = fleet({"a": GIB}, MODEL)
    model = ModelId("n")
    blank = replace(MODEL, model=model, layers=())
    found = HeldModel(card=blank, complete=False, bytes_on_disk=1)
    arriving = DownloadRecord(model=model, phase="converting", bytes_done=3, bytes_total=4)
    unreadable = replace(found, failure=Failure(code="x", message="x"))
    cases = {
        "no node has reported its models yet": replace(facts, held={}),
        "n was just found and is being looked at": replace(facts, held={A: {model: found}}),
        "n is being made ready (converting, 75%)": replace(facts, arriving={model: arriving}),
    }
    for message, known in cases.items():
        refused = find_card(known, model)
        assert isinstance(refused, Refusal)
        assert (refused.kind, refused.failure.code) == ("BusyError", MODEL_PREPARING)
        assert refused.failure.message == message
    assert find_card(replace(facts, held={A: {model: unreadable}}), model) == blank
    nothing = find_card(replace(facts, held={A: {}}), model)
    assert isinstance(nothing, Refusal)
    assert nothing.failure.remedy == "see `exoctl model ls`"


def test_the_context_is_as_asked_or_4096_or_the_models_own_limit() -> None:
    assert context_tokens(MODEL, Wish()) == 4096
    assert context_tokens(MODEL, Wish(context_tokens=100)) == 100
    assert context_tokens(replace(MODEL, context_tokens_max=2048), Wish()) == 2048
