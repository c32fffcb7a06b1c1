"""The side that listens: lets connections in, hears who they are, and answers."""

import errno
import ipaddress
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec
from anyio.abc import ByteStream, SocketAttribute, SocketListener, SocketStream, TaskGroup

from node.core.backoff import AttemptLimiter, Backoff
from node.io import clock
from node.io.identity import Identity
from node.io.interfaces import medium_towards, plain_host, without_scope
from node.io.mesh import tls
from node.io.mesh.approvals import Approvals
from node.io.mesh.channel import CONNECTION_ERRORS, close_stream, describe
from node.io.mesh.greeting import (
    BadProofError,
    GreetingStream,
    Guest,
    code_proof,
    proofs_equal,
    receive_guest,
)
from node.io.mesh.invitations import Invitations
from node.io.mesh.link import LinkFacts
from node.io.mesh.links import Links
from node.io.mesh.relay import RELAYED, RelayStream
from node.log import logger
from node.model.errors import Failure
from node.model.ids import NodeId, short
from node.model.machine import Address
from node.wire.handshake import ADDRESSES_MAX, PROTOCOL, Granted, Verdict, printable

OnJoin = Callable[[NodeId, str, tuple[Address, ...], str], Awaitable[bool]]
OnDecline = Callable[[NodeId, str], Awaitable[None]]
"""(node, name, addresses, proof) -> admitted; returns once the admission is committed.

The proof is `invite`, `approval`, or `lan` where nobody vouches for the node.
"""

FREE_FAILURES = 5
FAILURE_BACKOFF = Backoff(2.0, 600.0)
ACCEPT_PAUSE_SECONDS = 0.1
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

_log = logger("mesh")


