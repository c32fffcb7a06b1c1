"""Whom to dial, where and when: pure bookkeeping of peers, candidate addresses and waits."""

from collections.abc import Mapping

import msgspec

from node.core.backoff import Backoff
from node.model.errors import Failure
from node.model.ids import NodeId
from node.model.machine import Address
from node.model.register import LinkRecord

SOURCE_DISCOVERY = "mdns"
SOURCE_OPTION = "option"
SOURCE_BOOK = "book"
SOURCE_EXCHANGE = "exchange"
_ASKED_SOURCES = frozenset({SOURCE_OPTION, "peer", "--peer"})
"""A person named the address: it is never given up and never waits long."""


class PeerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Waits and bounds of dialling."""

    member: Backoff = Backoff(0.1, 2.0)
    """Between dials of an admitted node, and of an address that a person named."""
    stranger: Backoff = Backoff(0.5, 30.0)
    """Between dials of an address that may hold anybody."""
    higher_waits_seconds: float = 3.0
    """The lower id dials; the higher waits this long before it dials too."""
    higher_waits_seconds_at_start: float = 0.1
    """A node that has just started is not yet expected by anybody."""
    higher_waits_seconds_after_loss: float = 0.1
    candidates_max: int = 256
    """Beyond it, the candidate that failed most and was seen longest ago goes."""
    addresses_per_source_max: int = 8
    dials_max: int = 32
    """Dials at a time; more wait."""
    stranger_dials_per_second: float = 20.0
    stranger_dials_burst: float = 32.0
    heard_max: int = 64
    heard_seconds: float = 90.0
    """A stranger that was not met again for this long is no longer shown."""


class Dial(msgspec.Struct, frozen=True):
    """An attempt to make: try the addresses until one answers as the peer."""

    peer: NodeId | None
    """None: whoever answers."""
    addresses: tuple[Address, ...]


class _Peer(msgspec.Struct):
    due_at: float
    logged: tuple[Address, ...]
    """As the cluster's log has them."""
    proved: dict[Address, None] = {}
    """Where it has answered, the latest last."""
    hinted: dict[Address, None] = {}
    """Where somebody says it is, the latest last."""
    failures: int = 0
    is_linked: bool = False
    is_dialled: bool = False

    def addresses(self) -> tuple[Address, ...]:
        """Every address, likeliest first."""
        ordered = [*reversed(self.proved), *self.logged, *reversed(self.hinted)]
        return tuple(dict.fromkeys(ordered))


class _Candidate(msgspec.Struct):
    node: NodeId | None
    """Who is said to be there, or who was found there."""
    is_asked: bool
    due_at: float
    seen_at: float
    failures: int = 0
    is_dialled: bool = False


