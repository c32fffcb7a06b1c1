"""Rules of the replica taken out one at a time, to see that the checker notices."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import msgspec

from node.core.event_order import Duplicate, EventOrder, Gap, Released
from node.core.replica import roles
from node.core.replica.contacts import Contacts
from node.core.replica.following import Following
from node.core.replica.ledger import HeldMessage, Ledger
from node.core.replica.messages import Append, Proposal
from node.core.replica.reign import Reign
from node.core.replica.roles import Roles
from node.model.ids import NodeId
from node.model.session import NO_SESSION, Entry, Position, Session

# pyright: reportPrivateUsage=false


def _offer_again(self: Reign, proposal: Proposal) -> None:
    self._append_proposal(proposal, proposal.payload)


def _keep_no_orphans(self: Ledger, entries: object) -> None:
    pass


_append = Following.append


def _append_unmatched(self: Following, now: float, message: Append) -> None:
    index = message.previous.index
    session = self._ledger.log.session_at(index) or NO_SESSION
    _append(self, now, msgspec.structs.replace(message, previous=Position(session, index)))


_advance = Reign._advance


def _advance_alone(self: Reign, now: float) -> None:
    self._in_sync.clear()
    _advance(self, now)


def _no_voucher(self: Contacts, now: float, *, can_relay: bool = False) -> None:
    return None


def _session_without_incarnation(term: int, master: NodeId, incarnation: int) -> Session:
    return Session(term, master, 0)


def _hold_nothing(self: Ledger, peer: NodeId, message: Any) -> None:
    self._held.append(HeldMessage(0, peer, message))


_hear_commit = Following.hear_commit


def _commit_what_is_verified(self: Following, now: float, commit: int) -> None:
    _hear_commit(self, now, max(commit, self._verified))


def _offer_in_any_order(self: Reign, proposal: Proposal) -> None:
    if proposal.id in self._ledger.known:
        return
    if proposal.resubmitted:
        self._ask(proposal)
    else:
        self._append_proposal(proposal, proposal.payload)


_receive = EventOrder.receive


def _acknowledge_what_was_offered(
    self: EventOrder, now: float, entries: tuple[Entry, ...]
) -> Released | Duplicate | Gap:
    outcome = _receive(self, now, entries)
    if not isinstance(outcome, Released):
        return outcome
    offered = self._settle(now, [proposal.id for proposal, _ in self._outbox.values()])
    return Released(outcome.entries, (*outcome.acknowledged, *offered))


def _win_by_name(self: Roles, now: float) -> bool:
    return all(peer < self._node for peer in self._contacts.alive(now))


_RULES: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "dedup": (Reign, "offer", _offer_again),
    "resubmit": (Ledger, "_orphan", _keep_no_orphans),
    "log_matching": (Following, "append", _append_unmatched),
    "in_sync_commit": (Reign, "_advance", _advance_alone),
    "pre_vote": (Contacts, "voucher", _no_voucher),
    "session_incarnation": (roles, "Session", _session_without_incarnation),
    "acknowledge_after_sync": (Ledger, "hold", _hold_nothing),
    "deliver_after_commit": (Following, "hear_commit", _commit_what_is_verified),
    "acknowledge_on_delivery": (EventOrder, "receive", _acknowledge_what_was_offered),
    "complete_log": (Roles, "_wins", _win_by_name),
    "writer_order": (Reign, "offer", _offer_in_any_order),
}

RULES = tuple(_RULES)


@contextmanager
def removed(rule: str) -> Generator[None]:
    """Have the replica work without a rule; with all of them where `rule` is empty."""
    if not rule:
        yield
        return
    owner, name, broken = _RULES[rule]
    whole = getattr(owner, name)
    setattr(owner, name, broken)
    try:
        yield
    finally:
        setattr(owner, name, whole)
