"""The master's desk: decides commands while this node masters, and looks after the cluster.

It decides on the tip state: everything that is in the log, committed or not, so that two decisions
in a row never count the same memory twice. Answers go out after commit.
"""

from collections.abc import Callable
from logging import INFO, WARNING
from typing import Protocol

import anyio
import msgspec

from node.core.apply import apply, read_event
from node.core.decide import Answered, Decided, as_event, decide
from node.core.facts import Facts
from node.core.follow_up import Memo, follow_up
from node.core.placement.plan import plan
from node.core.placement.wish import find_card
from node.core.refusal import Refusal
from node.core.replacement import replacement
from node.core.replica.messages import Proposal
from node.core.revalidate import Drop, Keep, Reject, revalidate
from node.core.telling import in_words
from node.io import clock
from node.io.wakeup import Wakeup
from node.log import logger
from node.model.command import Answer, CommandRequest, Refused, StepDown
from node.model.errors import ExoctlError
from node.model.event import (
    CommandDecided,
    DecisionWithdrawn,
    Event,
    NodeLost,
    NodeReturned,
    ProposalDropped,
    ProposalRejected,
)
from node.model.ids import CommandId, NodeId
from node.model.session import Entry, EventId, Session
from node.model.state import State
from node.model.topology import Plan
from node.wire.message import CommandAnswered, CommandSent, PlanAnswered, PlanAsked
from node.wire.surface import kind_of

TICK_SECONDS = 0.5
DECISIONS_MAX = 256
"""Decisions that wait for their commit; further commands wait at their askers."""
LOST_SECONDS = 1.0
"""How long a node that counts as dead may come back before it is written down as lost."""
LEFT_SECONDS = 3.0
"""How long a node that said goodbye may still be heard without being back."""
GRACE_SECONDS = 0.5
"""How long a new master waits for links before it writes anybody down."""

_log = logger("master")


class Router(Protocol):
    """What the desk needs of the event router."""

    def publish(
        self, event: Event, on_settled: Callable[[Entry | None], None] | None = None
    ) -> EventId:
        """Write an event."""
        ...

    def withdraw(self, event_id: EventId, event: Event) -> None:
        """Replace an event that is not ordered yet."""
        ...

    def is_alive(self, peer: NodeId) -> bool:
        """Whether a peer was heard lately."""
        ...

    async def step_down(self) -> None:
        """Hand mastership over."""
        ...


class _Office(msgspec.Struct):
    """One time in office; thrown away at its end."""

    session: Session
    tip: State
    since: float
    memo: Memo
    suspected: dict[NodeId, float]
    decisions: dict[CommandId, EventId]
    inherited: dict[CommandId, NodeId]
    """Who asks for commands that an earlier master decided and that are not committed yet."""
    has_looked: bool = False
    """Nodes that are dead at the first look were so before this office began."""
    steps_down: bool = False


