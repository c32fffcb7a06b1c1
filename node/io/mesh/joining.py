"""How this node comes into another cluster: by a code, by trust, or by the approval of a person."""

from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from node.io.identity import Identity, is_node_id
from node.io.interfaces import dial_order
from node.io.mesh.asking import Asking, Askings
from node.io.mesh.channel import CONNECTION_ERRORS, close_stream, describe
from node.io.mesh.door import Door
from node.io.mesh.event import JoinGranted
from node.io.mesh.greeting import Dialler, GreetingStream, Met, code_proof, proofs_equal
from node.io.mesh.invitations import code_key
from node.io.mesh.links import Links
from node.io.mesh.reach import Missed, Reached, Reacher
from node.model.errors import (
    BusyError,
    ConflictError,
    Failure,
    RefusedError,
    TimeoutExpiredError,
    UnreachableError,
    UsageError,
)
from node.model.ids import ClusterId, NodeId
from node.model.machine import Address
from node.model.register import JoinRequest
from node.wire.handshake import PROTOCOL, Granted, Verdict, printable, printable_failure


class Joining:
    """Changes nothing of this node: what is granted is its owner's to act upon."""

    def __init__(self, links: Links, identity: Identity, reacher: Reacher, door: Door) -> None:
        self._links = links
        self._limits = links.limits
        self._standing = links.standing
        self._identity = identity
        self._reacher = reacher
        self._door = door
        self._askings = Askings()
        self.group: TaskGroup | None = None
        """Where requests are held while the mesh runs."""

    @property
    def asking(self) -> JoinRequest | None:
        """Whom this node asks, while an answer may still come."""
        return self._askings.request

    async def join(
        self, code: str, address: Address, is_free: Callable[[], bool] = lambda: True
    ) -> JoinGranted:
        """Ask the node at an address to let this node into its cluster.

        The code proves the right to; empty where both sides trust the network. Changes nothing
        here: `set_cluster` and `set_admitted` follow. Meanwhile the door lets nobody in, and what
        is granted is given back where `is_free` has become false.

        Raises:
            BusyError: this node joins or lets in another one at this moment.
            ConflictError: it was granted, but this node is not free to go over any more.
            UsageError: the code is no code, or the address is this node's own.
            UnreachableError: no node answers there.
            RefusedError: it says no, or does not know the code either.
            TimeoutExpiredError: the cluster did not decide in time.
        """
        if not code and self._standing.trust == "invite":
            raise UsageError.because(
                "invite_needed", "a code is needed to join", "`exoctl cluster invite` makes one"
            )
        key = code_key(code) if code else self._standing.secret_key
        if self._door.is_joining or self._door.is_admitting:
            doing = "joins a cluster" if self._door.is_joining else "lets another node in"
            raise BusyError.because(
                "join_busy", f"{self._standing.name} {doing} at this moment", "try again"
            )
        self._door.is_joining = True
        try:
            return await self._join(key, address, is_free)
        finally:
            self._door.is_joining = False

    async def ask(self, address: Address) -> JoinRequest:
        """Ask the node at an address to be let in by a person there, who compares the code.

        Both sides show it until it expires. `finish` or `withdraw` follows.

        Raises:
            UsageError: the address is this node's own.
            UnreachableError: no node answers there, or it breaks off.
            RefusedError: it lets nobody ask now, with its reason.
        """
        reached = await self._reach(address)
        wire = GreetingStream(reached.stream)
        asking = Asking(wire, self._limits)
        is_begun = False
        try:
            with anyio.fail_after(self._limits.handshake_seconds):
                dialler = Dialler(wire, self._identity)
                bearing = self._standing.bearing()
                met = await dialler.introduce(bearing, "ask", reached.server, reached.certificate)
                self._check_fit(met, reached.address)
                request = await asking.begin(dialler, met, reached.address)
            is_begun = True
        except (TimeoutError, *CONNECTION_ERRORS) as error:
            raise UnreachableError.because(
                "join_interrupted", f"{address}: {describe(error)}", "try again"
            ) from error
        finally:
            if not is_begun:
                with anyio.CancelScope(shield=True):
                    await close_stream(reached.stream)
        await self._askings.replace(asking)
        assert self.group is not None, "the mesh does not run"
        self.group.start_soon(asking.hold)
        return request

    async def finish(
        self, request: str, seconds: float, is_free: Callable[[], bool] = lambda: True
    ) -> JoinGranted:
        """The codes are equal here: wait for the member, and say what it granted.

        Raises:
            NotFoundError: this node does not ask by that id.
            RefusedError: it was denied. UnreachableError: the member is gone.
            TimeoutExpiredError: nobody decided in time; the request is withdrawn.
            ConflictError: it was granted, but this node is not free to go over any more.
        """
        asking = self._askings.find(request)
        granted = await self._askings.settle(asking, seconds, is_free)
        assert asking.met is not None, "it has begun"
        assert asking.request is not None, "it has begun"
        return _granted(granted, asking.met, asking.request.address)

    async def withdraw(self, request: str) -> None:
        """The codes differ, or the person has changed its mind.

        Raises:
            NotFoundError: this node does not ask by that id.
        """
        failure = Failure(code="join_withdrawn", message="it does not want to join any more")
        await self._askings.find(request).withdraw(failure)

    async def _join(self, key: bytes, address: Address, is_free: Callable[[], bool]) -> JoinGranted:
        reached = await self._reach(address)
        try:
            with anyio.fail_after(self._limits.join_seconds):
                return await self._ask_to_join(reached, key, is_free)
        except TimeoutError:
            raise TimeoutExpiredError.because(
                "join_timeout",
                f"{address} did not answer within {self._limits.join_seconds:.0f} s",
                "check that the cluster has a master, then try again: the code is still good",
            ) from None
        except CONNECTION_ERRORS as error:
            raise UnreachableError.because(
                "join_interrupted", f"{address}: {describe(error)}", "try again"
            ) from error
        finally:
            with anyio.CancelScope(shield=True):
                await close_stream(reached.stream)

    async def _reach(self, address: Address) -> Reached:
        missed: list[Missed] = []
        addresses = dial_order((address,), self._links.interfaces)
        reached = await self._reacher.reach_first(addresses, None, missed.append)
        if reached is None:
            raise UnreachableError(
                missed[-1].failure
                if missed
                else Failure(code="unreachable", message=f"{address}: no interface leads there")
            )
        return reached

    async def _ask_to_join(
        self, reached: Reached, key: bytes, is_free: Callable[[], bool]
    ) -> JoinGranted:
        own = self._standing
        wire = GreetingStream(reached.stream)
        dialler = Dialler(wire, self._identity)
        met = await dialler.introduce(own.bearing(), "join", reached.server, reached.certificate)
        self._check_host(met, reached.address, key)
        answer = await dialler.prove(met, code_key=key)
        if isinstance(answer, Verdict):
            refusal = answer.refusal or Failure(code="refused", message="no reason was given")
            raise RefusedError(printable_failure(refusal))
        if key and not proofs_equal(answer.code_proof, code_proof(key, met.exchange, "server")):
            raise RefusedError.because(
                "wrong_cluster",
                f"the node at {reached.address} does not know the code",
                "check the address; somebody may pose as the cluster",
            )
        if not is_free():
            declined = Failure(
                code="join_declined",
                message=f"{own.name} is not alone any more: it stays in its own cluster",
                node=own.name,
            )
            await wire.send(Verdict(refusal=declined))
            raise ConflictError(declined)
        return _granted(answer, met, reached.address)

    def _check_host(self, met: Met, address: Address, key: bytes) -> None:
        self._check_fit(met, address)
        if not key and met.bearing.trust != "lan":
            raise RefusedError.because(
                "invite_needed",
                f"{printable(met.bearing.name)} at {address} admits nodes by invitation only",
                "on it: `exoctl cluster invite`; here: `exoctl cluster join CODE`",
            )

    def _check_fit(self, met: Met, address: Address) -> None:
        if met.peer == self._standing.node:
            raise UsageError.because(
                "join_self", f"{address} is this node itself, or a copy of its state directory"
            )
        if met.bearing.protocol != PROTOCOL:
            refusal = self._standing.judge(met.peer, met.bearing)
            assert refusal is not None, "another protocol is always refused"
            raise RefusedError(refusal)


def _granted(answer: Granted, met: Met, address: Address) -> JoinGranted:
    others = ((NodeId(node), where) for node, where in answer.addresses if is_node_id(node))
    return JoinGranted(
        cluster=ClusterId(answer.cluster),
        cluster_name=printable(answer.cluster_name),
        member=met.peer,
        addresses=((met.peer, address), *others),
    )
