"""Who may speak to a runner: callers on its socket that prove to be its node, and no one else."""

import logging
import os
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from node.model.ids import RunnerId
from node.runner.claim import NONCE_BYTES, is_proof, proof
from node.runner.frames import FrameBuffer, FrameError, encode_frame
from node.runner.protocol import Challenge, Claim, NodeMessage

CLAIM_SECONDS = 5.0
"""How long a caller has to prove itself."""
CALLERS_MAX = 8
"""Callers that have not proved themselves yet; at one more the first of them is turned away."""
CLAIM_BYTES_MAX = 4096
logger = logging.getLogger(__name__)


class Admitted(NamedTuple):
    """A caller whose claim holds."""

    connection: socket.socket
    proof: bytes
    """To be shown to it."""
    buffer: FrameBuffer[NodeMessage]
    messages: list[NodeMessage]
    """What it said right after its claim."""


class _Caller:
    def __init__(self) -> None:
        self.nonce = os.urandom(NONCE_BYTES)
        self.since = time.monotonic()
        self.buffer: FrameBuffer[NodeMessage] = FrameBuffer(NodeMessage)  # type: ignore[arg-type]
        self.bytes_read = 0


class Door:
    """Listens on the runner's socket. A caller gets nowhere near the runner before its claim holds:
    neither a wrong process nor an earlier life of the node can take the runner from its node.
    """

    def __init__(
        self,
        path: Path,
        runner: RunnerId,
        secret: bytes,
        selector: selectors.BaseSelector,
        let_in: Callable[[Admitted], None],
    ) -> None:
        """`let_in` takes over a connection that has proved itself."""
        self._path = path
        self._runner = runner
        self._secret = secret
        self._selector = selector
        self._let_in = let_in
        self._callers: dict[socket.socket, _Caller] = {}
        self._incarnation = 0
        self._listener: socket.socket | None = None
        self._file: tuple[int, int] | None = None

    def open(self) -> None:
        """Listen, for this user alone.

        Raises:
            OSError: the socket can't be made.
        """
        listener = self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._path.unlink(missing_ok=True)
        earlier = os.umask(0o177)
        try:
            listener.bind(str(self._path))
        finally:
            os.umask(earlier)
        self._file = self._found_file()
        listener.listen(CALLERS_MAX)
        listener.settimeout(0.0)
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))

    def close(self) -> None:
        """Listen no more."""
        for connection in list(self._callers):
            self._turn_away(connection)
        if self._listener is not None:
            self._listener.close()
        if self._file is not None and self._found_file() == self._file:
            self._path.unlink(missing_ok=True)

    def _found_file(self) -> tuple[int, int] | None:
        """Which file the path names now: a later runner may listen under the same name."""
        try:
            found = self._path.lstat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def keep_time(self) -> None:
        """Turn away whoever has taken too long; called once a second or so."""
        late = time.monotonic() - CLAIM_SECONDS
        for connection in [each for each, caller in self._callers.items() if caller.since < late]:
            self._turn_away(connection, "it did not say who it is")

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # it gave up before it was accepted
        if len(self._callers) >= CALLERS_MAX:
            self._turn_away(next(iter(self._callers)), "others call")
        connection.settimeout(0.0)
        caller = self._callers[connection] = _Caller()
        self._selector.register(
            connection, selectors.EVENT_READ, lambda: self._readable(connection)
        )
        try:
            connection.send(encode_frame(Challenge(nonce=caller.nonce)))  # fits into any buffer
        except OSError as error:
            self._turn_away(connection, str(error))

    def _readable(self, connection: socket.socket) -> None:
        caller = self._callers.get(connection)
        if caller is None:
            return  # turned away a moment ago
        try:
            received = connection.recv(CLAIM_BYTES_MAX - caller.bytes_read)
            caller.bytes_read += len(received)
            messages = caller.buffer.feed(received)
        except BlockingIOError:
            return
        except (OSError, FrameError) as error:
            self._turn_away(connection, str(error))
            return
        if messages:
            self._judge(connection, caller, messages)
        elif not received or caller.bytes_read >= CLAIM_BYTES_MAX:
            self._turn_away(connection, "it sent no claim")

    def _judge(
        self, connection: socket.socket, caller: _Caller, messages: list[NodeMessage]
    ) -> None:
        claim = messages[0]
        if not isinstance(claim, Claim):
            self._turn_away(connection, "it spoke before it had proved itself")
            return
        expected = proof("node", self._secret, self._runner, caller.nonce, claim.incarnation)
        if not is_proof(claim.proof, expected):
            self._turn_away(connection, "it is not this runner's node")
            return
        if claim.incarnation < self._incarnation:
            self._turn_away(
                connection, f"it is life {claim.incarnation} of the node, which is over"
            )
            return
        self._incarnation = claim.incarnation
        del self._callers[connection]
        self._selector.unregister(connection)
        own = proof("runner", self._secret, self._runner, claim.nonce, claim.incarnation)
        self._let_in(Admitted(connection, own, caller.buffer, messages[1:]))

    def _turn_away(self, connection: socket.socket, reason: str = "") -> None:
        if reason:
            logger.warning("a caller is turned away: %s", reason)
        del self._callers[connection]
        self._selector.unregister(connection)
        connection.close()
