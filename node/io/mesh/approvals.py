"""The member's side of joining by approval: machines that wait for a person to compare a code."""

import hashlib
from collections.abc import Callable

import anyio
import msgspec

from node.core.backoff import AttemptLimiter, Backoff
from node.io import clock
from node.io.mesh.channel import CONNECTION_ERRORS
from node.io.mesh.greeting import GreetingStream, Guest, new_nonce
from node.io.mesh.limits import MeshLimits
from node.io.wakeup import Wakeup
from node.model.errors import Failure, NotFoundError
from node.model.ids import NodeId, short
from node.model.machine import Address
from node.model.register import JoinRequest
from node.wire.handshake import Commitment, Revelation, Verdict, Waiting, printable

TRIES = 3
TRIES_BACKOFF = Backoff(600.0, 600.0)
"""A chance of one in a million each, three times in ten minutes."""
_ID_CHARACTERS = 6


class _Pending:
    """One request and what is known of it so far."""

    def __init__(self, request: JoinRequest) -> None:
        self.request = request
        self.bell = Wakeup()
        self.approved: bool | None = None
        self.withdrawn = ""
        """Why there is nobody to let in any more."""


class Approvals:
    """Everything runs on the mesh's loop."""

    def __init__(self, limits: MeshLimits) -> None:
        self._limits = limits
        self._pending: dict[NodeId, _Pending] = {}
        self._agreeing = 0
        """Machines that have no code yet; they take the place of one that waits."""
        self._limiter = AttemptLimiter(TRIES, TRIES_BACKOFF)
        self.on_change: Callable[[], None] = lambda: None
        """Called when somebody asks, confirms, or does not wait any more."""

    def requests(self) -> tuple[JoinRequest, ...]:
        """Who waits, the longest first."""
        return tuple(one.request for one in self._pending.values())

    def judge(self, request: str, *, approve: bool) -> JoinRequest:
        """A person has compared the codes, or does not want the machine.

        Raises:
            NotFoundError: nobody waits by that id.
        """
        for pending in self._pending.values():
            if pending.request.id == request:
                pending.approved = approve
                pending.bell.ring()
                return pending.request
        raise NotFoundError.because(
            "no_such_request",
            f"no machine waits to join as {request[:40]!r}",
            "`exoctl cluster pending` lists those that wait; it may have given up",
        )

    def clear(self) -> None:
        """This node is of another cluster now, or the codes are not to be used any more."""
        for pending in self._pending.values():
            pending.withdrawn = "the member lets nobody in at this moment"
            pending.bell.ring()

    def refusal(self, key: str, name: str) -> Failure | None:
        """Why a machine may not even ask; `key` stands for where it comes from."""
        wait_seconds = self._limiter.wait_seconds(key, clock.monotonic())
        if wait_seconds > 0:
            return Failure(
                code="too_many_requests",
                message=f"{TRIES} requests from there were not approved so far",
                remedy=f"try again in {wait_seconds:.0f} s, or use `exoctl cluster invite`",
                node=name,
            )
        waiting = len(self._pending) + self._agreeing
        if waiting >= self._limits.requests_max:
            return Failure(
                code="join_busy",
                message=f"{waiting} machines wait to be let in already",
                remedy="approve or deny them: `exoctl cluster pending`",
                node=name,
            )
        return None

    async def decide(
        self, wire: GreetingStream, guest: Guest, address: Address, key: str
    ) -> Failure | None:
        """Have a proved machine let in by people: None where both sides agreed.

        Raises:
            OSError, anyio.EndOfStream, HandshakeError …: it went away, or breaks the protocol.
        """
        # A try from its beginning on: else many at once would count as none.
        self._limiter.failed(key, clock.monotonic())
        self._agreeing += 1
        try:
            with anyio.fail_after(self._limits.handshake_seconds):
                code = await _agree_on_code(wire, guest)
        finally:
            self._agreeing -= 1
        pending = _Pending(self._request(guest, address, code))
        earlier = self._pending.pop(guest.peer, None)
        if earlier is not None:
            earlier.withdrawn = "it has asked again"
            earlier.bell.ring()
        self._pending[guest.peer] = pending
        self.on_change()
        refusal: Failure | None = Failure(code="join_withdrawn", message="it has gone")
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._listen, pending, wire)
                refusal = await self._wait(pending, wire)
                group.cancel_scope.cancel()
            return refusal
        finally:
            if self._pending.get(guest.peer) is pending:
                del self._pending[guest.peer]
                self.on_change()
            if refusal is None:
                self._limiter.succeeded(key)

    def _request(self, guest: Guest, address: Address, code: str) -> JoinRequest:
        now = clock.wall()
        return JoinRequest(
            id="j-" + clock.random_hex(_ID_CHARACTERS),
            node=guest.peer,
            name=printable(guest.bearing.name) or short(guest.peer),
            address=address,
            code=code,
            since=now,
            expires_at=now + self._limits.request_seconds,
            version=printable(guest.bearing.version),
        )

    async def _wait(self, pending: _Pending, wire: GreetingStream) -> Failure | None:
        ends_at = clock.monotonic() + self._limits.request_seconds
        while clock.monotonic() < ends_at:
            if pending.withdrawn:
                return Failure(code="join_withdrawn", message=pending.withdrawn)
            if pending.approved is False:
                return Failure(
                    code="join_denied",
                    message="a member's owner has denied it",
                    remedy="ask them, or use an invite code",
                )
            if pending.approved and pending.request.is_confirmed:
                return None
            if not await pending.bell.wait(self._limits.waiting_seconds):
                try:
                    await wire.send(Waiting())
                except CONNECTION_ERRORS:
                    pending.withdrawn = "it has gone"
        return Failure(
            code="join_expired",
            message=f"nobody approved it within {self._limits.request_seconds:.0f} s",
            remedy="ask again: `exoctl cluster join`",
        )

    async def _listen(self, pending: _Pending, wire: GreetingStream) -> None:
        """Hear that the codes are equal there, or that it does not want to come any more."""
        try:
            while True:
                said, _ = await wire.receive()
                if isinstance(said, Verdict) and said.refusal is None:
                    if pending.request.is_confirmed:
                        continue  # it has said so before: no news for anybody
                    pending.request = msgspec.structs.replace(pending.request, is_confirmed=True)
                else:
                    pending.withdrawn = "it does not want to join any more"
                pending.bell.ring()
                self.on_change()
        except CONNECTION_ERRORS:
            pending.withdrawn = "it has gone"
            pending.bell.ring()


async def _agree_on_code(wire: GreetingStream, guest: Guest) -> str:
    nonce = new_nonce()
    await wire.send(Commitment(digest=hashlib.sha256(nonce).digest()))
    theirs, _ = await wire.expect(Revelation)
    await wire.send(Revelation(nonce=nonce))
    return guest.exchange.comparison_code(theirs.nonce, nonce)
