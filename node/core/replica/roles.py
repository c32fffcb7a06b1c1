"""What a replica is at the moment: looking for a master, following one, or mastering.

Exactly one role at a time; the session is a value that outlives it.
"""

import math

import msgspec

from node.core.replica.effects import BecameMaster, LostMastership, SessionBegan
from node.core.replica.following import Following
from node.core.replica.ledger import TERM_MAX
from node.core.replica.messages import (
    Append,
    AppendAck,
    AppendNack,
    Campaign,
    DirectMessage,
    Heartbeat,
    Proposal,
    Relayed,
    Role,
    SnapshotAck,
    SnapshotChunk,
    Submit,
    Yield,
)
from node.core.replica.parts import Parts
from node.core.replica.reign import Reign
from node.core.replica.resubmission import Resubmission, batches
from node.model.event import Event, SessionOpened
from node.model.ids import NodeId, short
from node.model.session import EventId, Session

_NOBODY = NodeId("")
_encoder = msgspec.msgpack.Encoder()


class Roles:
    """Elections, and the way from role to role."""

    def __init__(self, now: float, parts: Parts, incarnation: int, priority: int) -> None:
        self.priority = priority
        self.wall_offset_seconds = 0.0
        self.reign: Reign | None = None
        self.following: Following | None = None
        self.sessions = 0
        """How many this node took part in."""
        self._parts = parts
        self._node = parts.node
        self._incarnation = incarnation
        self._timing = parts.timing
        self._ledger = parts.ledger
        self._contacts = parts.contacts
        self._effects = parts.effects
        self._resubmission = Resubmission(
            parts.ledger, parts.timing, parts.limits.proposals_per_submit
        )
        self._look_since = now
        self._look_reason = "started"
        self._patient_until = now + parts.timing.startup_seconds
        self._retired_until = -math.inf
        self._beat_at = -math.inf
        self._campaign_at = -math.inf
        self._control_sequence = 0
        self._asked = 0

    @property
    def role(self) -> Role:
        """LOOKING, FOLLOWING or MASTERING."""
        if self.reign is not None:
            return Role.MASTERING
        return Role.LOOKING if self.following is None else Role.FOLLOWING

    @property
    def asked(self) -> int:
        """How often this node asked a master for what it lacked."""
        return self._asked + (0 if self.following is None else self.following.asked)

    def propose(self, proposals: tuple[Proposal, ...]) -> None:
        """Order proposals, or send them to the master; without one they are dropped."""
        if self.reign is not None:
            for proposal in proposals:
                self.reign.offer(proposal)
        elif self.following is not None:
            for batch in batches(proposals, self._parts.limits):
                self._contacts.send(self.following.master, Submit(self._ledger.cluster, batch))

    def step_down(self, now: float) -> None:
        """Hand over where mastering; stand for no election for a while."""
        self._retired_until = now + self._timing.retired_seconds
        if self.reign is not None:
            self.reign.begin_yield(now)
            self._hand_over(now, self.reign)

    # -- time ------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """What is due by now."""
        if now - self._beat_at >= self._timing.heartbeat_seconds:
            self.beat(now)
        if self.reign is not None:
            self._tick_mastering(now, self.reign)
        elif self.following is not None:
            self._tick_following(now, self.following)
        else:
            self._tick_looking(now)
        if self._ledger.orphans and (self.reign is not None or self.following is not None):
            self.propose(self._resubmission.due(now))

    def wake(self, now: float, slept_seconds: float) -> None:
        """The machine slept: others may have a master by now, so meet them first."""
        self._patient_until = now + self._timing.startup_seconds
        for contact in self._contacts.peers.values():
            contact.refused = False
        if self._contacts.peers:
            self.look(now, f"woke after {slept_seconds:.0f} s")

    def _tick_mastering(self, now: float, reign: Reign) -> None:
        reign.tick(now)
        self._append_view(now, reign)
        self._hand_over(now, reign)

    def _tick_following(self, now: float, following: Following) -> None:
        if self._contacts.is_master_alive(now, following.master, following.heard_at):
            following.tick(now)
        else:
            self._contacts.give_up(now, following.master)
            self.look(now, f"master {short(following.master)} lost")

    def _tick_looking(self, now: float) -> None:
        stands = now >= self._retired_until and self._ledger.log.last_index >= 0
        if stands and now - self._campaign_at >= self._timing.campaign_seconds:
            self._campaign_at = now
            for peer in self._contacts.peers:
                self._contacts.send_directly(peer, self._campaign())
        if self._contacts.voucher(now) is not None:
            # Pre-vote: somebody hears a master, so there is no vacancy.
            self._look_since = now
            return
        if not stands or (now < self._patient_until and not self._contacts.all_tried(now)):
            return
        waited = now - self._look_since >= self._timing.elect_seconds
        if (waited or not self._contacts.peers) and self._wins(now):
            self.lead(now, self._look_reason)

    def _wins(self, now: float) -> bool:
        """Whether no live peer that campaigns has a better claim."""
        claim = (self._ledger.log.last, self.priority, self._node)
        fresh = 3 * self._timing.campaign_seconds
        for peer in self._contacts.alive(now):
            contact = self._contacts.peers[peer]
            campaign = contact.campaign if now - contact.campaign_at < fresh else None
            if campaign is not None and (campaign.last, campaign.priority, peer) > claim:
                return False
        return True

    # -- roles -----------------------------------------------------------------------------

    def leave_role(self, reason: str) -> None:
        """End the reign or the following, if there is one."""
        if self.following is not None:
            self._asked += self.following.asked
        if self.reign is not None:
            self._effects.append(LostMastership(reason))
        self.reign = None
        self.following = None

    def look(self, now: float, reason: str) -> None:
        """Be without a master."""
        self.leave_role(reason)
        self._look_since = now
        self._look_reason = reason

    def _follow(self, now: float, session: Session) -> Following:
        reason = f"following {short(session.master)}"
        self.leave_role(reason)
        if session != self._ledger.session:
            self._ledger.keep_session(session)
        following = self.following = Following(now, self._parts, session)
        self._begin_session(now, reason)
        return following

    def lead(self, now: float, reason: str, founding: bytes | None = None) -> None:
        """Begin a session of its own: later than any it has heard of."""
        self.leave_role(reason)
        ledger = self._ledger
        session = Session(ledger.term_highest + 1, self._node, self._incarnation)
        ledger.keep_session(session)
        reign = self.reign = Reign(now, self._parts)
        if founding is not None:
            self._append_control_payload(now, reign, founding)
        self._append_control(now, reign, SessionOpened(session=session, reason=reason))
        self._append_view(now, reign)
        self._effects.append(BecameMaster(session, reign.open(now)))
        self._begin_session(now, reason)
        self.beat(now)

    def _begin_session(self, now: float, reason: str) -> None:
        self.sessions += 1
        self._resubmission.hurry(now)
        self._effects.append(SessionBegan(self._ledger.session, reason))

    def _hand_over(self, now: float, reign: Reign) -> None:
        successor = reign.successor(now)
        if successor is None:
            return
        for peer in successor:
            reign.send_yield(now, peer)
        self.look(now, f"handed over by {short(self._node)}")

    def _append_view(self, now: float, reign: Reign) -> None:
        view = reign.view_to_record(now)
        if view is not None:
            self._append_control(now, reign, view)

    def _append_control(self, now: float, reign: Reign, event: Event) -> None:
        self._append_control_payload(now, reign, _encoder.encode(event))

    def _append_control_payload(self, now: float, reign: Reign, payload: bytes) -> None:
        self._control_sequence -= 1
        event_id = EventId(self._node, self._incarnation, self._control_sequence)
        reign.append_control(event_id, payload, now + self.wall_offset_seconds)

    # -- messages --------------------------------------------------------------------------

    def take(self, now: float, peer: NodeId, message: DirectMessage) -> None:
        """Act on a message from a peer."""
        match message:
            case Heartbeat():
                self._take_heartbeat(now, peer, message)
            case Append():
                self._take_append(now, peer, message)
            case Submit():
                self._take_submit(peer, message)
            case Campaign():
                contact = self._contacts.peers[peer]
                contact.campaign = message
                contact.campaign_at = now
                self._ledger.hear_term(message.term_highest)
            case Yield():
                self._take_yield(now, peer, message)
            case AppendNack():
                self._take_nack(now, peer, message)
            case _:
                self._take_transfer(now, peer, message)

    def _take_transfer(
        self, now: float, peer: NodeId, message: AppendAck | SnapshotChunk | SnapshotAck
    ) -> None:
        if message.session != self._ledger.session:
            return
        if isinstance(message, SnapshotChunk):
            if self.following is not None and self.following.master == peer:
                self.following.take_chunk(now, message)
        elif self.reign is not None:
            if isinstance(message, AppendAck):
                self.reign.acknowledged(now, peer, message)
                self._hand_over(now, self.reign)
            else:
                self.reign.snapshot_acknowledged(now, peer, message)

    def take_relayed(self, now: float, peer: NodeId, message: Relayed) -> None:
        """Take what came by way of `peer`, or pass on what it wants passed on."""
        self._contacts.hear(now, peer, None)
        if message.target == self._node:
            is_sound = message.message.cluster == self._ledger.cluster and message.origin != peer
            if is_sound and message.origin in self._contacts.peers:
                self._contacts.hear(now, message.origin, peer)
                self.take(now, message.origin, message.message)
        elif message.origin == peer and self._contacts.is_direct(message.target):
            self._contacts.send_on(message)

    def _take_heartbeat(self, now: float, peer: NodeId, message: Heartbeat) -> None:
        session = message.session
        if session.term >= TERM_MAX or (message.master == peer and session.master != peer):
            return
        contact = self._contacts.peers[peer]
        contact.beat = message
        contact.beat_at = now
        self._ledger.hear_term(max(message.term_highest, session.term))
        following = self.following
        if message.master == peer:
            self._take_master_heartbeat(now, peer, message)
        elif following is not None and following.master == peer:
            own = self._ledger.session
            if message.incarnation > own.incarnation or session >= own:
                self.look(now, f"master {short(peer)} gave up")
        elif following is not None and self._is_relayed_no_more(following, peer, message):
            self._contacts.lose_relayed(following.master)
            self.look(now, f"{short(peer)} relays to its master no more")

    def _is_relayed_no_more(self, following: Following, peer: NodeId, message: Heartbeat) -> bool:
        """Whether the master is heard by way of a peer, and that one hears it no more."""
        relay = self._contacts.relay_of(following.master)
        return relay == peer and message.master != following.master

    def _take_master_heartbeat(self, now: float, peer: NodeId, message: Heartbeat) -> None:
        session = message.session
        own = self._ledger.session
        following = self.following
        if self.reign is not None:
            self._meet(now, peer, session)
        elif session < own:
            self._refuse_session(now, peer, session)
        elif following is not None and session == own:
            following.heard_at = now
            following.hear_commit(now, message.commit)
        else:
            self._follow(now, session).hello()

    def _take_append(self, now: float, peer: NodeId, message: Append) -> None:
        session = message.session
        if session.master != peer or session.term >= TERM_MAX:
            return
        if session < self._ledger.session:
            self._refuse_session(now, peer, session)
            return
        if self.reign is not None:
            self._meet(now, peer, session)
        elif self.following is None or session != self._ledger.session:
            self._follow(now, session)
        if self.following is not None:
            self.following.append(now, message)

    def _refuse_session(self, now: float, peer: NodeId, session: Session) -> None:
        own = self._ledger.session
        message = AppendNack(self._ledger.cluster, session, own, 0, master=self._vouched(now))
        self._contacts.send(peer, message)

    def _take_nack(self, now: float, peer: NodeId, message: AppendNack) -> None:
        own = self._ledger.session
        if self.reign is None or message.session_own.term >= TERM_MAX:
            return
        self._ledger.hear_term(message.session_own.term)
        if message.session == own == message.session_own:
            self.reign.refused(now, peer, message)
        elif message.session_own > own:
            self._hear_of_later_session(now, peer, message)

    def _take_submit(self, peer: NodeId, message: Submit) -> None:
        if self.reign is None:
            return
        for proposal in message.proposals:
            if proposal.resubmitted or proposal.id.origin == peer:
                self.reign.offer(proposal)

    def _take_yield(self, now: float, peer: NodeId, message: Yield) -> None:
        following = self.following
        is_master = following is not None and following.master == peer
        if not is_master or message.session != self._ledger.session:
            return
        reason = f"handed over by {short(peer)}"
        self.look(now, reason)
        if message.successor == self._node and self._ledger.log.last >= message.last:
            self.lead(now, reason)

    def _hear_of_later_session(self, now: float, peer: NodeId, message: AppendNack) -> None:
        """A peer refuses this master because it was, or is, in a later session."""
        master = message.session_own.master
        if message.master != master or master == self._node:
            self.lead(now, "a later session was heard of")
        elif self._contacts.is_alive(now, master):
            self._meet(now, master, message.session_own)
        else:
            # Out of reach: to claim again would have both of them claim for ever.
            self.look(now, f"{short(peer)} follows {short(master)}")

    def _meet(self, now: float, other: NodeId, session: Session) -> None:
        """Another master is met: the one with the larger view goes on, in a later session."""
        beat = self._contacts.fresh_beat(now, self._contacts.peers[other])
        if beat is None or beat.role != Role.MASTERING or session < self._ledger.session:
            return
        mine = (self._contacts.view_size(now), self.priority, self._node)
        theirs = (beat.view_size, beat.priority, other)
        if mine > theirs:
            self.lead(now, f"met master {short(other)}")
        else:
            self._follow(now, session).hello()

    # -- sending ---------------------------------------------------------------------------

    def _vouched(self, now: float) -> NodeId:
        """The master that this node hears, itself where it masters."""
        if self.reign is not None:
            return self._node
        following = self.following
        if following is None or not self._contacts.is_reached(following.master):
            return _NOBODY
        heard = self._contacts.is_master_alive(now, following.master, following.heard_at)
        return following.master if heard else _NOBODY

    def heartbeat(self, now: float) -> Heartbeat:
        """Where this node stands."""
        ledger = self._ledger
        master = self._vouched(now)
        return Heartbeat(
            ledger.cluster,
            self._incarnation,
            self.role,
            ledger.session,
            master,
            ledger.log.last,
            ledger.commit_index,
            0 if self.reign is None else self._contacts.view_size(now),
            self.priority,
            ledger.term_highest,
            relayed=self._contacts.relay_of(master) is not None,
        )

    def _campaign(self) -> Campaign:
        ledger = self._ledger
        return Campaign(ledger.cluster, ledger.log.last, self.priority, ledger.term_highest)

    def beat(self, now: float) -> None:
        """Send a heartbeat to every peer, and by way of a third node where that is the way."""
        self._beat_at = now
        message = self.heartbeat(now)
        for peer, contact in self._contacts.peers.items():
            self._contacts.send_directly(peer, message)
            if contact.via is not None:
                self._contacts.send(peer, message)
        if self.reign is None and self.following is None:
            self._beat_by_voucher(now, message)

    def _beat_by_voucher(self, now: float, message: Heartbeat) -> None:
        """While looking: where a peer hears a master that this node does not, ask it to relay."""
        vouched = self._contacts.voucher(now, can_relay=True)
        if vouched is not None:
            voucher, master = vouched
            if voucher != master and master in self._contacts.peers:
                self._contacts.send_by(voucher, master, message)