class PeerTable:
    """Decides on dials. Takes the time, gives `Dial`s, is told how each went."""

    def __init__(self, own: NodeId, policy: PeerPolicy | None = None) -> None:
        self._own = own
        self._policy = policy or PeerPolicy()
        self._peers: dict[NodeId, _Peer] = {}
        self._candidates: dict[Address, _Candidate] = {}
        self._own_addresses: dict[Address, bool] = {}
        """Where this very process answered; whether a person named it."""
        self._is_started = False
        self._allowance = self._policy.stranger_dials_burst
        self._allowance_at = 0.0

    @property
    def candidate_count(self) -> int:
        """Addresses held that belong to no admitted node."""
        return len(self._candidates)

    def is_admitted(self, node: NodeId) -> bool:
        """Whether links with the node are wanted."""
        return node in self._peers

    def peers(self) -> tuple[NodeId, ...]:
        """Every node that links are wanted with, in the order of ids."""
        return tuple(sorted(self._peers))

    def is_asked(self, address: Address) -> bool:
        """Whether a person named the address."""
        candidate = self._candidates.get(address)
        return candidate is not None and candidate.is_asked

    def addresses(self, node: NodeId) -> tuple[Address, ...]:
        """Where an admitted node may be, likeliest first."""
        peer = self._peers.get(node)
        return peer.addresses() if peer else ()

    def proved_address(self, node: NodeId) -> Address | None:
        """Where an admitted node last answered."""
        peer = self._peers.get(node)
        return next(reversed(peer.proved), None) if peer else None

    def set_admitted(self, nodes: Mapping[NodeId, tuple[Address, ...]], now: float) -> None:
        """Want links with exactly these nodes."""
        for gone in [node for node in self._peers if node not in nodes]:
            del self._peers[gone]
        policy = self._policy
        waits = (
            policy.higher_waits_seconds
            if self._is_started
            else (policy.higher_waits_seconds_at_start)
        )
        for node, addresses in nodes.items():
            logged = tuple(filter(_is_usable, addresses))[: policy.addresses_per_source_max]
            peer = self._peers.get(node)
            if node == self._own:
                continue
            if peer is None:
                due_at = now if self._own < node else now + waits
                self._peers[node] = peer = _Peer(due_at=due_at, logged=logged)
                self._adopt_candidates(node, peer)
            peer.logged = logged
        self._is_started = self._is_started or bool(self._peers)

    def add_candidate(self, node: NodeId | None, address: Address, source: str, now: float) -> None:
        """Somebody says that a node is there; nothing of it is believed before it is proved."""
        if address in self._own_addresses or not _is_usable(address):
            return
        if node == self._own:
            node = None  # itself most likely; if not, a copy of this node that must be told of
        peer = self._peers.get(node) if node else None
        if peer is not None and source not in _ASKED_SOURCES:
            self._hint(peer, address, now)
            return
        candidate = self._candidates.get(address)
        is_asked = source in _ASKED_SOURCES
        if candidate is None:
            if not self._make_room(is_asked=is_asked):
                return
            self._candidates[address] = _Candidate(node, is_asked, now, now)
            return
        candidate.seen_at = now
        candidate.is_asked = candidate.is_asked or is_asked
        if node is not None and candidate.node is None:
            candidate.node = node

    def due(self, now: float) -> tuple[Dial, ...]:
        """The dials to start now; each is under way until `linked`, `failed` or `is_self`."""
        room = self._policy.dials_max - self._dials_under_way()
        dials: list[Dial] = []
        for node, peer in self._peers.items():
            if len(dials) >= room:
                break
            if peer.is_linked or peer.is_dialled or peer.due_at > now:
                continue
            addresses = peer.addresses()
            if addresses:
                peer.is_dialled = True
                dials.append(Dial(node, addresses))
        self._refill(now)
        for address, candidate in self._candidates.items():
            if len(dials) >= room or self._allowance < 1.0:
                break
            if self._is_dialable(candidate) and candidate.due_at <= now:
                candidate.is_dialled = True
                self._allowance -= 1.0
                dials.append(Dial(None, (address,)))
        return tuple(dials)

    def next_due(self, now: float, idle_seconds: float) -> float:
        """Seconds until `due` may give something, at most `idle_seconds`."""
        if self._dials_under_way() >= self._policy.dials_max:
            return idle_seconds
        members = (
            peer.due_at
            for peer in self._peers.values()
            if not peer.is_linked and not peer.is_dialled and peer.addresses()
        )
        strangers = (one.due_at for one in self._candidates.values() if self._is_dialable(one))
        first_stranger = min(strangers, default=now + idle_seconds)
        self._refill(now)
        if self._allowance < 1.0:
            wait = (1.0 - self._allowance) / self._policy.stranger_dials_per_second
            first_stranger = max(first_stranger, now + wait)
        first = min(*members, first_stranger, now + idle_seconds)
        return max(0.0, first - now)

    def failed(self, dial: Dial, now: float) -> None:
        """Nobody answered, or whoever did wants no link."""
        policy = self._policy
        if dial.peer is not None:
            peer = self._peers.get(dial.peer)
            if peer is not None:
                peer.is_dialled = False
                peer.failures += 1
                peer.due_at = now + policy.member.delay_seconds(peer.failures)
            return
        candidate = self._candidates.get(dial.addresses[0])
        if candidate is not None:
            backoff = policy.member if candidate.is_asked else policy.stranger
            candidate.is_dialled = False
            candidate.failures += 1
            candidate.due_at = now + backoff.delay_seconds(candidate.failures)

    def found(self, dial: Dial, address: Address, node: NodeId) -> None:
        """Who proved itself at an address, whatever comes of it."""
        candidate = self._candidates.get(dial.addresses[0] if dial.peer is None else address)
        if candidate is not None:
            candidate.node = node
        if dial.peer is not None and dial.peer != node:
            wrong = self._peers.get(dial.peer)
            if wrong is not None:
                wrong.proved.pop(address, None)
                wrong.hinted.pop(address, None)
        peer = self._peers.get(node)
        if peer is not None:
            self._prove(peer, address)

    def is_self(self, dial: Dial, address: Address) -> None:
        """This very process answered there: don't dial it again on this network."""
        own = (address,) if dial.peer is not None else (dial.addresses[0], address)
        for each in dict.fromkeys(own):
            candidate = self._candidates.pop(each, None)
            was_asked = self._own_addresses.pop(each, False)
            self._own_addresses[each] = was_asked or (candidate is not None and candidate.is_asked)
        while len(self._own_addresses) > self._policy.candidates_max:
            self._own_addresses.pop(next(iter(self._own_addresses)))
        for peer in self._peers.values():
            peer.hinted.pop(address, None)
        if dial.peer is not None:
            self._release(dial)

    def linked(self, node: NodeId, address: Address | None, dial: Dial | None = None) -> None:
        """A link with the node stands; the address is where it listens, where that is known."""
        if dial is not None:
            self._release(dial)
        peer = self._peers.get(node)
        if peer is None:
            return
        peer.is_linked, peer.failures = True, 0
        if address is not None:
            self._prove(peer, address)

    def released(self, dial: Dial, now: float) -> None:
        """The dial ended without a failure of the other side: another link came first."""
        self._release(dial)
        due_at = now + self._policy.member.first_seconds
        peer = self._peers.get(dial.peer) if dial.peer is not None else None
        if peer is not None:
            peer.due_at = max(peer.due_at, due_at)
        candidate = self._candidates.get(dial.addresses[0])
        if dial.peer is None and candidate is not None:
            candidate.due_at = max(candidate.due_at, due_at)

    def lost(self, node: NodeId, now: float) -> None:
        """The link with the node is gone: dial at once."""
        peer = self._peers.get(node)
        if peer is None:
            return
        waits = 0.0 if self._own < node else self._policy.higher_waits_seconds_after_loss
        peer.is_linked, peer.failures, peer.due_at = False, 0, now + waits

    def network_changed(self, now: float) -> None:
        """Forget every wait, and what was this node's own: another may have the address now."""
        own, self._own_addresses = self._own_addresses, {}
        for address, is_asked in own.items():
            if is_asked:
                self.add_candidate(None, address, SOURCE_OPTION, now)
        self.retry_all(now)

    def retry_all(self, now: float) -> None:
        """Forget every wait: the cluster or the members have changed."""
        for peer in self._peers.values():
            peer.failures, peer.due_at = 0, min(peer.due_at, now)
        self.retry_strangers(now)

    def retry_strangers(self, now: float) -> None:
        """Forget the waits of candidates: the members have changed."""
        for candidate in self._candidates.values():
            candidate.failures, candidate.due_at = 0, min(candidate.due_at, now)

    def _dials_under_way(self) -> int:
        return sum(peer.is_dialled for peer in self._peers.values()) + sum(
            candidate.is_dialled for candidate in self._candidates.values()
        )

    def _is_dialable(self, candidate: _Candidate) -> bool:
        return not candidate.is_dialled and candidate.node not in self._peers

    def _release(self, dial: Dial) -> None:
        if dial.peer is not None:
            peer = self._peers.get(dial.peer)
            if peer is not None:
                peer.is_dialled = False
        else:
            candidate = self._candidates.get(dial.addresses[0])
            if candidate is not None:
                candidate.is_dialled, candidate.failures = False, 0

    def _refill(self, now: float) -> None:
        policy = self._policy
        gained = (now - self._allowance_at) * policy.stranger_dials_per_second
        self._allowance = min(policy.stranger_dials_burst, self._allowance + max(0.0, gained))
        self._allowance_at = now

    def _adopt_candidates(self, node: NodeId, peer: _Peer) -> None:
        for address, candidate in list(self._candidates.items()):
            if candidate.node == node:
                self._remember(peer.hinted, address)
                if not candidate.is_asked and not candidate.is_dialled:
                    del self._candidates[address]

    def _hint(self, peer: _Peer, address: Address, now: float) -> None:
        is_new = address not in peer.addresses()
        self._remember(peer.hinted, address)
        if is_new and not peer.is_linked and peer.failures:
            peer.failures, peer.due_at = 0, min(peer.due_at, now)

    def _prove(self, peer: _Peer, address: Address) -> None:
        if _is_usable(address):
            self._remember(peer.proved, address)

    def _remember(self, addresses: dict[Address, None], address: Address) -> None:
        addresses.pop(address, None)
        addresses[address] = None
        while len(addresses) > self._policy.addresses_per_source_max:
            del addresses[next(iter(addresses))]

    def _make_room(self, *, is_asked: bool) -> bool:
        if len(self._candidates) < self._policy.candidates_max:
            return True
        evictable = [
            (-candidate.failures, candidate.seen_at, address)
            for address, candidate in self._candidates.items()
            if not candidate.is_asked and not candidate.is_dialled
        ]
        if not evictable:
            return False
        failures, _, address = min(evictable)
        if not is_asked and failures == 0:
            return False  # a flood of new addresses does not push out one that was not tried yet
        del self._candidates[address]
        return True


