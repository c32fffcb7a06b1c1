"""The master's desk, without a cluster: what it makes of events that a partition withdrew."""

from collections.abc import Callable

import anyio
import msgspec
import pytest

from node.core.facts import Facts
from node.core.replica.messages import Proposal
from node.model.event import (
    CommandDecided,
    Event,
    NodeAdmitted,
    NodeLost,
    ProposalDropped,
    ProposalRejected,
)
from node.model.ids import CommandId, NodeId
from node.model.session import Entry, EventId, Session
from node.model.state import State
from node.services import master as master_module
from node.services.master import Master
from tests.fakes.eventually import eventually
from tests.fakes.fleet import GIB, card, decided, fleet, fold

HERE = NodeId("a")
SESSION = Session(term=2, master=HERE, incarnation=1)
ID = EventId(NodeId("b"), 1, 7)


class NoRouter:
    """Nothing is written in these tests."""

    def publish(self, event: Event, on_settled: Callable[[Entry | None], None] | None = None):
        pytest.fail(f"{event} was written")

    def withdraw(self, event_id: EventId, event: Event) -> None:
        pytest.fail(f"{event} was withdrawn")

    def is_alive(self, peer: NodeId) -> bool:
        return True

    async def step_down(self) -> None:
        pytest.fail("the office was handed over")


def in_office(state: State, facts: Facts) -> Master:
    def reply(asker: NodeId, answer: object) -> None:
        pytest.fail(f"{asker} was answered {answer}")

    master = Master(HERE, NoRouter(), lambda: facts, reply, lambda: state)
    master.became_master(SESSION, state)
    return master


def judged(event: Event, *before: Event) -> ProposalRejected | ProposalDropped | None:
    """What comes of a withdrawn event after those before it."""
    state, facts = fleet({"a": GIB, "b": GIB}, card())
    master = in_office(fold(state, *before), facts)
    return master.revalidate(Proposal(id=ID, payload=msgspec.msgpack.encode(event), floor=7))


def test_a_command_that_both_halves_decided_is_not_said_to_be_rejected() -> None:
    event = decided((), key="c-1")
    assert judged(event, event) == ProposalDropped(id=ID)


def test_what_another_master_saw_of_the_nodes_is_dropped_without_a_word() -> None:
    assert judged(NodeLost(node=NodeId("b"), reason="no answer")) == ProposalDropped(id=ID)


def test_what_can_t_be_so_any_more_is_rejected_by_the_command_s_name() -> None:
    state, facts = fleet({"a": GIB, "b": GIB}, card())
    state = msgspec.structs.replace(state, revoked={NodeId("x"): "removed"})
    admitted = NodeAdmitted(node=NodeId("x"), name="x", admitted_by=HERE)
    event = CommandDecided(command=CommandId("c-2"), asked_by=HERE, events=(admitted,))
    proposal = Proposal(id=ID, payload=msgspec.msgpack.encode(event), floor=7)
    verdict = in_office(state, facts).revalidate(proposal)
    assert isinstance(verdict, ProposalRejected)
    assert verdict.command == "c-2"
    assert verdict.asked_by == HERE


class Wire:
    """A router over which one node is heard or not, and which remembers what is written."""

    def __init__(self) -> None:
        self.hears = True
        self.written: list[Event] = []

    def publish(
        self, event: Event, on_settled: Callable[[Entry | None], None] | None = None
    ) -> EventId:
        self.written.append(event)
        return EventId(HERE, 1, len(self.written))

    def withdraw(self, event_id: EventId, event: Event) -> None:
        pytest.fail(f"{event} was withdrawn")

    def is_alive(self, peer: NodeId) -> bool:
        return self.hears

    async def step_down(self) -> None:
        pytest.fail("the office was handed over")


def hears_nothing(asker: NodeId, answer: object) -> None:
    pytest.fail(f"{asker} was answered {answer}")


@pytest.mark.parametrize("came_back", [True, False])
async def test_a_goodbye_of_long_ago_does_not_make_a_crash_a_stop(
    monkeypatch: pytest.MonkeyPatch, *, came_back: bool
) -> None:
    for bound in ("LEFT_SECONDS", "GRACE_SECONDS", "LOST_SECONDS"):
        monkeypatch.setattr(master_module, bound, 0.0)
    state, facts = fleet({"a": GIB, "b": GIB}, card())
    wire = Wire()
    desk = Master(HERE, wire, lambda: facts, hears_nothing, lambda: state)
    wire.hears = came_back
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.run)
        desk.node_left(NodeId("b"))  # while another node is in office
        await anyio.sleep(0.05)
        wire.hears = False
        desk.became_master(SESSION, state)
        await eventually(lambda: bool(wire.written))
        tasks.cancel_scope.cancel()
    lost = wire.written[0]
    assert isinstance(lost, NodeLost)
    assert lost.stopped is not came_back
