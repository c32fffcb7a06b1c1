import pytest

from node.model.ids import NodeId
from node.model.register import Register, RequestFigures, RouterFigures
from node.model.state import Snapshot, State
from node.services import register_store as module
from node.services.feed import Feed
from node.services.register_store import RegisterStore

ME, PEER = NodeId("me"), NodeId("peer")


def store() -> RegisterStore:
    return RegisterStore(ME, 1, Feed(lambda: Snapshot(state=State())))


def register(node: NodeId, incarnation: int, sequence: int, written: int) -> Register:
    value = RouterFigures(role="following", written=written)
    return Register(node=node, incarnation=incarnation, sequence=sequence, value=value)


def test_only_a_changed_value_makes_a_new_version() -> None:
    registers = store()
    first = registers.set_own(RequestFigures())
    assert first is not None
    assert registers.set_own(RequestFigures()) is None
    second = registers.set_own(RequestFigures(ended_total=1))
    assert second is not None
    assert second.sequence > first.sequence


def test_the_later_version_wins_over_restarts_and_disorder() -> None:
    registers = store()
    assert registers.take(PEER, register(PEER, 2, 5, written=1))
    assert not registers.take(PEER, register(PEER, 2, 5, written=2))
    assert not registers.take(PEER, register(PEER, 1, 900, written=3))
    assert registers.take(PEER, register(PEER, 3, 1, written=4))
    kept = registers.registers[PEER, "RouterFigures"].value
    assert isinstance(kept, RouterFigures)
    assert kept.written == 4


def test_nobody_speaks_for_another_node() -> None:
    registers = store()
    assert not registers.take(PEER, register(NodeId("third"), 1, 1, written=1))
    assert not registers.take(ME, register(ME, 9, 9, written=1))
    assert registers.registers == {}


def test_a_lost_node_takes_its_registers_along() -> None:
    registers = store()
    registers.set_own(RequestFigures())
    registers.take(PEER, register(PEER, 1, 1, written=1))
    registers.forget(PEER)
    registers.forget(ME)
    assert {node for node, _ in registers.registers} == {ME}
    assert len(registers.own()) == 1


def test_the_number_of_nodes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NODES_MAX", 3)
    registers = store()
    taken = [
        registers.take(NodeId(f"n{i}"), register(NodeId(f"n{i}"), 1, 1, written=1))
        for i in range(5)
    ]
    assert taken == [True, True, True, False, False]
