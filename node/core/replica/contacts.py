"""What a replica knows of its peers: who is alive, what they said last, and by which way they are
reached.
"""

import math
from collections.abc import Collection

from node.core.replica.effects import Effect, Send
from node.core.replica.messages import Campaign, DirectMessage, Heartbeat, Relayed
from node.core.replica.timing import Timing
from node.model.ids import NodeId

_BASE_LAG_SECONDS = 0.5
"""A loop that lags by this much doubles the time after which peers count as dead."""
_LAG_HALF_LIFE_SECONDS = 2.0


class Contact:
    """One peer, as last heard."""

    __slots__ = (
        "beat",
        "beat_at",
        "campaign",
        "campaign_at",
        "dead_at",
        "direct_at",
        "heard_at",
        "linked",
        "refused",
        "via",
    )

    def __init__(self) -> None:
        self.heard_at = -math.inf
        self.direct_at = -math.inf
        self.dead_at = math.inf
        """When it counts as dead although heard lately: its link ended."""
        self.linked = False
        self.refused = False
        """Its machine said that nobody listens, and it was not heard since."""
        self.via: NodeId | None = None
        """The peer by which it was heard last, where it is not reached directly."""
        self.beat: Heartbeat | None = None
        self.beat_at = -math.inf
        self.campaign: Campaign | None = None
        self.campaign_at = -math.inf