def _is_usable(address: Address) -> bool:
    return bool(address.host) and 0 < address.port < 65_536


class HeardTable:
    """Nodes that were met and proved their id, but that this node has no link with, and why."""

    def __init__(self, policy: PeerPolicy | None = None) -> None:
        self._policy = policy or PeerPolicy()
        self._heard: dict[NodeId, tuple[LinkRecord, float]] = {}

    def record(
        self, node: NodeId, address: Address, failure: Failure, now: float, wall: float
    ) -> None:
        """The node was met again; `since` stays that of the first meeting."""
        known = self._heard.pop(node, None)
        if known is None and len(self._heard) >= self._policy.heard_max:
            del self._heard[next(iter(self._heard))]
        since = known[0].since if known else wall
        record = LinkRecord(peer=node, address=address, up=False, since=since, failure=failure)
        self._heard[node] = (record, now)

    def forget(self, node: NodeId) -> None:
        """There is a link now, or the node is of this cluster."""
        self._heard.pop(node, None)

    def clear(self) -> None:
        """This node has changed its cluster: what was heard holds no longer."""
        self._heard.clear()

    def records(self, now: float) -> tuple[LinkRecord, ...]:
        """Those met lately, in the order of ids."""
        limit = now - self._policy.heard_seconds
        self._heard = {node: pair for node, pair in self._heard.items() if pair[1] >= limit}
        return tuple(record for _, (record, _) in sorted(self._heard.items()))
