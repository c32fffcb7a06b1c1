"""Finding nodes and instances by what people type."""

import pytest
from msgspec.structs import replace

from node.core.lookup import find_instance, find_node
from node.core.refusal import Refusal
from node.model.ids import InstanceId, NodeId
from node.model.state import State
from tests.fakes.fleet import instance, record


def cluster() -> State:
    nodes = {"abc1": "studio", "abc2": "mini", "xyz": "mini", "mini": "odd"}
    instances = {"i-11aa": "m", "i-11bb": "n", "i-22cc": "n"}
    return State(
        nodes={NodeId(key): record(key, name=name) for key, name in nodes.items()},
        instances={
            InstanceId(key): replace(instance(key=key), model=model)
            for key, model in instances.items()
        },
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [("abc1", "abc1"), ("studio", "abc1"), ("x", "xyz"), ("mini", "mini"), ("odd", "mini")],
)
def test_a_node_is_found_by_id_name_or_start_of_its_id(text: str, found: str) -> None:
    assert find_node(cluster(), text) == found


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("nobody", "node_not_found", "studio (abc1)"),
        ("", "node_not_found", "studio (abc1)"),
        ("abc", "node_ambiguous", "abc1, abc2"),
    ],
)
def test_a_node_that_is_not_one_is_refused_with_the_names_there_are(
    text: str, code: str, words: str
) -> None:
    refused = find_node(cluster(), text)
    assert isinstance(refused, Refusal)
    assert refused.failure.code == code
    assert words in refused.failure.message + refused.failure.remedy


@pytest.mark.parametrize(
    ("text", "found"),
    [("i-11aa", "i-11aa"), ("i-2", "i-22cc"), ("22", "i-22cc"), ("11a", "i-11aa"), ("m", "i-11aa")],
)
def test_an_instance_is_found_by_id_its_start_or_its_model(text: str, found: str) -> None:
    assert find_instance(cluster(), text) == found


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("i-9", "instance_not_found", "i-11aa (m), i-11bb (n), i-22cc (n)"),
        ("", "instance_not_found", "i-11aa"),
        ("n", "instance_ambiguous", "i-11bb, i-22cc"),
        ("i-11", "instance_ambiguous", "i-11aa, i-11bb"),
    ],
)
def test_an_instance_that_is_not_one_is_refused_with_those_there_are(
    text: str, code: str, words: str
) -> None:
    refused = find_instance(cluster(), text)
    assert isinstance(refused, Refusal)
    assert refused.failure.code == code
    assert words in refused.failure.message + refused.failure.remedy


def test_a_long_list_is_cut_and_counted() -> None:
    names = [f"n{number:02}" for number in range(20)]
    state = State(nodes={NodeId(name): record(name) for name in names})
    refused = find_node(state, "zz")
    assert isinstance(refused, Refusal)
    assert refused.failure.remedy.endswith("n11 (n11) and 8 more")


def test_an_empty_cluster_says_that_nothing_is_placed() -> None:
    refused = find_instance(State(), "i-1")
    assert isinstance(refused, Refusal)
    assert refused.failure.remedy == "nothing is placed"
