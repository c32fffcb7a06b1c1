"""The newcomer's side of joining by approval: one request at a time, held while people compare."""

import hashlib
from collections.abc import Callable

import anyio
import msgspec

from node.io import clock
from node.io.mesh.channel import CONNECTION_ERRORS, close_stream, describe
from node.io.mesh.greeting import Dialler, GreetingStream, Met, new_nonce
from node.io.mesh.limits import MeshLimits
from node.io.wakeup import Wakeup
from node.model.errors import (
    BusyError,
    ConflictError,
    ExoctlError,
    Failure,
    NotFoundError,
    RefusedError,
    TimeoutExpiredError,
    UnreachableError,
)
from node.model.ids import short
from node.model.machine import Address
from node.model.register import JoinRequest
from node.wire.handshake import (
    Commitment,
    Granted,
    HandshakeError,
    Revelation,
    Verdict,
    Waiting,
    printable,
    printable_failure,
)

_ID_CHARACTERS = 6
_MISSED_MAX = 3


class Asking:
    """A request from `begin` on; `hold` must run until it ends."""

    def __init__(self, wire: GreetingStream, limits: MeshLimits) -> None:
        self._wire = wire
        self._limits = limits
        self._bell = Wakeup()
        self._outcome: Granted | ExoctlError | None = None
        self.request: JoinRequest | None = None
        self.met: Met | None = None

    @property
    def is_open(self) -> bool:
        """Whether an answer may still come."""
        return self._outcome is None

    async def begin(self, dialler: Dialler, met: Met, address: Address) -> JoinRequest:
        """Prove the own id and agree on a code with the member.

        Raises:
            RefusedError: it does not let anybody ask now, with its reason.
            HandshakeError: it breaks the protocol, or its nonce is not the one it promised.
        """
        await dialler.send_proof(met)
        answer, _ = await self._wire.receive()
        if isinstance(answer, Verdict):
            raise RefusedError(_reason(answer))
        if not isinstance(answer, Commitment):
            raise HandshakeError(f"{type(answer).__name__} came where a commitment is due")
        nonce = new_nonce()
        await self._wire.send(Revelation(nonce=nonce))
        theirs, _ = await self._wire.expect(Revelation)
        if hashlib.sha256(theirs.nonce).digest() != answer.digest:
            raise HandshakeError("its nonce is not the one that it promised")
        now = clock.wall()
        self.met = met
        self.request = JoinRequest(
            id="j-" + clock.random_hex(_ID_CHARACTERS),
            node=met.peer,
            name=printable(met.bearing.name) or short(met.peer),
            address=address,
            code=met.exchange.comparison_code(nonce, theirs.nonce),
            since=now,
            expires_at=now + self._limits.request_seconds,
            version=printable(met.bearing.version),
        )
        return self.request

    async def hold(self) -> None:
        """Hear the member until it has decided or is gone."""
        patience_seconds = _MISSED_MAX * self._limits.waiting_seconds
        try:
            while True:
                with anyio.fail_after(patience_seconds):
                    said, _ = await self._wire.receive()
                match said:
                    case Waiting():
                        continue
                    case Granted():
                        self._end(said)
                    case Verdict():
                        self._end(RefusedError(_reason(said)))
                    case _:
                        raise HandshakeError(f"{type(said).__name__} came where a verdict is due")
                return
        except TimeoutError:
            self._end(_gone(f"silent for {patience_seconds:.0f} s"))
        except CONNECTION_ERRORS as error:
            self._end(_gone(describe(error)))
        finally:
            if self._outcome is None:
                self._end(_gone("this node stops"))
            if not isinstance(self._outcome, Granted):
                await self.close()

    async def confirm(self) -> None:
        """Tell the member that the codes are equal here."""
        if self.request is not None:
            self.request = msgspec.structs.replace(self.request, is_confirmed=True)
        await self._tell(Verdict())

    async def withdraw(self, failure: Failure) -> None:
        """Tell the member that this node does not come, and close."""
        await self._tell(Verdict(refusal=failure))
        self._end(ConflictError(failure))
        await self.close()

    async def outcome(self, seconds: float) -> Granted:
        """What the member decided, once it has.

        Raises:
            RefusedError: no. UnreachableError: it is gone. TimeoutExpiredError: not yet.
        """
        if self._outcome is None:
            await self._bell.wait(seconds)
        if self._outcome is None:
            raise TimeoutExpiredError.because(
                "join_not_approved",
                f"nobody approved it within {seconds:.0f} s",
                "approve it on a member (`A` in the app, or `exoctl cluster approve`), ask again",
            )
        if isinstance(self._outcome, ExoctlError):
            raise self._outcome
        return self._outcome

    async def close(self) -> None:
        """Close the connection."""
        with anyio.CancelScope(shield=True):
            await close_stream(self._wire.stream)

    async def _tell(self, verdict: Verdict) -> None:
        try:
            with anyio.fail_after(self._limits.farewell_seconds):
                await self._wire.send(verdict)
        except (TimeoutError, *CONNECTION_ERRORS):
            return  # `hold` hears of it

    def _end(self, outcome: Granted | ExoctlError) -> None:
        self._outcome = self._outcome or outcome
        self._bell.ring()


class Askings:
    """The one request of this node; a new one takes the place of the one before."""

    def __init__(self) -> None:
        self._current: Asking | None = None

    @property
    def request(self) -> JoinRequest | None:
        """What is shown while an answer may still come."""
        current = self._current
        return current.request if current is not None and current.is_open else None

    async def replace(self, asking: Asking) -> None:
        """Hold this one from now on."""
        earlier, self._current = self._current, asking
        if earlier is not None and earlier.is_open:
            await earlier.withdraw(
                Failure(code="join_withdrawn", message="this node has asked elsewhere")
            )

    def find(self, request: str) -> Asking:
        """The request with this id.

        Raises:
            NotFoundError: this node does not ask by it.
        """
        current = self._current
        if current is None or current.request is None or current.request.id != request:
            raise NotFoundError.because(
                "no_such_request",
                f"this node does not ask to join as {request[:40]!r}",
                "begin anew: `exoctl cluster join`",
            )
        return current

    async def settle(self, asking: Asking, seconds: float, is_free: Callable[[], bool]) -> Granted:
        """Confirm, wait for the member, and take what it grants where this node is still free.

        Raises:
            RefusedError, UnreachableError, TimeoutExpiredError: as `Asking.outcome`.
            ConflictError: this node is not free to go over any more.
        """
        await asking.confirm()
        try:
            granted = await asking.outcome(seconds)
        except BaseException:
            # Nobody waits for the answer any more: the cluster must not count on this node.
            gone = Failure(code="join_withdrawn", message="it has given up waiting")
            with anyio.CancelScope(shield=True):
                await asking.withdraw(gone)
            raise
        if not is_free():
            failure = Failure(
                code="join_declined", message="this node is not alone any more: it stays"
            )
            await asking.withdraw(failure)
            raise ConflictError(failure)
        await asking.close()
        return granted


def busy(name: str) -> BusyError:
    """The refusal of a request while another join is under way."""
    error = BusyError.because("join_busy", f"{name} joins a cluster at this moment", "try again")
    assert isinstance(error, BusyError)
    return error


def _reason(verdict: Verdict) -> Failure:
    refusal = verdict.refusal or Failure(code="refused", message="no reason was given")
    return printable_failure(refusal)


def _gone(why: str) -> ExoctlError:
    return UnreachableError.because(
        "join_interrupted", f"the member that was asked is gone: {why}", "ask again"
    )
