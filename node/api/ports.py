"""The API's listening sockets, and who has a port that is taken."""

import errno
import socket

from node.api.guard import is_loopback
from node.io.port_owner import port_owner
from node.model.errors import ConflictError, ExoctlError, UsageError
from node.model.machine import Address

BACKLOG = 64
"""Connections that wait to be accepted; all may be accepted, each with its file, in one go."""


def open_sockets(host: str, port: int) -> tuple[Address, list[socket.socket]]:
    """Listen on a host; on plain loopback also on ::1, since `localhost` may mean either.

    Asks for names, and for a port's owner: call it in a thread.

    Raises:
        ConflictError: the port is taken; names its owner where the system tells.
        UsageError: the host is no address of this machine, or the port may not be used.
    """
    first = _open(host, port)
    address = Address(host, int(first.getsockname()[1]))
    sockets = [first]
    if host in ("127.0.0.1", "localhost"):
        second = "::1" if first.family == socket.AF_INET else "127.0.0.1"
        try:
            sockets.append(_listen(second, address.port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port:
                first.close()
                raise _port_taken(second, port) from error
    return address, sockets


def _open(host: str, port: int) -> socket.socket:
    try:
        return _listen(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise _port_taken(host, port) from error
        reason = error.strerror or str(error)
        raise UsageError.because(
            "api_address",
            f"the API can't listen on {Address(host, port)}: {reason}",
            "set --api-host to an address of this machine, and --api-port to a free port",
        ) from error


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(is_loopback(host)))
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.settimeout(0)
    except OSError:
        listener.close()
        raise
    return listener


def _port_taken(host: str, port: int) -> ExoctlError:
    """What a person hears whose port is taken."""
    owner = port_owner(port)
    by = f" by {owner}" if owner else ""
    return ConflictError.because(
        "api_port_taken",
        f"the API's port {Address(host, port)} is taken{by}",
        "stop that program, or give this node another --api-port (0 takes a free one)",
    )
