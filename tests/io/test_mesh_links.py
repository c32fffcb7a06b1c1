"""Of two connections with one peer, both ends keep the same one."""

from collections.abc import AsyncGenerator

import anyio
import pytest

from node.core.peer_table import PeerTable
from node.io.mesh.event import MeshEvent
from node.io.mesh.limits import MeshLimits
from node.io.mesh.link import Link, LinkFacts
from node.io.mesh.links import Links
from node.io.mesh.standing import Standing
from node.model.ids import NodeId
from node.model.machine import Address

LOW, HIGH = NodeId("a" * 52), NodeId("z" * 52)


class StandingLink(Link):
    """A link that stands; whether its peer answers is given."""

    def __init__(self, facts: LinkFacts, *, answers: bool) -> None:
        self.facts = facts
        self._answers = answers

    @property
    def is_open(self) -> bool:
        return True

    async def probe(self) -> bool:
        return self._answers


def facts(peer: NodeId, *, is_dialled: bool, process: str = "p1") -> LinkFacts:
    return LinkFacts(
        peer=peer,
        name="peer",
        version="",
        process=process,
        address=Address("10.0.0.1", 1),
        is_dialled=is_dialled,
        medium="",
    )


class Side:
    """The links of one node, with at most one standing."""

    def __init__(self, own: NodeId) -> None:
        self.events, self.received = anyio.create_memory_object_stream[MeshEvent](8)
        standing = Standing(own, "process", "name", "invite", "1")
        self.links = Links(standing, PeerTable(own), MeshLimits(), self.events)

    async def verdict(self, standing: StandingLink | None, new: LinkFacts) -> str:
        table = self.links._links  # pyright: ignore[reportPrivateUsage]
        table.clear()
        if standing is not None:
            table[new.peer] = standing
        refusal = await self.links.contend(new)
        return refusal.code if refusal else "taken"

    def close(self) -> None:
        self.events.close()
        self.received.close()


@pytest.fixture
async def low() -> AsyncGenerator[Side, None]:
    side = Side(LOW)
    yield side
    side.close()


@pytest.fixture
async def high() -> AsyncGenerator[Side, None]:
    side = Side(HIGH)
    yield side
    side.close()


async def test_where_no_link_stands_a_connection_is_taken(low: Side):
    assert await low.verdict(None, facts(HIGH, is_dialled=True)) == "taken"


@pytest.mark.parametrize("is_dialled", [True, False])
async def test_a_later_connection_of_the_same_direction_takes_the_place(
    low: Side, *, is_dialled: bool
):
    standing = StandingLink(facts(HIGH, is_dialled=is_dialled), answers=True)
    assert await low.verdict(standing, facts(HIGH, is_dialled=is_dialled)) == "taken"


async def test_of_two_directions_both_ends_keep_the_one_that_the_lower_id_dialled(
    low: Side, high: Side
):
    # The connection dialled by LOW comes while the one dialled by HIGH stands: both take it.
    by_high_at_low = StandingLink(facts(HIGH, is_dialled=False), answers=True)
    assert await low.verdict(by_high_at_low, facts(HIGH, is_dialled=True)) == "taken"
    by_high_at_high = StandingLink(facts(LOW, is_dialled=True), answers=True)
    assert await high.verdict(by_high_at_high, facts(LOW, is_dialled=False)) == "taken"
    # And the other way round: both refuse it.
    by_low_at_low = StandingLink(facts(HIGH, is_dialled=True), answers=True)
    assert await low.verdict(by_low_at_low, facts(HIGH, is_dialled=False)) == "already_linked"
    by_low_at_high = StandingLink(facts(LOW, is_dialled=False), answers=True)
    assert await high.verdict(by_low_at_high, facts(LOW, is_dialled=True)) == "already_linked"


async def test_a_link_that_does_not_answer_makes_room_for_either_direction(low: Side):
    dead = StandingLink(facts(HIGH, is_dialled=True), answers=False)
    assert await low.verdict(dead, facts(HIGH, is_dialled=False)) == "taken"


async def test_a_restarted_peer_takes_the_place_of_its_former_process(low: Side):
    dead = StandingLink(facts(HIGH, is_dialled=False), answers=False)
    assert await low.verdict(dead, facts(HIGH, is_dialled=False, process="p2")) == "taken"


async def test_a_second_process_with_the_id_of_a_living_peer_is_a_duplicate(low: Side):
    alive = StandingLink(facts(HIGH, is_dialled=False), answers=True)
    for is_dialled in (True, False):
        new = facts(HIGH, is_dialled=is_dialled, process="p2")
        assert await low.verdict(alive, new) == "duplicate_id"
