"""What a node leaves behind whose key is gone: this machine is another node from now on."""

from pathlib import Path

from node.io import clock
from node.io.address_book import BOOK_NAME
from node.io.durability import sync_directory
from node.log import logger
from node.model.errors import ConflictError

FORMER = "former-node"
LOG = "log"

_log = logger("node")


def leave_former_life(state_directory: Path) -> None:
    """Set aside the log and the address book of a node that this machine was under another key.

    A new node is no member of that one's cluster, and can neither lead it nor leave it.

    Raises:
        ConflictError: the system refuses, with what is in the way.
    """
    left = [path for name in (LOG, BOOK_NAME) if (path := state_directory / name).exists()]
    if not any(path.name == LOG for path in left):
        return
    target = state_directory / f"{FORMER}-{int(clock.wall())}-{clock.random_hex(4)}"
    try:
        target.mkdir(mode=0o700)
        for path in left:
            path.rename(target / path.name)
        sync_directory(state_directory)
    except OSError as error:
        raise ConflictError.because(
            "former_node",
            f"the log of the node that this was under another key can't be set aside:"
            f" {error.filename or state_directory}: {error.strerror or error}",
            f"move {state_directory / LOG} away",
        ) from error
    _log.error(
        "this machine's key is gone, so it is a new node; the log of the former one is in %s",
        target,
    )
