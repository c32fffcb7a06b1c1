"""Reach a node at one of its addresses: TCP, TLS, and the identity that the server proves."""

import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import cast

import anyio
import msgspec

from node.io.mesh import tls
from node.io.mesh.channel import CONNECTION_ERRORS, close_stream
from node.io.mesh.limits import MeshLimits
from node.io.mesh.relay import RELAYED, RelayStream
from node.io.mesh.tls_stream import TlsStream
from node.model.errors import Failure
from node.model.ids import NodeId, short
from node.model.machine import Address
from node.wire.handshake import HandshakeError

_NO_ROUTE = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EADDRNOTAVAIL}


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """A server that proved an identity; the dialler must close the stream."""

    address: Address
    server: NodeId
    certificate: bytes
    stream: TlsStream
    via: NodeId = NodeId("")
    """The member that passes the bytes on, where there is one."""


class Missed(msgspec.Struct, frozen=True, kw_only=True):
    """An address at which the wanted node was not reached."""

    address: Address
    failure: Failure
    found: NodeId | None = None
    """Who is there instead."""


OnMissed = Callable[[Missed], None]


class _MissedError(Exception):
    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.failure = Failure(code=code, message=message, remedy=remedy)


class Reacher:
    """Dials; one for the life of a mesh."""

    def __init__(self, limits: MeshLimits) -> None:
        self._limits = limits
        self._context = tls.client_context()

    async def reach_first(
        self, addresses: Sequence[Address], pinned: NodeId | None, on_missed: OnMissed
    ) -> Reached | None:
        """Dial the addresses, two at once and each further one a little later; the first that
        answers as the pinned node (None: as any) wins. `on_missed` hears of others as they fail.
        """
        reached: list[Reached] = []

        async def attempt(address: Address, delay_seconds: float) -> None:
            await anyio.sleep(delay_seconds)
            try:
                found = await self._reach(address)
            except _MissedError as error:
                on_missed(Missed(address=address, failure=error.failure))
                return
            if pinned is not None and found.server != pinned:
                await close_stream(found.stream)
                on_missed(_wrong_identity(found, pinned))
            elif reached:
                await close_stream(found.stream)
            else:
                reached.append(found)
                group.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as group:
                for position, address in enumerate(addresses):
                    delay_seconds = max(0, position - 1) * self._limits.stagger_seconds
                    group.start_soon(attempt, address, delay_seconds)
        except BaseException:
            for found in reached:
                await close_stream(found.stream)
            raise
        return reached[0] if reached else None

    async def reach_through(self, stream: RelayStream) -> Reached | None:
        """Do TLS with the node at the other end of a stream through a third; None where it is not
        there.
        """
        reached = None
        try:
            with anyio.fail_after(self._limits.handshake_seconds):
                wrapped = await tls.wrap(stream, self._context, server_side=False)
                server, certificate = tls.server_of(wrapped)
            if server == stream.peer:
                reached = Reached(
                    address=RELAYED,
                    server=server,
                    certificate=certificate,
                    stream=wrapped,
                    via=stream.via,
                )
        except (TimeoutError, *CONNECTION_ERRORS):
            reached = None
        finally:
            if reached is None:
                await close_stream(stream)
        return reached

    async def _reach(self, address: Address) -> Reached:
        try:
            with anyio.fail_after(self._limits.connect_seconds):
                connection = await anyio.connect_tcp(address.host, address.port)
        except TimeoutError:
            raise _MissedError(
                "timeout",
                f"{address} did not answer within {self._limits.connect_seconds:.0f} s",
                "check that the machine is on and that no firewall drops the port",
            ) from None
        except (OSError, ValueError, OverflowError, ExceptionGroup) as error:
            # A host or port that can be none: anyio wraps what it does not expect in a group.
            raise _connect_failure(address, error) from error
        try:
            with anyio.fail_after(self._limits.handshake_seconds):
                stream = await tls.wrap(connection, self._context, server_side=False)
                server, certificate = tls.server_of(stream)
        except TimeoutError:
            await close_stream(connection)
            raise _MissedError(
                "timeout",
                f"{address} did not finish the TLS handshake within"
                f" {self._limits.handshake_seconds:.0f} s",
                "check that exoctl listens there",
            ) from None
        except CONNECTION_ERRORS as error:
            await close_stream(connection)
            raise _handshake_failure(address, error) from error
        except BaseException:
            await close_stream(connection)
            raise
        return Reached(address=address, server=server, certificate=certificate, stream=stream)


def _wrong_identity(found: Reached, pinned: NodeId) -> Missed:
    return Missed(
        address=found.address,
        found=found.server,
        failure=Failure(
            code="wrong_identity",
            message=f"{found.address} is {short(found.server)}, not {short(pinned)}",
            remedy="the address now belongs to another node, or somebody poses as it",
        ),
    )


def _connect_failure(address: Address, error: Exception) -> _MissedError:
    leaves = _leaves(error)
    errors = [one for one in leaves if isinstance(one, OSError)]
    numbers = {one.errno for one in errors}
    if len(errors) < len(leaves):
        return _MissedError("bad_address", f"{address} is no address: {leaves[0]}", "")
    if any(isinstance(one, socket.gaierror) for one in errors):
        return _MissedError("unresolvable", f"no such host: {address.host}", "check the name")
    if numbers == {errno.ECONNREFUSED}:
        return _MissedError(
            "refused", f"{address} refuses: nothing listens there", "start exoctl there"
        )
    if numbers & _NO_ROUTE:
        return _MissedError(
            "unreachable",
            f"no route to {address}",
            "check cable and network; on a Mac also System Settings > Privacy & Security >"
            " Local Network for the terminal that runs exoctl",
        )
    words = "; ".join(sorted({one.strerror or str(one) for one in errors})) or str(error)
    return _MissedError("unreachable", f"{address}: {words}", "")


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return [leaf for one in group.exceptions for leaf in _leaves(one)]
    cause = error.__cause__
    return [error] if cause is None else _leaves(cause)


def _handshake_failure(address: Address, error: Exception) -> _MissedError:
    if isinstance(error, ssl.SSLError | HandshakeError):
        return _MissedError(
            "not_exoctl",
            f"what answers at {address} does not speak exoctl's protocol",
            "check the port: nodes listen on the cluster port, not on the API's",
        )
    return _MissedError(
        "dropped", f"{address} closed the connection during the handshake", "it may be busy"
    )
