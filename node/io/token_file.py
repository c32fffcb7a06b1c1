"""Named tokens of a node's API: what they open, until when, and only a digest of each on disk."""

import fcntl
import hashlib
import hmac
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from node.config import TOKENS_NAME
from node.io import clock
from node.log import logger
from node.model.errors import ConflictError, NotFoundError, RefusedError, UsageError

TOKENS_MAX = 100
NAME_CHARACTERS_MAX = 64
FILE_BYTES_MAX = 64 * 1024
TOKEN_HEX_CHARACTERS = 64
"""256 bit of chance: a plain digest of it is as good as any slow one."""
PREFIX = "exoctl-"

Scope = Literal["inference", "admin"]
_log = logger("api")


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A token, without itself."""

    name: str
    scope: Scope
    """`inference`: asking models and listing them; `admin`: everything."""
    digest: str
    """SHA-256 of the token, in hex."""
    created_at: float
    """Wall clock, seconds since 1970."""
    expires_at: float = 0.0
    """0: never."""

    def is_good(self, now: float) -> bool:
        """Whether it has not expired."""
        return not self.expires_at or now < self.expires_at


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 1
    tokens: tuple[TokenRecord, ...] = ()


class TokenFile:
    """The file of one state directory; a change by another process holds from the next request."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / TOKENS_NAME
        self._seen: tuple[int, ...] | None = None
        self._tokens: tuple[TokenRecord, ...] = ()

    def tokens(self) -> tuple[TokenRecord, ...]:
        """Every token, the oldest first.

        Raises:
            RefusedError: others may read or write the file, or it can't be read.
            ConflictError: it is damaged.
        """
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                content = file.read(FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise RefusedError.because(
                "tokens_unreadable", f"{self._path}: {error.strerror}", "see its owner and mode"
            ) from error
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o077:
            raise RefusedError.because(
                "tokens_exposed",
                f"{self._path} has mode {mode:04o}: others could let themselves in",
                f"chmod 600 {self._path}",
            )
        try:
            return msgspec.json.decode(content, type=_File).tokens
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConflictError.because(
                "tokens_damaged",
                f"{self._path}: {error}",
                f"restore it, or remove it and make new tokens: rm {self._path}",
            ) from error

    def create(self, name: str, scope: Scope, lifetime_seconds: float, now: float) -> str:
        """A new token, told this once; a lifetime of 0 never ends.

        Raises:
            ConflictError: the name is taken, or there are too many. UsageError: it can't be one.
            RefusedError: the file can't be used.
        """
        if not name.isprintable() or not 0 < len(name.strip()) <= NAME_CHARACTERS_MAX:
            raise UsageError.because(
                "bad_token_name",
                f"a token can't be called {name[:NAME_CHARACTERS_MAX]!r}",
                f"use 1 to {NAME_CHARACTERS_MAX} printable characters",
            )
        token = PREFIX + clock.random_hex(TOKEN_HEX_CHARACTERS)
        with self._locked():
            tokens = self.tokens()
            if any(one.name == name for one in tokens):
                raise ConflictError.because(
                    "token_exists",
                    f"there is a token {name!r} already",
                    f"take another name, or first: exoctl token revoke {name}",
                )
            if len(tokens) >= TOKENS_MAX:
                raise ConflictError.because(
                    "too_many_tokens", f"there are {TOKENS_MAX} tokens", "revoke one"
                )
            record = TokenRecord(
                name=name,
                scope=scope,
                digest=_digest(token.encode()),
                created_at=now,
                expires_at=now + lifetime_seconds if lifetime_seconds else 0.0,
            )
            self._write((*tokens, record))
        return token

    def revoke(self, name: str) -> TokenRecord:
        """Take a token out; a node that runs refuses it from now on.

        Raises:
            NotFoundError: no token has the name.
        """
        with self._locked():
            tokens = self.tokens()
            for record in tokens:
                if record.name == name:
                    self._write(tuple(one for one in tokens if one is not record))
                    return record
        known = ", ".join(one.name for one in tokens) or "none"
        raise NotFoundError.because(
            "no_such_token", f"no token is called {name[:60]!r}", f"there are: {known}"
        )

    def scope_of(self, given: bytes, now: float) -> Scope | None:
        """What a token opens; None where it is none, or expired."""
        self._refresh()
        digest = _digest(given).encode()
        scope: Scope | None = None
        for record in self._tokens:
            # Every one is compared: the time taken tells nothing.
            if hmac.compare_digest(record.digest.encode(), digest) and record.is_good(now):
                scope = record.scope
        return scope

    def _refresh(self) -> None:
        try:
            found = self._path.stat()
            # The time of a change of its mode too: the remedy for an exposed file is one.
            seen = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
        except OSError:
            seen = None
        if seen == self._seen:
            return
        self._seen, self._tokens = seen, ()
        if seen is None:
            return
        try:
            self._tokens = self.tokens()
        except (RefusedError, ConflictError) as error:
            _log.error("no token is accepted: %s", error.failure.message)

    @contextmanager
    def _locked(self) -> Generator[None]:
        """One change at a time, whichever process makes it."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = self._path.with_name(f".{TOKENS_NAME}.lock")
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise RefusedError.because(
                "tokens_unwritable", f"{error.filename or self._path}: {error.strerror}"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _write(self, tokens: tuple[TokenRecord, ...]) -> None:
        temporary = self._path.with_name(f".{TOKENS_NAME}.{clock.random_hex(8)}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(_File(tokens=tokens)))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise RefusedError.because(
                "tokens_unwritable", f"{self._path}: {error.strerror}", "free some room"
            ) from error


def _digest(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()
