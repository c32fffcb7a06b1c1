"""A file on its way: its bytes in order, hashed as they come, resumed at the byte where it was.

Beside the part lie its sums: the digest of everything up to each chunk's end. They show where a
part is damaged, and let other nodes check chunk by chunk what they get of it.
"""

import contextlib
import hashlib
import os
from pathlib import Path

from node.io.durability import sync_directory, sync_file
from node.model.download import RemoteFile

CHUNK_BYTES = 4 * 1024 * 1024
READ_BYTES = 1024 * 1024
PART_SUFFIX = ".part"
SUMS_SUFFIX = ".sums"


class WrongHashError(Exception):
    """All bytes are there and hash to something else."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found


def part_path(folder: Path, file: RemoteFile) -> Path:
    """Where the bytes of an unfinished file lie."""
    return folder / (file.hash + PART_SUFFIX)


def sums_path(folder: Path, file: RemoteFile) -> Path:
    """Where its sums lie, also once it is whole."""
    return folder / (file.hash + SUMS_SUFFIX)


def bytes_of_part(folder: Path, file: RemoteFile) -> int:
    """How far a part is, as its size says; cheap, and never more than all."""
    try:
        return min(part_path(folder, file).stat().st_size, file.size)
    except OSError:
        return 0


class WrongChunkError(Exception):
    """Bytes don't hash to what their giver has said; the part is cut back to `sound` bytes."""

    def __init__(self, sound: int) -> None:
        super().__init__(sound)
        self.sound = sound


class Running:
    """A hash that runs along a file and keeps its digest at every chunk's end."""

    def __init__(self, file: RemoteFile) -> None:
        self._hash = (
            hashlib.sha256()
            if file.is_sha256
            else hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
        )
        self.length = 0
        self.digests: list[bytes] = []

    def update(self, data: bytes | memoryview) -> None:
        """Take the next bytes."""
        view = memoryview(data)
        while view:
            room = CHUNK_BYTES - self.length % CHUNK_BYTES
            self._hash.update(view[:room])
            self.length += len(view[:room])
            view = view[room:]
            if self.length % CHUNK_BYTES == 0:
                self.digests.append(self._hash.copy().digest())

    def all_digests(self) -> list[bytes]:
        """The digests, and that of the whole as the last."""
        is_tail = self.length == 0 or self.length % CHUNK_BYTES != 0
        return [*self.digests, self._hash.digest()] if is_tail else list(self.digests)

    def hexdigest(self) -> str:
        """Of everything so far."""
        return self._hash.hexdigest()