class Door:
    """Accepts connections, a bounded number of unproved ones at a time."""

    def __init__(
        self, links: Links, identity: Identity, invitations: Invitations, approvals: Approvals
    ) -> None:
        self.on_join: OnJoin | None = None
        self.on_decline: OnDecline | None = None
        self.is_joining = False
        """This node itself asks to be let in elsewhere: it lets nobody into a log that it may give
        up.
        """
        self._links = links
        self._limits = links.limits
        self._identity = identity
        self._invitations = invitations
        self._approvals = approvals
        self._context: ssl.SSLContext = tls.server_context(identity)
        self._limiter = AttemptLimiter(FREE_FAILURES, FAILURE_BACKOFF)
        self._unproved: Counter[str] = Counter()
        self._entering: set[socket.socket] = set()
        self._joins = 0
        self._group: TaskGroup | None = None
        links.relay.on_open = self._enter
        self.turned_away = 0
        """Connections closed at once because too many were not proved yet."""

    async def serve(self, listener: SocketListener, group: TaskGroup) -> None:
        """Accept for ever; every connection is handled in the group."""
        # Not `listener.accept`: cancelled at the wrong moment, it loses a connection (cpython's
        # `sock_accept`). Only the wait is cancelled here.
        self._group = group
        raw = listener.extra(SocketAttribute.raw_socket)  # noqa: S610 - anyio's
        while True:
            await anyio.wait_readable(raw)
            try:
                connection, remote = raw.accept()
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                # The peer was gone again, or this process has no descriptor left for it.
                _log.warning("a connection could not be accepted: %s", error)
                if error.errno in _EXHAUSTED:
                    await anyio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            host = _host_of(remote)
            if self._is_full(host):
                self.turned_away += 1
                connection.close()
                continue
            self._unproved[host] += 1
            self._entering.add(connection)
            group.start_soon(self._handle, connection, host)

    @property
    def is_admitting(self) -> bool:
        """Whether a node is being let in at this moment."""
        return self._joins > 0

    def close(self) -> None:
        """Close what came in and was never looked at."""
        while self._entering:
            self._entering.pop().close()

    def _is_full(self, host: str) -> bool:
        return (
            self._unproved.total() >= self._limits.unauthenticated_max
            or self._unproved[host] >= self._limits.unauthenticated_per_host_max
        )

    async def _handle(self, connection: socket.socket, host: str) -> None:
        self._entering.discard(connection)
        greeted = stream = None
        try:
            with anyio.move_on_after(self._limits.handshake_seconds):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                stream = await _stream_of(connection)
                greeted = await self._greet(stream)
        except CONNECTION_ERRORS as error:
            if isinstance(error, BadProofError):
                self._limiter.failed(_limiter_key(host), clock.monotonic())
            _log.debug("connection from %s ended in the greeting: %s", host, describe(error))
        finally:
            self._unproved[host] -= 1
            if not self._unproved[host]:
                del self._unproved[host]
            if stream is None:
                connection.close()
            elif greeted is None:
                await close_stream(stream)
        if greeted is not None:
            wire, guest = greeted
            await self._answer(wire, guest, host)

    def _enter(self, stream: RelayStream) -> None:
        """Let a connection in that comes through another member."""
        if self._group is None or self._is_full(RELAYED.host):
            self.turned_away += 1
            stream.refuse()
            return
        self._unproved[RELAYED.host] += 1
        self._group.start_soon(self._handle_relayed, stream)

    async def _handle_relayed(self, stream: RelayStream) -> None:
        greeted = None
        try:
            with anyio.move_on_after(self._limits.handshake_seconds):
                greeted = await self._greet(stream)
        except CONNECTION_ERRORS as error:
            _log.debug("a relayed connection ended in the greeting: %s", describe(error))
        finally:
            self._unproved[RELAYED.host] -= 1
            if greeted is None:
                await close_stream(stream)
        if greeted is None:
            return
        wire, guest = greeted
        try:
            if guest.purpose == "link" and guest.peer == stream.peer:
                await self._link(wire, guest, RELAYED, stream.via)
        except CONNECTION_ERRORS as error:
            _log.debug("a relayed connection ended: %s", describe(error))
        finally:
            with anyio.CancelScope(shield=True):
                await close_stream(wire.stream)

    async def _greet(self, stream: ByteStream) -> tuple[GreetingStream, Guest]:
        # The TLS handshake reads at once: an accepted socket that nobody reads is not held back.
        wrapped = await tls.wrap(stream, self._context, server_side=True)
        wire = GreetingStream(wrapped)
        return wire, await receive_guest(wire, self._identity, self._links.standing.bearing())

    async def _answer(self, wire: GreetingStream, guest: Guest, host: str) -> None:
        address = Address(host, guest.bearing.port)
        try:
            match guest.purpose:
                case "join":
                    await self._join(wire, guest, address)
                case "ask":
                    await self._be_asked(wire, guest, address)
                case "bulk":
                    await self._bulk(wire, guest)
                case "copy":
                    await self._copy(wire, guest)
                case "link":
                    await self._link(wire, guest, address)
        except CONNECTION_ERRORS as error:
            _log.debug("connection from %s ended: %s", host, describe(error))
        finally:
            with anyio.CancelScope(shield=True):
                await close_stream(wire.stream)

    async def _link(
        self, wire: GreetingStream, guest: Guest, address: Address, via: NodeId | None = None
    ) -> None:
        links, own = self._links, self._links.standing
        if guest.peer == own.node and guest.bearing.process == own.process:
            return  # this node has dialled itself, and notices it there
        refusal = own.judge(guest.peer, guest.bearing)
        if refusal is not None or guest.refusal is not None:
            if refusal is not None:
                links.note_failure(guest.peer, address, refusal)
                if refusal.code == "other_cluster":
                    links.note_open(guest.peer, address, guest.bearing)
            elif guest.refusal is not None:
                links.note_refusal(guest.peer, address, guest.refusal)
            await self._refuse(wire, refusal or guest.refusal)
            return
        facts = LinkFacts(
            peer=guest.peer,
            name=printable(guest.bearing.name),
            version=printable(guest.bearing.version),
            process=guest.bearing.process,
            address=address,
            is_dialled=False,
            medium="relay" if via else medium_towards(links.interfaces, _local_host(wire)),
            via=via or NodeId(""),
            clock_skew_seconds=own.skew_seconds(guest.bearing),
        )
        if guest.peer in links.greeting and own.node < guest.peer:
            refusal = Failure(code="already_linked", message="a link is being made already")
        else:
            with anyio.move_on_after(self._limits.handshake_seconds):
                refusal = await links.contend(facts)
        if refusal is not None:
            if refusal.code == "duplicate_id":
                links.heard.record(guest.peer, address, refusal, clock.monotonic(), clock.wall())
            await self._refuse(wire, refusal)
            return
        with anyio.fail_after(self._limits.handshake_seconds):
            await wire.send(Verdict())
        await links.run(links.make_link(facts, wire))

    async def _bulk(self, wire: GreetingStream, guest: Guest) -> None:
        link = self._links.get(guest.peer)
        if link is None or link.facts.process != guest.bearing.process:
            await self._refuse(wire, Failure(code="no_link", message="there is no link"))
            return
        with anyio.fail_after(self._limits.handshake_seconds):
            await wire.send(Verdict())
        await self._links.run_bulk(link, wire)

    async def _copy(self, wire: GreetingStream, guest: Guest) -> None:
        link = self._links.get(guest.peer)
        serve = self._links.on_copy
        if link is None or link.facts.process != guest.bearing.process or serve is None:
            await self._refuse(wire, Failure(code="no_link", message="there is no link"))
            return
        if link.copies >= self._limits.copies_max:
            await self._refuse(wire, Failure(code="busy", message="too many copies at once"))
            return
        with anyio.fail_after(self._limits.handshake_seconds):
            await wire.send(Verdict())
        copy = wire.stream.detach()
        link.hold(copy)
        await serve(guest.peer, copy)

    async def _join(self, wire: GreetingStream, guest: Guest, address: Address) -> None:
        key = self._entitlement(guest, address.host)
        if isinstance(key, Failure):
            await self._refuse(wire, key)
            return
        is_admitted = False
        try:
            is_admitted = await self._admit(guest, address, "invite" if key else "lan")
        finally:
            if key and is_admitted:
                self._invitations.spend(key)
            elif key:
                self._invitations.give_back(key)
        await self._tell_admission(wire, guest, key, is_admitted=is_admitted)

    async def _be_asked(self, wire: GreetingStream, guest: Guest, address: Address) -> None:
        """A machine without a code: people on both sides decide."""
        name = self._links.standing.name
        refusal = self._busy_or_unfit(guest) or self._approvals.refusal(
            _limiter_key(address.host), name
        )
        if refusal is None:
            _log.info("%s (%s) asks to join", printable(guest.bearing.name), short(guest.peer))
            refusal = await self._approvals.decide(wire, guest, address, _limiter_key(address.host))
            refusal = refusal or self._busy_or_unfit(guest)
        if refusal is not None:
            await self._refuse(wire, msgspec.structs.replace(refusal, node=name))
            return
        is_admitted = await self._admit(guest, address, "approval")
        await self._tell_admission(wire, guest, b"", is_admitted=is_admitted)

    async def _tell_admission(
        self, wire: GreetingStream, guest: Guest, key: bytes, *, is_admitted: bool
    ) -> None:
        if not is_admitted:
            await self._refuse(
                wire,
                self._failure(
                    "join_not_committed",
                    "the cluster did not admit the node in time",
                    "try again; a code is still good",
                ),
            )
            return
        standing = self._links.standing
        granted = Granted(
            cluster=standing.cluster,
            cluster_name=printable(standing.cluster_name),
            code_proof=code_proof(key, guest.exchange, "server") if key else b"",
            addresses=self._member_addresses(guest.peer),
        )
        with anyio.fail_after(self._limits.handshake_seconds):
            await wire.send(granted)
            reply = await _last_word(wire)
        if reply is not None and reply.refusal is not None and self.on_decline is not None:
            _log.warning("%s did not come over after all", printable(guest.bearing.name))
            await self.on_decline(guest.peer, printable(guest.bearing.name))

    def _entitlement(self, guest: Guest, host: str) -> bytes | Failure:
        """The key of the code that lets the guest join, empty where none is needed."""
        standing = self._links.standing
        refusal = self._busy_or_unfit(guest)
        if refusal is None and not guest.code_proof and standing.trust != "lan":
            refusal = self._failure(
                "invite_needed",
                f"the cluster of {standing.name} admits nodes by invitation only",
                "on a member: `exoctl cluster invite`; here: `exoctl cluster join CODE`",
            )
        if refusal is not None:
            return refusal
        return self._redeem(guest, host) if guest.code_proof else b""

    def _busy_or_unfit(self, guest: Guest) -> Failure | None:
        """Why this node can't let anybody in now, or not this one, whatever speaks for it."""
        standing = self._links.standing
        if guest.peer == standing.node or guest.bearing.protocol != PROTOCOL:
            return standing.judge(guest.peer, guest.bearing)
        if self.is_joining:
            return self._failure(
                "join_busy", f"{standing.name} is joining another cluster itself", "try again"
            )
        if self._joins >= self._limits.joins_max or self.on_join is None:
            return self._failure("join_busy", "too many nodes join at this moment", "try again")
        return None

    def _redeem(self, guest: Guest, host: str) -> bytes | Failure:
        wait_seconds = self._limiter.wait_seconds(_limiter_key(host), clock.monotonic())
        if wait_seconds > 0:
            return self._failure(
                "too_many_failures",
                f"{FREE_FAILURES} or more codes or proofs from {host} were wrong",
                f"try again in {wait_seconds:.0f} s",
            )
        is_member = self._links.table.is_admitted(guest.peer)
        key = self._invitations.redeem(guest, clock.wall(), is_member=is_member)
        secret_key = self._links.standing.secret_key
        if key is None and secret_key:
            expected = code_proof(secret_key, guest.exchange, "dialler")
            key = secret_key if proofs_equal(expected, guest.code_proof) else None
        if key is None:
            self._limiter.failed(_limiter_key(host), clock.monotonic())
            return self._failure(
                "wrong_code",
                "the invite code is wrong, used or expired, or the secret is another",
                "make a new code on a member: `exoctl cluster invite`; compare the secret files",
            )
        self._limiter.succeeded(_limiter_key(host))
        return key

    async def _admit(self, guest: Guest, address: Address, proof: str) -> bool:
        if self.on_join is None:
            return False
        _log.info("%s (%s) joins", printable(guest.bearing.name), short(guest.peer))
        self._joins += 1
        try:
            with anyio.move_on_after(self._limits.join_seconds):
                name = printable(guest.bearing.name)
                return await self.on_join(guest.peer, name, (address,), proof)
        finally:
            self._joins -= 1
        return False

    def _member_addresses(self, joiner: NodeId) -> tuple[tuple[str, Address], ...]:
        """The master first and those with a link next: a large cluster does not fit in whole."""
        table, master = self._links.table, self._links.standing.master
        likeliest = sorted(
            table.peers(), key=lambda peer: (peer != master, self._links.get(peer) is None)
        )
        return tuple(
            (str(member), without_scope(address))
            for member in likeliest
            if member != joiner and (address := table.proved_address(member)) is not None
        )[:ADDRESSES_MAX]

    def _failure(self, code: str, message: str, remedy: str = "") -> Failure:
        return Failure(code=code, message=message, remedy=remedy, node=self._links.standing.name)

    async def _refuse(self, wire: GreetingStream, refusal: Failure | None) -> None:
        """Say why not, and let the other side close, so that it reads it."""
        with anyio.move_on_after(self._limits.farewell_seconds):
            await wire.send(Verdict(refusal=refusal))
            await _wait_end(wire)


