"""Open the port of the mesh, or say who has it."""

import errno

import anyio
from anyio.abc import SocketListener

from node.io.port_owner import port_owner
from node.model.errors import ConflictError, RefusedError, UsageError


async def listen(bind: str, port: int) -> list[SocketListener]:
    """Listen on a host (empty: every address of the machine) and a port (0: a free one).

    Raises:
        ConflictError: the port is taken; names who has it where that can be told.
        RefusedError: this user may not listen on the port.
        UsageError: the host is none of this machine's.
    """
    try:
        listener = await anyio.create_tcp_listener(local_host=bind or None, local_port=port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            owner = await anyio.to_thread.run_sync(port_owner, port)
            raise ConflictError.because(
                "port_taken",
                f"port {port} is taken by {owner or 'another process'}",
                "stop it, or choose another port with --port (0: a free one)",
            ) from error
        if error.errno == errno.EACCES:
            raise RefusedError.because(
                "port_forbidden",
                f"this user may not listen on port {port}",
                "choose a port above 1023 with --port",
            ) from error
        raise UsageError.because(
            "cannot_listen",
            f"cannot listen on {bind or 'every address'}, port {port}: {error.strerror or error}",
            "give an address of this machine with --bind",
        ) from error
    return [one for one in listener.listeners if isinstance(one, SocketListener)]
