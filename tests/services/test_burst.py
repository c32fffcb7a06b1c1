"""What waits from peers is taken at once, in order; proposals that follow one another, together."""

from collections import deque

import anyio
import pytest

from node.core.replica.messages import Proposal, Submit
from node.io.mesh.event import MeshEvent, PeerDown, Received
from node.model.ids import ClusterId, NodeId
from node.model.session import EventId
from node.services.burst import BURST_MAX, burst

A, B = NodeId("a"), NodeId("b")
CLUSTER, OTHER_CLUSTER = ClusterId("c" * 32), ClusterId("d" * 32)
DOWN = PeerDown(peer=A, refused=False, reason="cut")


def submitted(peer: NodeId, *sequences: int, cluster: ClusterId = CLUSTER) -> Received:
    proposals = [Proposal(EventId(peer, 1, number), b"%d" % number, 1) for number in sequences]
    return Received(peer, Submit(cluster, tuple(proposals)))


class Waiting:
    """As a stream: gives what it has, then raises."""

    def __init__(self, events: list[MeshEvent], end: type[Exception] = anyio.WouldBlock) -> None:
        self.events, self.end = deque(events), end

    def take(self) -> MeshEvent:
        if not self.events:
            raise self.end
        return self.events.popleft()


@pytest.mark.parametrize("end", [anyio.WouldBlock, anyio.EndOfStream])
def test_a_writers_proposals_in_a_row_become_one_message(end: type[Exception]) -> None:
    waiting = Waiting([submitted(A, 2, 3), submitted(A, 4)], end)
    assert burst(submitted(A, 1), waiting.take) == [submitted(A, 1, 2, 3, 4)]


def test_what_comes_between_keeps_its_place() -> None:
    events: list[MeshEvent] = [
        submitted(A, 2),
        DOWN,
        submitted(A, 3),
        submitted(B, 1),
        submitted(B, 2),
    ]
    assert burst(submitted(A, 1), Waiting(events).take) == [
        submitted(A, 1, 2),
        DOWN,
        submitted(A, 3),
        submitted(B, 1, 2),
    ]


def test_proposals_for_another_cluster_are_not_mixed_in() -> None:
    other = submitted(A, 2, cluster=OTHER_CLUSTER)
    assert burst(submitted(A, 1), Waiting([other]).take) == [submitted(A, 1), other]


def test_a_flood_is_taken_in_parts() -> None:
    waiting = Waiting([submitted(A, number) for number in range(2, 1000)])
    taken = burst(submitted(A, 1), waiting.take)
    assert taken == [submitted(A, *range(1, BURST_MAX + 1))]
    assert len(waiting.events) == 999 - BURST_MAX
