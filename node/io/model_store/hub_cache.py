"""The hub's own cache layout, so that other programs see the files too.

models--OWNER--NAME/blobs/HASH            the bytes
snapshots/COMMIT/FILE  links to them
refs/REVISION          the commit that a revision named
.exoctl/               ours: parts, sums, listings, lock
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Generator, Iterable
from pathlib import Path

import msgspec

from node.core.hub_files import is_commit, is_revision, is_safe_name, is_sound
from node.io.durability import replace_file, sync_directory
from node.io.hub.part_file import (
    PART_SUFFIX,
    bytes_of_part,
    hash_file,
    is_proved,
    part_path,
    sums_path,
    write_sums,
)
from node.io.model_store.names import parse_model_id
from node.io.model_store.weight_files import NONSENSE
from node.model.download import Listing, RemoteFile
from node.model.errors import ConflictError, UsageError
from node.model.ids import ModelId

PREFIX = "models--"
OWN = ".exoctl"
SNAPSHOTS = "snapshots"
LISTING_BYTES_MAX = 4 * 1024 * 1024
_SEPARATOR = "--"
_HASH_LENGTHS = (40, 64)

_listing: msgspec.json.Decoder[Listing] = msgspec.json.Decoder(Listing)


def model_of(folder_name: str) -> ModelId | None:
    """The repository that a folder of the cache stands for."""
    if not folder_name.startswith(PREFIX):
        return None
    try:
        return parse_model_id(folder_name.removeprefix(PREFIX).replace(_SEPARATOR, "/", 1))
    except UsageError:
        return None


class Repository:
    """One repository below a model directory; every call is blocking and may raise OSError."""

    def __init__(self, root: Path, repo: ModelId) -> None:
        """Raises UsageError where the name can't be one."""
        parse_model_id(repo)
        self.repo = repo
        self.directory = root / (PREFIX + repo.replace("/", _SEPARATOR))
        self.own = self.directory / OWN
        self._blobs = self.directory / "blobs"
        self._snapshots = self.directory / SNAPSHOTS
        self._refs = self.directory / "refs"

    def prepare(self) -> None:
        """Make the folders."""
        for folder in (self._blobs, self._snapshots, self.own):
            folder.mkdir(parents=True, exist_ok=True)

    def blob(self, file: RemoteFile) -> Path:
        """Where a file's bytes lie once they are whole."""
        return self._blobs / file.hash

    def has(self, file: RemoteFile) -> bool:
        """Whether they lie there at their full size, and were hashed when they came."""
        try:
            return self.blob(file).stat().st_size == file.size and is_proved(self.own, file)
        except OSError:
            return False

    def prove(self, file: RemoteFile) -> bool:
        """Hash a file that lies there; one that is not what was promised becomes a part, so that
        what is sound of it need not come again.
        """
        try:
            running = hash_file(self.blob(file), file)
        except FileNotFoundError:
            return False
        if running.length == file.size and running.hexdigest() == file.hash:
            write_sums(sums_path(self.own, file), running.all_digests())
            return True
        part = part_path(self.own, file)
        if not part.exists():
            self.blob(file).replace(part)
        else:
            self.blob(file).unlink()
        return False

    def bytes_here(self, files: Iterable[RemoteFile]) -> int:
        """How much of the files is here, whole or on its way; by their sizes alone."""
        return sum(file.size if self.has(file) else bytes_of_part(self.own, file) for file in files)

    # -- what is fetched ---------------------------------------------------------------------------

    def keep_listing(self, listing: Listing) -> None:
        """Write down what the commit consists of, so that a restart needs no hub."""
        self.own.mkdir(parents=True, exist_ok=True)
        replace_file(self._listing_path(listing.commit), msgspec.json.encode(listing), 0o644)

    def listing(self, commit: str) -> Listing | None:
        """What the commit consists of, where that was kept."""
        path = self._listing_path(commit)
        try:
            if not is_commit(commit) or path.stat().st_size > LISTING_BYTES_MAX:
                return None
            found = _listing.decode(path.read_bytes())
        except (OSError, *NONSENSE):
            return None
        is_of_here = found.commit == commit and found.repo == self.repo
        return found if is_of_here and is_sound(found) else None

    def listings(self) -> list[Path]:
        """Every listing that is kept, the newest first."""
        found = list(self.own.glob("listing-*.json"))
        return sorted(found, key=lambda path: -path.stat().st_mtime)

    @contextlib.contextmanager
    def lock(self) -> Generator[bool]:
        """Whether this process alone writes here; held until the end of the block."""
        self.own.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.own / "lock", flags, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_ours = True
            except BlockingIOError:
                is_ours = False
            yield is_ours
        finally:
            os.close(descriptor)

    # -- what is whole -----------------------------------------------------------------------------

    def publish(self, listing: Listing, files: Iterable[RemoteFile]) -> Path:
        """Make the commit's directory out of files that are whole, all at once."""
        target = self._snapshots / listing.commit
        made = self.own / f"snapshot-{listing.commit}"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        for file in files:
            if not is_safe_name(file.path):
                raise OSError(f"{file.path!r} is no name of a file")
            (made / file.path).symlink_to(Path("..") / ".." / "blobs" / file.hash)
        if target.exists():  # another program has begun it: only what it lacks is added
            for link in made.iterdir():
                place = target / link.name
                if place.is_symlink() or place.exists():
                    place.unlink()
                link.replace(place)
            made.rmdir()
        else:
            made.replace(target)
        sync_directory(self._snapshots)
        self._point(listing.revision, listing.commit)
        replace_file(self.own / "current", listing.commit.encode(), 0o644)
        return target

    def current(self) -> Path | None:
        """The directory of the revision that counts: the last one fetched here, else `main`, else
        the newest.
        """
        for pointer in (self.own / "current", self._refs / "main"):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                commit = pointer.read_bytes()[:64].decode().strip()
                if is_commit(commit) and (self._snapshots / commit).is_dir():
                    return self._snapshots / commit
        newest: tuple[float, Path] | None = None
        with contextlib.suppress(OSError):
            for path in self._snapshots.iterdir():
                if is_commit(path.name) and path.is_dir():
                    newest = max(newest or (0.0, path), (path.stat().st_mtime, path))
        return newest[1] if newest else None

    def revision_of(self, commit: str) -> str:
        """The name under which the commit was asked for."""
        listing = self.listing(commit)
        return listing.revision if listing else "main"

    # -- deleting ----------------------------------------------------------------------------------

    def drop_parts(self) -> int:
        """Delete what was fetched in part; returns the bytes freed.

        Nothing where somebody writes here, as another node of this machine: the parts are theirs.
        """
        freed = 0
        if not self.own.is_dir():
            return freed
        with contextlib.suppress(OSError), self.lock() as is_ours:
            for path in self.own.glob(f"*{PART_SUFFIX}") if is_ours else ():
                freed += path.stat().st_size
                path.unlink()
        return freed

    def drop_unused(self) -> int:
        """Delete revisions of ours that the current one replaced, and bytes that none uses.

        What another program has fetched into the same cache stays.
        """
        current = self.current()
        if current is None:
            return self.drop_parts()
        for path in list(self._snapshots.iterdir()):
            if path != current and self.listing(path.name) is not None:
                shutil.rmtree(path)
        used = {path.resolve().name for path in self._snapshots.rglob("*") if path.is_symlink()}
        freed = self.drop_parts()
        for path in list(self._blobs.iterdir()):
            if path.name not in used and len(path.name) in _HASH_LENGTHS:
                freed += path.stat().st_size
                path.unlink()
        return freed

    def remove(self) -> int:
        """Delete the repository's files and nothing else; returns the bytes freed.

        Raises:
            ConflictError: somebody writes here, as another node of this machine.
        """
        freed = 0
        with self.lock() as is_ours:
            if not is_ours:
                raise ConflictError.because(
                    "model_in_use",
                    f"another node of this machine is fetching into {self.directory}",
                    "wait until it has it, or give the download up there",
                )
        for folder in (self._blobs, self.own):
            with contextlib.suppress(OSError):
                freed += sum(path.lstat().st_size for path in folder.iterdir())
        shutil.rmtree(self.directory)
        return freed

    def _listing_path(self, commit: str) -> Path:
        return self.own / f"listing-{commit}.json"

    def _point(self, revision: str, commit: str) -> None:
        if is_commit(revision) or not is_revision(revision):
            return
        path = self._refs / revision
        if not path.resolve().is_relative_to(self._refs.resolve()):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, commit.encode(), 0o644)