async def _last_word(wire: GreetingStream) -> Verdict | None:
    """What a node says that was let in: nothing, unless it does not come over."""
    try:
        reply, _ = await wire.receive()
    except CONNECTION_ERRORS:
        return None
    return reply if isinstance(reply, Verdict) else None


async def _wait_end(wire: GreetingStream) -> None:
    try:
        await wire.stream.receive(1)
    except CONNECTION_ERRORS:
        return


async def _stream_of(connection: socket.socket) -> SocketStream:
    """An accepted connection as a stream.

    Raises:
        ConnectionResetError: its peer reset it meanwhile; anyio takes that for a caller's mistake.
    """
    try:
        return await SocketStream.from_socket(connection)
    except ValueError as error:
        raise ConnectionResetError(errno.ECONNRESET, "it was reset at once") from error


def _host_of(remote: Any) -> str:
    """Where a connection comes from; a link-local address with the interface it is on."""
    host = plain_host(str(remote[0]))
    scope = remote[3] if len(remote) > 3 else 0
    if not scope or "%" in host:
        return host
    try:
        return f"{host}%{socket.if_indextoname(scope)}"
    except OSError:  # the interface is gone again
        return host


def _local_host(wire: GreetingStream) -> str:
    try:
        return plain_host(str(wire.stream.extra(SocketAttribute.local_address)[0]))  # noqa: S610
    except (OSError, anyio.TypedAttributeLookupError):
        return ""


def _limiter_key(host: str) -> str:
    """One key for all the addresses that one machine can easily have."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and not address.is_link_local:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host
