"""What has come from peers is taken several at a time: a turn of the loop and a step of the replica
for each would cost a busy master most of its processor time.
"""

from collections.abc import Callable

import anyio

from node.core.replica.messages import Submit
from node.io.mesh.event import MeshEvent, Received

BURST_MAX = 64
"""Events taken in one turn; other tasks have theirs after it."""


def burst(first: MeshEvent, take_next: Callable[[], MeshEvent]) -> list[MeshEvent]:
    """`first` and what waits behind it, in order.

    Args:
        first: what was waited for.
        take_next: gives the next, or raises WouldBlock or EndOfStream where there is none.
    """
    events = [first]
    try:
        while len(events) < BURST_MAX:
            events.append(take_next())
    except (anyio.WouldBlock, anyio.EndOfStream):
        pass  # the end is met again by who waits for the next
    return joined(events)


def joined(events: list[MeshEvent]) -> list[MeshEvent]:
    """The same events, a peer's proposals that follow one another as one message: the master orders
    them in one step, writes them at once and sends them on together.
    """
    joined_events: list[MeshEvent] = []
    gathered: list[Submit] = []
    for place, event in enumerate(events):
        if not (isinstance(event, Received) and isinstance(event.message, Submit)):
            joined_events.append(event)
            continue
        gathered.append(event.message)
        if place + 1 == len(events) or not _goes_on(event, event.message, events[place + 1]):
            joined_events.append(Received(event.peer, _one(gathered)))
            gathered = []
    return joined_events


def _goes_on(event: Received, submit: Submit, following: MeshEvent) -> bool:
    return (
        isinstance(following, Received)
        and following.peer == event.peer
        and isinstance(following.message, Submit)
        and following.message.cluster == submit.cluster
    )


def _one(submits: list[Submit]) -> Submit:
    if len(submits) == 1:
        return submits[0]
    proposals = tuple(proposal for submit in submits for proposal in submit.proposals)
    return Submit(submits[0].cluster, proposals)
