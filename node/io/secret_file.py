"""The secret of a fleet: whoever has the file may join without being asked."""

import hashlib
import hmac
import os
import stat
from pathlib import Path

from node.io import clock
from node.model.errors import RefusedError, UsageError

SECRET_BYTES_MIN = 16
"""128 bit: nobody guesses it, not even offline."""
SECRET_BYTES_MAX = 4096
_SECRET_HEX_CHARACTERS = 64
_SALT = b"exoctl-secret-v1"


def load_secret(path: Path) -> bytes:
    """The key that the file's secret stands for.

    Raises:
        RefusedError: others may read the file, or it can't be read.
        UsageError: it is too short for a secret, or too long.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            secret = file.read(SECRET_BYTES_MAX + 1).strip()
    except OSError as error:
        raise RefusedError.because(
            "secret_unreadable",
            f"{path}: {error.strerror}",
            "see the path, its owner and mode; or start without a secret file",
        ) from error
    if mode & 0o077:
        raise RefusedError.because(
            "secret_exposed",
            f"{path} has mode {mode:04o}: others of this machine could join with it",
            f"chmod 600 {path}",
        )
    _check_length(len(secret), path)
    return hmac.digest(_SALT, secret, hashlib.sha256)


def _check_length(count: int, path: Path) -> None:
    if not SECRET_BYTES_MIN <= count <= SECRET_BYTES_MAX:
        raise UsageError.because(
            "bad_secret",
            f"{path} holds {count} bytes; {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} make one",
            f"head -c 32 /dev/urandom | base64 > {path}",
        )


def new_secret() -> str:
    """A fresh secret, as it stands in a file."""
    return clock.random_hex(_SECRET_HEX_CHARACTERS)


def write_secret(path: Path, secret: str) -> None:
    """Put a secret in the place of the file's, for its owner alone.

    Raises:
        UsageError: it can't be one. RefusedError: it can't be written. The old one holds.
    """
    if not (secret.isascii() and secret.isprintable()):
        raise UsageError.because("bad_secret", "a secret is one line of plain characters")
    _check_length(len(secret), path)
    temporary = path.with_name(f".{path.name}.{clock.random_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secret + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RefusedError.because(
            "secret_unwritable", f"{path}: {error.strerror}", "see its directory's owner and mode"
        ) from error
