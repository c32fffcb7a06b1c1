"""Bytes that stay: syncs that mean it, files replaced whole."""

import contextlib
import fcntl
import os
import sys
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"
_FULL = getattr(fcntl, "F_FULLFSYNC", None)
_BARRIER = 85 if sys.platform == "darwin" else None
"""F_BARRIERFSYNC of macOS: orders writes without emptying the drive's cache (17-18 ms each)."""


class SyncFailedError(OSError):
    """What is on disk is unknown, and a second sync may say yes without meaning it."""


def sync_file(descriptor: int, *, full: bool) -> None:
    """Make what was written to a file survive a crash; `full` a power cut too, on Apple drives."""
    if full and _FULL is not None:
        fcntl.fcntl(descriptor, _FULL)
    elif _BARRIER is not None:
        fcntl.fcntl(descriptor, _BARRIER)
    else:
        os.fdatasync(descriptor)


def sync_directory(directory: Path) -> None:
    """Make names that were created, renamed or removed in a directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file whole or not at all: temporary sibling, sync, rename, sync of the directory.

    Raises:
        SyncFailedError: the file is there, and whether it stays is unknown.
        OSError: nothing changed; trying again is sound.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            sync_file(descriptor, full=True)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    try:
        sync_directory(path.parent)
    except OSError as error:
        raise SyncFailedError(error.errno, error.strerror, str(path.parent)) from error