class Master:
    """Made once; in office while this node masters."""

    def __init__(
        self,
        node: NodeId,
        router: Router,
        facts: Callable[[], Facts],
        reply: Callable[[NodeId, CommandAnswered | PlanAnswered], None],
        committed: Callable[[], State],
    ) -> None:
        self._node = node
        self._router = router
        self._facts = facts
        self._reply = reply
        self._committed = committed
        self._office: _Office | None = None
        self._left: dict[NodeId, float] = {}
        self._wakeup = Wakeup()

    def node_left(self, node: NodeId) -> None:
        """A node says that it stops; whoever is in office then writes it down so."""
        self._left[node] = clock.monotonic()
        self._wakeup.ring()

    # -- told by the router ----------------------------------------------------------------------

    def became_master(self, session: Session, tip: State) -> None:
        """Take office."""
        self._office = _Office(session, tip, clock.monotonic(), Memo(), {}, {}, {})
        self._wakeup.ring()

    def tip_appended(self, entries: tuple[Entry, ...]) -> None:
        """Entries were appended to the log."""
        office = self._office
        if office is None:
            return
        for entry in entries:
            office.tip = apply(office.tip, entry)
        self._wakeup.ring()

    def lost_mastership(self, reason: str) -> None:
        """Leave office: what was decided and not ordered is withdrawn, its askers ask again."""
        office, self._office = self._office, None
        if office is None:
            return
        for command, event_id in office.decisions.items():
            self._router.withdraw(event_id, DecisionWithdrawn(command=command))
        if office.decisions:
            _log.info("%d decisions withdrawn: %s", len(office.decisions), reason)

    def revalidate(self, proposal: Proposal) -> ProposalRejected | ProposalDropped | None:
        """Judge an event that a partition withdrew, in the light of what is so now.

        People hear of what was decided and can't be so; not of what the other half decided too.
        """
        office = self._office
        event = read_event(proposal.payload)
        if office is None or event is None:
            return None
        verdict = revalidate(office.tip, event, self._facts())
        match verdict:
            case Keep():
                return None
            case Drop():
                return ProposalDropped(id=proposal.id)
            case Reject(failure=failure):
                pass
        command = event.command if isinstance(event, CommandDecided) else None
        asked_by = event.asked_by if isinstance(event, CommandDecided) else proposal.id.origin
        _log.warning("withdrawn event rejected: %s", failure.message)
        return ProposalRejected(id=proposal.id, asked_by=asked_by, failure=failure, command=command)

    # -- told by askers --------------------------------------------------------------------------

    def asked(self, asker: NodeId, message: CommandSent | PlanAsked) -> None:
        """Decide a command or a plan; while not in office the asker is left to find who is."""
        office = self._office
        if office is None or message.cluster != office.tip.cluster:
            return
        if isinstance(message, PlanAsked):
            answer = PlanAnswered(id=message.id, plan=self._plan(office.tip, message))
            self._reply(asker, answer)
            return
        request = msgspec.structs.replace(message.request, asked_by=asker)
        if request.id not in office.decisions and len(office.decisions) < DECISIONS_MAX:
            self._decide(office, request)

    def _plan(self, state: State, asked: PlanAsked) -> Plan:
        facts = self._facts()
        card = find_card(facts, asked.model)
        if isinstance(card, Refusal):
            return Plan(model=asked.model, candidates=(), refusal=card.failure)
        return plan(state, card, asked.wish, facts)

    def _decide(self, office: _Office, request: CommandRequest) -> None:
        decision = decide(office.tip, request, self._facts(), clock.random_hex)
        match decision:
            case Answered(answer=answer) if self._committed().answer_to(request.id) is not None:
                self._answer(request.asked_by, answer)
            case Answered():
                if len(office.inherited) < DECISIONS_MAX:
                    office.inherited[request.id] = request.asked_by
            case Decided():
                self._publish_decision(office, request, as_event(request, decision))
            case Refusal(kind=kind, failure=failure):
                _log.info("refused %s: %s", type(request.command).__name__, failure.message)
                self._answer(request.asked_by, Refused(id=request.id, kind=kind, failure=failure))

    def _publish_decision(
        self, office: _Office, request: CommandRequest, event: CommandDecided
    ) -> None:
        def settled(_: Entry | None) -> None:
            office.decisions.pop(request.id, None)
            if isinstance(request.command, StepDown):
                office.steps_down = True
                self._wakeup.ring()
            answer = office.tip.answer_to(request.id)
            if answer is not None:
                self._answer(request.asked_by, answer)

        try:
            event_id = self._router.publish(event, settled)
        except ExoctlError as error:
            refused = Refused(id=request.id, kind=kind_of(error), failure=error.failure)
            self._answer(request.asked_by, refused)
            return
        if office.tip.answer_to(request.id) is None:
            _log.warning("decision %s waits for its place in the log", request.id)
        office.decisions[request.id] = event_id
        _log.info("decided %s: %s", type(request.command).__name__, event.subject or request.id)

    def _answer(self, asker: NodeId, answer: Answer) -> None:
        self._reply(asker, CommandAnswered(answer=answer))

    # -- on its own ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look after the cluster while in office, until cancelled."""
        while True:
            await self._wakeup.wait(TICK_SECONDS)
            self._forget_goodbyes()
            office = self._office
            if office is None:
                continue
            self._answer_inherited(office)
            if office.steps_down:
                office.steps_down = False
                _log.info("handing mastership over, as asked")
                await self._router.step_down()
                continue
            try:
                self._watch_nodes(office)
                self._follow_up(office)
            except ExoctlError as error:
                _log.warning("%s", error.failure.message)
                await anyio.sleep(TICK_SECONDS)

    def _answer_inherited(self, office: _Office) -> None:
        state = self._committed()
        for command in list(office.inherited):
            answer = state.answer_to(command)
            if answer is not None:
                self._answer(office.inherited.pop(command), answer)

    def _forget_goodbyes(self) -> None:
        """A node that is heard again has come back: what ends it next is no goodbye.

        In office or not: whoever takes office later must not go by what was said long ago.
        """
        now = clock.monotonic()
        for node, said_at in list(self._left.items()):
            if now - said_at > LEFT_SECONDS and self._router.is_alive(node):
                del self._left[node]

    def _watch_nodes(self, office: _Office) -> None:
        now = clock.monotonic()
        if now - office.since < GRACE_SECONDS:
            return
        for node, record in office.tip.nodes.items():
            if node == self._node or self._router.is_alive(node):
                office.suspected.pop(node, None)
                if record.lost and node not in self._left:
                    self._router.publish(NodeReturned(node=node))
                    _log.info("node %s is back", record.name)
                continue
            since = office.suspected.setdefault(node, now if office.has_looked else office.since)
            stopped = node in self._left
            if record.lost or (now - since < LOST_SECONDS and not stopped):
                continue
            reason = "it was stopped" if stopped else "no answer on any link"
            lost = NodeLost(node=node, reason=reason, at=clock.wall(), stopped=stopped)
            self._router.publish(lost)
            _log.log(INFO if stopped else WARNING, "node %s is lost: %s", record.name, reason)
        office.has_looked = True

    def _follow_up(self, office: _Office) -> None:
        outcome = follow_up(office.tip, clock.monotonic(), office.memo)
        office.memo = outcome.memo
        for event in outcome.events:
            _log.info("%s", in_words(office.tip, event))
            self._router.publish(event)
        for key in outcome.stranded:
            event = replacement(
                office.tip, office.tip.instances[key], self._facts(), clock.random_hex
            )
            if event is not None:
                _log.warning("%s", in_words(office.tip, event))
                self._router.publish(event)
