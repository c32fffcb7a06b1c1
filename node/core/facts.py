"""What decisions may know beside the state: a digest of the latest registers.

Registers are not replicated facts: two nodes may see them differently, and so only the master
decides with them, once, and puts what it decided into the log.
"""

from collections.abc import Mapping

import msgspec

from node.core.measured import Ratio, ratios
from node.model.card import ModelCard
from node.model.ids import ModelId, NodeId, RunnerId
from node.model.instance import WeightFormat
from node.model.register import (
    DownloadFigures,
    DownloadRecord,
    HeldModel,
    LinkFigures,
    LinkRecord,
    MachineFigures,
    ModelFigures,
    Register,
    RequestFigures,
    RunnerFigures,
    RunnerProgress,
)
from node.model.request import RequestRecord

LOOPBACK = "loopback"
_ENDED = ("complete", "failed", "paused")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known now of machines, models, links and runners."""

    now_wall: float = 0.0
    """Wall clock, seconds since 1970; only written into events for people to read."""
    machines: dict[NodeId, MachineFigures] = {}
    held: dict[NodeId, dict[ModelId, HeldModel]] = {}
    """Nodes that have not reported their models yet are not in it."""
    links: dict[NodeId, dict[NodeId, LinkRecord]] = {}
    """The best link of each node to each peer, up or not, as that node reports it."""
    runners: dict[RunnerId, RunnerProgress] = {}
    arriving: dict[ModelId, DownloadRecord] = {}
    """Models that are being fetched or made ready somewhere."""
    measured: dict[tuple[NodeId, WeightFormat], Ratio] = {}
    """How fast nodes were, against the table of chips, in the last requests."""

    def card(self, model: ModelId) -> ModelCard | None:
        """The model's card: of the first node, by id, that holds it, complete copies first."""
        found: ModelCard | None = None
        for node in sorted(self.held):
            held = self.held[node].get(model)
            if held is not None and held.complete:
                return held.card
            if held is not None and found is None:
                found = held.card
        return found

    def models(self) -> tuple[ModelId, ...]:
        """Every model that lies on some node, by name."""
        return tuple(sorted({model for held in self.held.values() for model in held}))

    def holds(self, node: NodeId, card: ModelCard) -> bool:
        """Whether the whole model lies on the node, and the same weights as the card's."""
        held = self.held.get(node, {}).get(card.model)
        return held is not None and held.complete and same_weights(held.card, card)

    def link(self, one: NodeId, other: NodeId) -> LinkRecord | None:
        """The link between two nodes that either of them has up, the faster report first."""
        reports = (self.links.get(one, {}).get(other), self.links.get(other, {}).get(one))
        links = [link for link in reports if link is not None and link.up]
        return max(links, key=_link_quality) if links else None

    def reachable(self, one: NodeId, other: NodeId) -> bool:
        """Whether the two can talk; taken for granted while neither has reported its links."""
        if one not in self.links and other not in self.links:
            return True
        return self.link(one, other) is not None


def same_weights(one: ModelCard, other: ModelCard) -> bool:
    """Whether two cards of one name describe the same tensors, wherever each came from."""
    return (
        one.architecture == other.architecture
        and one.hidden_size == other.hidden_size
        and one.embedding_bytes == other.embedding_bytes
        and one.layers == other.layers
    )


def facts_from(registers: Mapping[tuple[NodeId, str], Register], now_wall: float) -> Facts:
    """Make the digest."""
    machines: dict[NodeId, MachineFigures] = {}
    held: dict[NodeId, dict[ModelId, HeldModel]] = {}
    links: dict[NodeId, dict[NodeId, LinkRecord]] = {}
    runners: dict[RunnerId, RunnerProgress] = {}
    arriving: dict[ModelId, DownloadRecord] = {}
    requests: list[RequestRecord] = []
    for (node, _), register in registers.items():
        match register.value:
            case MachineFigures() as figures:
                machines[node] = figures
            case ModelFigures() as figures:
                held[node] = {model.card.model: model for model in figures.held}
            case LinkFigures() as figures:
                links[node] = _best_links(figures)
            case RunnerFigures() as figures:
                runners.update({runner.runner: runner for runner in figures.runners})
            case RequestFigures() as figures:
                requests += figures.requests
            case DownloadFigures() as figures:
                arriving.update((d.model, d) for d in figures.downloads if d.phase not in _ENDED)
            case _:
                pass
    return Facts(
        now_wall=now_wall,
        machines=machines,
        held=held,
        links=links,
        runners=runners,
        arriving=arriving,
        measured=ratios(requests),
    )


def _best_links(figures: LinkFigures) -> dict[NodeId, LinkRecord]:
    best: dict[NodeId, LinkRecord] = {}
    for link in figures.links:
        known = best.get(link.peer)
        if known is None or _link_quality(link) > _link_quality(known):
            best[link.peer] = link
    return best


def _link_quality(link: LinkRecord) -> tuple[bool, bool, float, float]:
    rtt_seconds = float("inf") if link.rtt_seconds is None else link.rtt_seconds
    return (link.up, link.medium == LOOPBACK, link.bits_per_second or 0.0, -rtt_seconds)