class Contacts:
    """All peers, in the order of their ids, so that every step is the same in every run."""

    def __init__(self, node: NodeId, timing: Timing, effects: list[Effect]) -> None:
        self._node = node
        self._timing = timing
        self._effects = effects
        self._fresh_seconds = 2 * timing.heartbeat_seconds + 0.2
        self._lag_seconds = 0.0
        self._dead_seconds = timing.dead_seconds
        self._master_dead_seconds = timing.dead_seconds
        self.peers: dict[NodeId, Contact] = {}

    def set_peers(self, peers: Collection[NodeId]) -> None:
        """Name the peers; what is known of those that stay is kept."""
        wanted = sorted(set(peers) - {self._node})
        self.peers = {peer: self.peers.get(peer) or Contact() for peer in wanted}

    def observe_lag(self, gap_seconds: float, tick_seconds: float) -> None:
        """This node's own loop ran late: stretch the time after which it calls others dead."""
        decayed = self._lag_seconds * 0.5 ** (gap_seconds / _LAG_HALF_LIFE_SECONDS)
        lag = max(decayed, gap_seconds - tick_seconds)
        if lag == self._lag_seconds:
            return
        self._lag_seconds = lag if lag > 0.05 else 0.0
        factor = 1.0 + self._lag_seconds / _BASE_LAG_SECONDS
        timing = self._timing
        self._dead_seconds = timing.dead_seconds * min(factor, timing.health_factor_max)
        self._master_dead_seconds = timing.dead_seconds * min(
            factor, timing.health_factor_master_max
        )

    # -- liveness --------------------------------------------------------------------------

    def hear(self, now: float, peer: NodeId, via: NodeId | None) -> None:
        """Something came from the peer, by way of `via` where not directly."""
        contact = self.peers[peer]
        if via is None:
            contact.direct_at = now
            contact.linked = True
            contact.via = None
        elif now - contact.direct_at < self._timing.dead_seconds / 2 and contact.linked:
            return
        else:
            contact.via = via
        contact.heard_at = now
        contact.dead_at = math.inf
        contact.refused = False

    def lose(self, now: float, peer: NodeId, *, refused: bool) -> None:
        """The link with the peer ended or could not be made."""
        contact = self.peers[peer]
        contact.linked = False
        if contact.via is None:
            contact.refused = refused
            dead_at = -math.inf if refused else now + self._timing.disconnected_seconds
            contact.dead_at = min(contact.dead_at, dead_at)
        for other, contact in self.peers.items():
            if contact.via == peer:
                self.lose_relayed(other)

    def lose_relayed(self, peer: NodeId) -> None:
        """The node by way of which the peer is heard hears it no more."""
        contact = self.peers[peer]
        contact.via = None
        contact.dead_at = -math.inf

    def is_alive(self, now: float, peer: NodeId) -> bool:
        """Whether the peer was heard lately enough."""
        contact = self.peers.get(peer)
        if contact is None:
            return False
        return now - contact.heard_at < self._dead_seconds and now < contact.dead_at

    def is_master_alive(self, now: float, peer: NodeId, heard_at: float) -> bool:
        """The same of a master that proved its mastership last at `heard_at`."""
        contact = self.peers.get(peer)
        if contact is None:
            return False
        return now - heard_at < self._master_dead_seconds and now < contact.dead_at

    def give_up(self, now: float, master: NodeId) -> None:
        """The master was silent for too long: it is dead to everything until it is heard again.

        A node whose loop lags is more patient with its other peers; a new master that still counted
        this one among the living would wait for its disk.
        """
        contact = self.peers.get(master)
        if contact is not None and now - contact.heard_at >= self._master_dead_seconds:
            contact.dead_at = min(contact.dead_at, now)

    def alive(self, now: float) -> list[NodeId]:
        """Peers that are alive."""
        return [peer for peer in self.peers if self.is_alive(now, peer)]

    def is_direct(self, peer: NodeId) -> bool:
        """Whether the peer is heard on a live link of its own."""
        contact = self.peers.get(peer)
        return contact is not None and contact.linked and contact.via is None

    def relay_of(self, peer: NodeId) -> NodeId | None:
        """The node by way of which the peer is heard; None where it is not so."""
        contact = self.peers.get(peer)
        return None if contact is None else contact.via

    def is_reached(self, peer: NodeId) -> bool:
        """Whether there is a way to the peer: a live link, or a third node."""
        return self.is_direct(peer) or self.relay_of(peer) is not None

    def all_tried(self, now: float) -> bool:
        """Whether each peer is either heard, or known to be gone."""
        return all(
            contact.refused or self.is_alive(now, peer) for peer, contact in self.peers.items()
        )

    # -- what they said --------------------------------------------------------------------

    def voucher(self, now: float, *, can_relay: bool = False) -> tuple[NodeId, NodeId] | None:
        """A live peer that lately vouched for a master other than this node, and that master;
        `can_relay`: one that hears it directly.
        """
        for peer, contact in self.peers.items():
            beat = self.fresh_beat(now, contact)
            if beat is None or beat.master in ("", self._node):
                continue
            if can_relay and beat.relayed:
                continue
            if self.is_alive(now, peer):
                return peer, beat.master
        return None

    def fresh_beat(self, now: float, contact: Contact) -> Heartbeat | None:
        """What the peer said of itself, if that was lately."""
        return contact.beat if now - contact.beat_at < self._fresh_seconds else None

    def view_size(self, now: float) -> int:
        """How many nodes said lately that they hear this node as their master, itself included."""
        beats = [self.fresh_beat(now, contact) for contact in self.peers.values()]
        return 1 + sum(beat is not None and beat.master == self._node for beat in beats)

    # -- sending ---------------------------------------------------------------------------

    def send(self, peer: NodeId, message: DirectMessage, *, bulk: bool = False) -> None:
        """Send to a peer, by way of another where it was last heard so."""
        contact = self.peers.get(peer)
        if contact is not None and contact.via is not None:
            relayed = Relayed(message.cluster, self._node, peer, message)
            self._effects.append(Send(contact.via, relayed, bulk))
        else:
            self._effects.append(Send(peer, message, bulk))

    def send_by(self, voucher: NodeId, peer: NodeId, message: DirectMessage) -> None:
        """Send to a peer by way of one that hears it."""
        self._effects.append(Send(voucher, Relayed(message.cluster, self._node, peer, message)))

    def send_on(self, message: Relayed) -> None:
        """Pass on what one peer has for another."""
        self._effects.append(Send(message.target, message))

    def send_directly(self, peer: NodeId, message: DirectMessage) -> None:
        """Send on the peer's own link, whether or not it seems to work."""
        self._effects.append(Send(peer, message))
