"""Memory that is used, promised, kept free, and shared."""

import pytest
from msgspec.structs import replace

from node.core.placement.room import RUNNER_BYTES, bytes_kept_free, rooms
from node.core.placement.words import listed, size
from node.model.event import InstancePlaced, InstanceStopping
from node.model.ids import InstanceId, NodeId
from node.model.machine import Address
from tests.fakes.fleet import GIB, MAC, MIB, amend, card, fleet, fold, instance, linked, progress

A, B = NodeId("a"), NodeId("b")
NONE_HELD = frozenset[NodeId]()


@pytest.mark.parametrize(
    ("total", "kept"),
    [(4 * GIB, 512 * MIB), (8 * GIB, GIB), (16 * GIB, 16 * GIB * 8 // 100), (100 * GIB, 8 * GIB)],
)
def test_eight_percent_is_kept_free_but_a_gibibyte_at_least_and_an_eighth_at_most(
    total: int, kept: int
) -> None:
    assert bytes_kept_free(total) == kept


def test_used_is_what_is_not_available_and_the_limit_is_what_is_not_kept_free() -> None:
    state, facts = fleet({"a": 10 * GIB}, card())
    room = rooms(state, facts, frozenset((A,)))[A]
    assert (room.bytes_used, room.bytes_promised) == (6 * GIB, 0)
    assert room.bytes_limit == 16 * GIB - 16 * GIB * 8 // 100
    assert room.bytes_free == room.bytes_limit - 6 * GIB
    assert room.held


def test_a_placed_shard_reserves_what_its_runner_does_not_hold_yet() -> None:
    state, facts = fleet({"a": 10 * GIB, "b": 10 * GIB}, card())
    state = fold(state, InstancePlaced(instance=instance(("a", "b"))))
    part = progress("b", memory_bytes=GIB // 4)
    facts = replace(facts, runners={part.runner: part})
    found = rooms(state, facts, NONE_HELD)
    assert found[A].bytes_promised == GIB + RUNNER_BYTES
    assert found[A].bytes_used == 6 * GIB + GIB + RUNNER_BYTES
    assert found[B].bytes_promised == GIB + RUNNER_BYTES - GIB // 4
    full = progress("b", memory_bytes=3 * GIB)
    loaded = rooms(state, replace(facts, runners={full.runner: full}), NONE_HELD)
    assert loaded[B].bytes_promised == 0
    stopping = fold(state, InstanceStopping(instance=InstanceId("i-00000001")))
    assert rooms(stopping, facts, NONE_HELD)[A].bytes_promised == 0


def test_nodes_on_one_machine_see_each_others_promises() -> None:
    state, facts = fleet(dict.fromkeys("abcd", 10 * GIB), card())
    state = fold(state, InstancePlaced(instance=instance(("a",))))
    links = linked([("a", "b"), ("c", "b"), ("a", "c")], medium="loopback") | linked([("d", "a")])
    links[A] |= linked([("a", "b")], medium="loopback")[A]
    found = rooms(state, replace(facts, links=links), NONE_HELD)
    assert found[B].beside == {A, B, NodeId("c")}
    assert found[B].bytes_promised == GIB + RUNNER_BYTES
    assert found[NodeId("d")].beside == {"d"}
    assert found[NodeId("d")].bytes_promised == 0


def test_nodes_of_one_host_name_and_address_are_on_one_machine() -> None:
    state, facts = fleet(dict.fromkeys("abcde", 10 * GIB), card())
    here, there, bridge = (Address(host, 1) for host in ("10.0.0.5", "10.0.0.6", "172.17.0.1"))
    for key, addresses, hostname in (
        ("a", (here, bridge), "studio"),
        ("b", (here,), "studio"),
        ("c", (bridge,), "mini"),
        ("d", (there,), "studio"),
    ):
        machine = replace(MAC, hostname=hostname)
        state = amend(state, key, addresses=addresses, machine=machine)
    state = amend(state, "e", addresses=(here,), machine=None)
    found = rooms(state, facts, NONE_HELD)
    assert found[A].beside == found[B].beside == {A, B}
    assert found[NodeId("c")].beside == {"c"}
    assert found[NodeId("d")].beside == {"d"}


def test_a_node_whose_machine_or_memory_is_unknown_has_no_room() -> None:
    state, facts = fleet({"a": GIB, "b": GIB}, card())
    state = amend(state, "a", machine=None)
    assert rooms(state, replace(facts, machines={A: facts.machines[A]}), NONE_HELD) == {}


def test_sizes_and_lists_read_well() -> None:
    assert [size(n) for n in (0, 512, 3 * MIB, -3 * GIB // 2)] == [
        "0 KiB",
        "0 KiB",
        "3 MiB",
        "-1.5 GiB",
    ]
    assert listed(["a", "b"]) == "a, b"
    assert listed(["a", "b", "c", "d"], 2) == "a, b and 2 more"
