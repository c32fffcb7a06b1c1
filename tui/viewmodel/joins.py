"""Machines that ask to be let in."""

from node.model.ids import NodeId
from node.model.register import JoinFigures, JoinRequest
from tui.viewmodel.figures import Registers, each


def waiting_requests(registers: Registers) -> list[tuple[NodeId, JoinRequest]]:
    """Each with the member that it asks, the longest waiting first."""
    found = [
        (node, request)
        for node, figures in each(registers, JoinFigures)
        for request in figures.requests
    ]
    return sorted(found, key=lambda pair: pair[1].since)
