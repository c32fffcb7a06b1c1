"""How a node and its runner prove to each other, on each connection, that they belong together.

The node that starts a runner gives it a secret and keeps the same in its state directory, so that
its next life can claim the runner. The secret itself never goes over the socket.
"""

import hmac
from typing import Literal

from node.model.ids import RunnerId

NONCE_BYTES = 16
SECRET_BYTES = 32
VARIABLE = "EXOCTL_RUNNER_SECRET"
"""Of the variable in the runner's environment that holds the secret, in hexadecimal digits."""

Side = Literal["node", "runner"]


def proof(side: Side, secret: bytes, runner: RunnerId, nonce: bytes, incarnation: int) -> bytes:
    """What `side` shows for a nonce of the other side, in that very life of the node."""
    said = b"\0".join((side.encode(), runner.encode(), str(incarnation).encode(), nonce))
    return hmac.digest(secret, said, "sha256")


def is_proof(shown: bytes, expected: bytes) -> bool:
    """Whether they are the same, in a time that tells nothing."""
    return hmac.compare_digest(shown, expected)


def is_secret(text: str) -> bool:
    """Whether the text can be a secret, in hexadecimal digits."""
    return len(text) == 2 * SECRET_BYTES and not set(text) - set("0123456789abcdef")
