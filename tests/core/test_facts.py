"""The digest of registers that decisions see."""

from node.core.facts import Facts, facts_from
from node.model.card import ModelCard
from node.model.ids import ModelId, NodeId, RunnerId
from node.model.register import (
    HeldModel,
    LinkFigures,
    ModelFigures,
    Register,
    RegisterValue,
    RouterFigures,
    RunnerFigures,
)
from tests.fakes.fleet import GIB, card, figures, link, progress

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
M = ModelId("m")


def digest(values: dict[NodeId, list[RegisterValue]]) -> Facts:
    registers = {
        (node, type(value).__name__): Register(node=node, incarnation=1, sequence=1, value=value)
        for node, of_node in values.items()
        for value in of_node
    }
    return facts_from(registers, 7.0)


def held(complete: bool = True, model: ModelCard | None = None) -> HeldModel:
    return HeldModel(card=model or card(), complete=complete, bytes_on_disk=1)


def test_registers_become_facts_by_node() -> None:
    one, model, run = figures(GIB), held(), progress("a", memory_bytes=5)
    near = link("b")
    facts = digest(
        {
            A: [
                one,
                ModelFigures(held=(model,)),
                LinkFigures(links=(near,)),
                RunnerFigures(runners=(run,)),
                RouterFigures(role="following"),
            ]
        }
    )
    assert facts.now_wall == 7.0
    assert facts.machines == {A: one}
    assert facts.held == {A: {M: model}}
    assert facts.links == {A: {B: near}}
    assert facts.runners == {RunnerId("r-a"): run}


def test_the_card_of_a_complete_copy_wins_over_one_on_its_way() -> None:
    partial, whole = held(False, card(hidden_size=1)), held(True, card(hidden_size=2))
    facts = digest(
        {
            A: [ModelFigures(held=(partial,))],
            B: [ModelFigures(held=())],
            C: [ModelFigures(held=(whole,))],
        }
    )
    assert facts.card(M) == whole.card
    assert digest({A: [ModelFigures(held=(partial,))]}).card(M) == partial.card
    assert facts.card(ModelId("other")) is None
    assert facts.models() == (M,)


def test_a_node_holds_a_model_only_whole_and_with_the_same_weights() -> None:
    facts = digest(
        {
            A: [ModelFigures(held=(held(),))],
            B: [ModelFigures(held=(held(complete=False),))],
            C: [ModelFigures(held=(held(True, card((1, 2))),))],
        }
    )
    wanted = card(source="elsewhere")
    assert facts.holds(A, wanted)
    assert not facts.holds(B, wanted)
    assert not facts.holds(C, wanted)
    assert not facts.holds(NodeId("d"), wanted)


def test_of_several_links_to_a_peer_the_best_one_that_is_up_counts() -> None:
    slow, fast = link("b", bits_per_second=1e8), link("b", bits_per_second=4e10)
    down = link("b", bits_per_second=9e10, up=False)
    unmeasured = link("b", bits_per_second=None, rtt_seconds=None)
    facts = digest({A: [LinkFigures(links=(slow, fast, down, unmeasured))]})
    assert facts.link(A, B) == fast
    assert facts.link(B, A) == fast


def test_a_link_in_either_direction_makes_two_nodes_reachable() -> None:
    facts = Facts(links={A: {B: link("b", up=False)}, B: {A: link("a")}, C: {}})
    assert facts.reachable(A, B)
    assert not facts.reachable(A, C)
    assert not Facts(links={A: {B: link("b", up=False)}}).reachable(A, B)
    assert Facts().reachable(A, B), "no one has reported its links yet"
