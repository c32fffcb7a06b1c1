"""The side that dials: carries out what the peer table finds due."""

import anyio
from anyio.abc import SocketAttribute, TaskGroup

from node.core.peer_table import Dial
from node.io import clock
from node.io.identity import Identity
from node.io.interfaces import better_addresses, dial_order, is_better, medium_towards, plain_host
from node.io.mesh.channel import CONNECTION_ERRORS, close_stream, describe
from node.io.mesh.copy_stream import CopyStream
from node.io.mesh.greeting import Dialler, GreetingStream, Met, Purpose
from node.io.mesh.link import Link, LinkFacts
from node.io.mesh.links import Links
from node.io.mesh.reach import Missed, Reached, Reacher
from node.io.mesh.standing import Standing
from node.io.wakeup import Wakeup
from node.log import logger
from node.model.errors import Failure
from node.model.ids import NodeId, short
from node.model.machine import Address
from node.wire.handshake import Verdict, printable

IDLE_SECONDS = 1.0
RELAYS_TRIED_MAX = 3
_UNMEASURED = ("loopback", "relay")
BULK_FAILURES_MAX = 5
"""In a row; then snapshots go over the control connection for the rest of that link."""

_log = logger("mesh")


class Calls:
    """Dials peers and candidates for the life of the mesh."""

    def __init__(self, links: Links, identity: Identity, reacher: Reacher) -> None:
        self._links = links
        self._limits = links.limits
        self._identity = identity
        self._reacher = reacher
        self.improve_bell = Wakeup()
        """Rung when there may be a better way than before."""

    async def run(self, group: TaskGroup) -> None:
        """Start what is due, then wait for what comes first: the next due time or a change."""
        table = self._links.table
        while True:
            for dial in table.due(clock.monotonic()):
                group.start_soon(self._dial, dial, group)
            await self._links.bell.wait(table.next_due(clock.monotonic(), IDLE_SECONDS))

    async def _dial(self, dial: Dial, group: TaskGroup) -> None:
        links, table = self._links, self._links.table
        addresses = dial_order(dial.addresses, links.interfaces)
        last_known = table.proved_address(dial.peer) if dial.peer is not None else None
        if last_known in addresses[2:]:
            rest = [address for address in addresses[1:] if address != last_known]
            addresses = (addresses[0], last_known, *rest)  # the first two start together
        refusals: set[Address] = set()

        def on_missed(missed: Missed) -> None:
            if missed.found is not None:
                table.found(dial, missed.address, missed.found)
            if dial.peer is None:
                links.note_unreached(missed.address, missed.failure)
                return
            links.note_failure(dial.peer, missed.address, missed.failure)
            if missed.failure.code == "refused":
                refusals.add(missed.address)
                if missed.address == last_known or refusals == set(addresses):
                    group.start_soon(links.tell_refused, dial.peer, missed.address)

        reached = await self._reacher.reach_first(addresses, dial.peer, on_missed)
        if reached is None and dial.peer is not None and refusals != set(addresses):
            reached = await self._reach_through_others(dial.peer)
        if reached is None:
            table.failed(dial, clock.monotonic())
        else:
            await self._meet(dial, reached, group)
        links.bell.ring()

    async def _reach_through_others(self, peer: NodeId) -> Reached | None:
        """Ask members with a link, the nearest first, to pass bytes on to one that has none."""
        near = [link for link in self._links.open_links() if not link.facts.via]
        near.sort(key=lambda link: link.record().rtt_seconds or 1.0)
        for link in near[:RELAYS_TRIED_MAX]:
            stream = self._links.relay.open(link.facts.peer, peer)
            reached = await self._reacher.reach_through(stream) if stream is not None else None
            if reached is not None:
                return reached
        return None

    async def improve(self, group: TaskGroup) -> None:
        """Look now and then for a better way to peers that are linked, and measure idle links."""
        while True:
            await self.improve_bell.wait(self._limits.improve_seconds)
            for link in self._links.open_links():
                addresses = self._better_addresses(link)
                if addresses and link.is_open:
                    await self._move(link, addresses, group)
                elif link.bits_per_second is None and link.facts.medium not in _UNMEASURED:
                    await link.measure(self._limits.measure_seconds)

    def _better_addresses(self, link: Link) -> tuple[Address, ...]:
        known = self._links.table.addresses(link.facts.peer)
        if link.facts.via:
            return dial_order(known, self._links.interfaces)
        if not link.facts.is_dialled:
            return ()  # the other side looks
        return better_addresses(known, link.facts.medium, self._links.interfaces)

    async def _move(self, link: Link, addresses: tuple[Address, ...], group: TaskGroup) -> None:
        """Put a link over a better way in the place of this one."""
        links, peer = self._links, link.facts.peer
        reached = await self._reacher.reach_first(addresses, peer, _ignore)
        if reached is None:
            return
        better = None
        medium = medium_towards(links.interfaces, _local_host(reached))
        try:
            # The way that the system took may be another than the address promised.
            if peer not in links.greeting and is_better(medium, link.facts.medium):
                with anyio.fail_after(self._limits.handshake_seconds):
                    better = await self._greet(Dial(peer, addresses), reached)
        except (TimeoutError, *CONNECTION_ERRORS) as error:
            _log.debug("no better way to %s: %s", short(peer), describe(error))
        finally:
            if better is None:
                await close_stream(reached.stream)
        if better is not None:
            _log.info("%s is reached over %s now", link.facts.name, better.facts.medium or "a way")
            links.table.linked(peer, reached.address)
            group.start_soon(self._keep_bulk, better)
            group.start_soon(links.run, better)

    async def _meet(self, dial: Dial, reached: Reached, group: TaskGroup) -> None:
        links, peer = self._links, reached.server
        links.table.found(dial, reached.address, peer)
        links.note_unreached(reached.address, None)
        if links.get(peer) is not None or peer in links.greeting:
            links.table.released(dial, clock.monotonic())
            await close_stream(reached.stream)
            return
        links.greeting.add(peer)
        link = None
        try:
            with anyio.fail_after(self._limits.handshake_seconds + self._limits.probe_seconds):
                link = await self._greet(dial, reached)
        except CONNECTION_ERRORS as error:
            failure = Failure(
                code="greeting_failed",
                message=f"{short(peer)} at {reached.address}: {describe(error)}",
            )
            links.note_failure(peer, reached.address, failure)
            links.table.failed(dial, clock.monotonic())
        finally:
            links.greeting.discard(peer)
            if link is None:
                await close_stream(reached.stream)
        if link is not None:
            links.table.linked(peer, reached.address, dial)
            if not link.facts.via:
                group.start_soon(self._keep_bulk, link)
            await links.run(link)

    async def _greet(self, dial: Dial, reached: Reached) -> Link | None:
        """Greet a server; the link where both sides want one."""
        links, own, now = self._links, self._links.standing, clock.monotonic()
        wire = GreetingStream(reached.stream)
        dialler = Dialler(wire, self._identity)
        met = await dialler.introduce(own.bearing(), "link", reached.server, reached.certificate)
        if met.peer == own.node and met.bearing.process == own.process:
            links.table.is_self(dial, reached.address)
            return None
        refusal = own.judge(met.peer, met.bearing)
        verdict = await dialler.prove(met, refusal)
        if refusal is not None:
            links.note_failure(met.peer, reached.address, refusal)
            if refusal.code == "other_cluster":
                links.note_open(met.peer, reached.address, met.bearing)
            links.table.failed(dial, now)
            return None
        if not isinstance(verdict, Verdict) or verdict.refusal is not None:
            if isinstance(verdict, Verdict) and verdict.refusal is not None:
                links.note_refusal(met.peer, reached.address, verdict.refusal)
            links.table.failed(dial, now)
            return None
        medium = medium_towards(links.interfaces, _local_host(reached))
        facts = _facts(met, reached, "relay" if reached.via else medium, own)
        link = links.make_link(facts, wire)
        rival = await links.contend(facts)
        if rival is not None:
            links.table.released(dial, now)
            link.end(rival.message)
            await link.close(flush=False)
            return None
        return link

    async def open_copy(self, peer: NodeId) -> CopyStream | None:
        """A connection of its own for copies of a peer's files; None where there can be none."""
        link = self._links.get(peer)
        if link is None or link.facts.via or link.copies >= self._limits.copies_max:
            return None
        reached = await self._reacher.reach_first((link.facts.address,), peer, _ignore)
        if reached is None:
            return None
        try:
            wire = GreetingStream(reached.stream)
            if not await self._greet_beside(wire, "copy", reached):
                return None
            copy = reached.stream.detach()
        except CONNECTION_ERRORS as error:
            _log.debug("connection for copies with %s: %s", short(peer), describe(error))
            return None
        finally:
            with anyio.CancelScope(shield=True):
                await close_stream(reached.stream)
        link.hold(copy)
        return copy

    async def _greet_beside(self, wire: GreetingStream, purpose: Purpose, reached: Reached) -> bool:
        """Greet a server for a connection beside a link; whether it takes it."""
        with anyio.fail_after(self._limits.handshake_seconds):
            dialler = Dialler(wire, self._identity)
            bearing = self._links.standing.bearing()
            met = await dialler.introduce(bearing, purpose, reached.server, reached.certificate)
            verdict = await dialler.prove(met)
        return isinstance(verdict, Verdict) and verdict.refusal is None

    async def _keep_bulk(self, link: Link) -> None:
        """Keep a second connection for bulk beside the link, while it stands."""
        failures = 0
        while link.is_open and failures < BULK_FAILURES_MAX:
            if await self._run_bulk(link):
                failures = 0
            else:
                failures += 1
            await anyio.sleep(self._limits.bulk_retry_seconds)

    async def _run_bulk(self, link: Link) -> bool:
        """Open the bulk connection and carry it to its end; False where it never stood."""
        peer, address = link.facts.peer, link.facts.address
        reached = await self._reacher.reach_first((address,), peer, _ignore)
        if reached is None:
            return False
        try:
            wire = GreetingStream(reached.stream)
            if not await self._greet_beside(wire, "bulk", reached):
                return False
            await self._links.run_bulk(link, wire)
        except CONNECTION_ERRORS as error:
            _log.debug("bulk connection with %s: %s", short(peer), describe(error))
            return False
        finally:
            await close_stream(reached.stream)
        return True


def _facts(met: Met, reached: Reached, medium: str, own: Standing) -> LinkFacts:
    return LinkFacts(
        peer=met.peer,
        name=printable(met.bearing.name),
        version=printable(met.bearing.version),
        process=met.bearing.process,
        address=reached.address,
        is_dialled=True,
        medium=medium,
        via=reached.via,
        clock_skew_seconds=own.skew_seconds(met.bearing),
    )


def _local_host(reached: Reached) -> str:
    try:
        return plain_host(str(reached.stream.extra(SocketAttribute.local_address)[0]))  # noqa: S610
    except (OSError, anyio.TypedAttributeLookupError):
        return ""


def _ignore(missed: Missed) -> None:
    _log.debug("bulk connection: %s", missed.failure.message)