class PartFile:
    """Blocking; one owner at a time (the repository's lock sees to it)."""

    def __init__(self, folder: Path, file: RemoteFile) -> None:
        self.file = file
        self._path = part_path(folder, file)
        self._sums = sums_path(folder, file)
        self._descriptor = -1
        self._running = Running(file)
        self._noted = 0

    @property
    def length(self) -> int:
        """Bytes that are there and hashed."""
        return self._running.length

    @property
    def is_full(self) -> bool:
        """Whether all bytes are there."""
        return self.length == self.file.size

    @property
    def digests(self) -> list[bytes]:
        """Of everything up to the end of each whole chunk."""
        return self._running.digests

    def all_digests(self) -> list[bytes]:
        """The digests, and that of everything so far as the last."""
        return self._running.all_digests()

    def open(self) -> None:
        """Take up what is there: hashed anew, cut back to where it is sound.

        Raises:
            OSError: the disk refuses.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, 0o644)
        size = os.fstat(self._descriptor).st_size
        if size > self.file.size:
            os.ftruncate(self._descriptor, 0)  # longer than the file can be: nothing of it is ours
            self._forget_sums()
            return None
        known = self._known_sums()
        while True:
            data = os.pread(self._descriptor, READ_BYTES, self._running.length)
            if not data:
                break
            before = len(self._running.digests)
            self._running.update(data)
            for at in range(before, len(self._running.digests)):
                if at < len(known) and known[at] != self._running.digests[at]:
                    return self.rewind(at * CHUNK_BYTES)
        if self.is_full and self._running.hexdigest() != self.file.hash:
            # The damage lies behind the last chunk whose sum is known.
            return self.rewind(min(len(known), self.file.size // CHUNK_BYTES) * CHUNK_BYTES)
        self._noted = min(len(known), len(self._running.digests))
        return None

    def append(self, data: bytes | memoryview, digest: bytes = b"") -> None:
        """Write the next bytes; with the digest that everything up to their end should have.

        Raises:
            WrongChunkError: it has another. Nothing of the chunk was offered to anybody.
            OSError: the disk refuses; what was taken so far stays.
        """
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, self._running.length)
            self._running.update(view[:written])
            view = view[written:]
        if digest and self.all_digests()[-1] != digest:
            sound = (self.length - 1) // CHUNK_BYTES * CHUNK_BYTES
            self.rewind(sound)
            raise WrongChunkError(sound)
        self._note_sums()

    def rewind(self, length: int) -> None:
        """Go back to an earlier length: what lies behind was wrong."""
        os.ftruncate(self._descriptor, length)
        self._running = Running(self.file)
        self._forget_sums()
        self._noted = 0
        while self._running.length < length:
            wanted = min(READ_BYTES, length - self._running.length)
            data = os.pread(self._descriptor, wanted, self._running.length)
            if not data:
                break
            self._running.update(data)
        self._note_sums()  # others who take from it have not lost what was sound

    def finish(self, target: Path) -> None:
        """Check the hash and give the file its place, for good.

        Raises:
            WrongHashError: the bytes are wrong; the part is gone.
            OSError: the disk refuses.
        """
        found = self._running.hexdigest()
        if found != self.file.hash:
            self.discard()
            raise WrongHashError(found)
        write_sums(self._sums, self._running.all_digests())
        sync_file(self._descriptor, full=True)
        self.close()
        self._path.replace(target)
        sync_directory(target.parent)

    def discard(self) -> None:
        """Throw away what came."""
        self.close()
        self._path.unlink(missing_ok=True)
        self._forget_sums()

    def close(self) -> None:
        """Let go of the file; what came stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _known_sums(self) -> list[bytes]:
        size = 32 if self.file.is_sha256 else 20
        return read_sums(self._sums, size)

    def _note_sums(self) -> None:
        """Sums are a help, not a truth: one that can't be kept costs only that."""
        fresh = self._running.digests[self._noted :]
        if not fresh:
            return
        with contextlib.suppress(OSError):
            mode = "r+b" if self._sums.exists() else "w+b"
            with self._sums.open(mode) as file:
                file.seek(self._noted * len(fresh[0]))
                file.write(b"".join(fresh))
                file.truncate()
            self._noted += len(fresh)

    def _forget_sums(self) -> None:
        with contextlib.suppress(OSError):
            self._sums.unlink(missing_ok=True)


def hash_file(path: Path, file: RemoteFile) -> Running:
    """Hash a file that lies there whole.

    Raises:
        OSError: it can't be read.
    """
    running = Running(file)
    with path.open("rb") as opened:
        while data := opened.read(READ_BYTES):
            running.update(data)
    return running


def write_sums(path: Path, digests: list[bytes]) -> None:
    """Keep the digests of a file; where that fails it will be hashed again."""
    with contextlib.suppress(OSError):
        path.write_bytes(b"".join(digests))


def is_proved(folder: Path, file: RemoteFile) -> bool:
    """Whether the sums say that the whole file was hashed, with the result that was promised."""
    wanted = bytes.fromhex(file.hash)
    digests = read_sums(sums_path(folder, file), len(wanted))
    chunks = max(1, -(-file.size // CHUNK_BYTES))
    return len(digests) == chunks and digests[-1] == wanted


def read_sums(path: Path, digest_bytes: int) -> list[bytes]:
    """The digests in a file of sums; none where there is no such file."""
    try:
        content = path.read_bytes()
    except OSError:
        return []
    whole = len(content) - len(content) % digest_bytes
    return [content[at : at + digest_bytes] for at in range(0, whole, digest_bytes)]
