"""Nodes are named as they are called now, wherever words tell of them."""

from node.core.instance_status import status
from node.core.naming import name_of, with_names
from node.model.event import (
    InstancePlaced,
    NodeAdmitted,
    NodeNamed,
    NodeRevoked,
)
from node.model.ids import NodeId, short
from node.model.state import State
from tests.fakes.cluster import node_id
from tests.fakes.fleet import fold, instance

A, B = node_id("one"), node_id("two")
ADMITTED = (
    NodeAdmitted(node=A, name="one", admitted_by=A),
    NodeAdmitted(node=B, name="two", admitted_by=A),
)


def test_a_node_that_is_gone_keeps_its_last_name() -> None:
    renamed = fold(State(), *ADMITTED, NodeNamed(node=B, name="cellar"))
    assert name_of(renamed, B) == "cellar"
    gone = fold(renamed, NodeRevoked(node=B, reason="sold"))
    assert name_of(gone, B) == "cellar"
    assert name_of(gone, node_id("stranger")) == short(node_id("stranger"))
    back = fold(gone, NodeAdmitted(node=B, name="two", admitted_by=A))
    assert name_of(back, B) == "two"


def test_ids_within_words_become_the_names_of_today() -> None:
    state = fold(State(), *ADMITTED, NodeNamed(node=B, name="cellar"))
    assert with_names(state, f"master {short(B)} lost") == "master cellar lost"
    assert with_names(state, f"{B} at 10.0.0.2") == "cellar at 10.0.0.2"
    gone = fold(state, NodeRevoked(node=B, reason="sold"))
    assert with_names(gone, f"master {short(B)} gave up") == "master cellar gave up"
    strangers = f"{short(node_id('stranger'))} is no member, nor is abcdefghijkl"
    assert with_names(state, strangers) == strangers


def test_an_instance_tells_of_a_removed_node_by_its_name() -> None:
    held = instance((str(A), str(B)))
    state = fold(State(), *ADMITTED, InstancePlaced(instance=held))
    found = status(fold(state, NodeRevoked(node=B, reason="sold")), held.instance, {})
    assert found.failure is not None
    assert "two is lost: sold" in found.failure.message
    assert NodeId(short(B)) not in found.failure.message
