"""A cache of the hub's that other programs write to as well: only what is ours is ever pruned."""

import hashlib
from pathlib import Path

import pytest

from node.io.model_store.hub_cache import Repository
from node.io.model_store.keeping import prune
from node.model.download import Listing, RemoteFile
from node.model.errors import ConflictError
from node.model.ids import ModelId

MODEL = ModelId("acme/tiny")
OLD, NEW, THEIRS = "a" * 40, "b" * 40, "c" * 40


def lay(root: Path, commit: str, name: str, content: bytes) -> Path:
    """A file of a snapshot as any program lays it into the cache; returns its bytes' place."""
    folder = root / "models--acme--tiny"
    blob = folder / "blobs" / hashlib.sha256(content).hexdigest()
    link = folder / "snapshots" / commit / name
    blob.parent.mkdir(parents=True, exist_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    link.symlink_to(blob)
    return blob


def publish(root: Path, commit: str, content: bytes) -> Path:
    """A revision of one file as exoctl fetches it."""
    repository = Repository(root, MODEL)
    repository.prepare()
    digest = hashlib.sha256(content).hexdigest()
    file = RemoteFile(path="config.json", size=len(content), hash=digest, is_sha256=True)
    listing = Listing(repo=MODEL, revision="main", commit=commit, files=(file,))
    repository.blob(file).write_bytes(content)
    repository.keep_listing(listing)
    repository.publish(listing, listing.files)
    return repository.blob(file)


def test_a_replaced_revision_goes_and_the_current_one_stays(tmp_path: Path) -> None:
    old, new = publish(tmp_path, OLD, b"old"), publish(tmp_path, NEW, b"newer")
    assert prune(tmp_path, frozenset()) == len(b"old")
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize("shared", [False, True])
def test_what_another_program_fetched_stays(tmp_path: Path, shared: bool) -> None:
    kept = [
        lay(tmp_path, THEIRS, "config.json", b"theirs"),
        lay(tmp_path, THEIRS, "original/params.json", b"below a folder"),
        lay(tmp_path, "d" * 40, "config.json", b"another revision of theirs"),
    ]
    if shared:
        kept.append(publish(tmp_path, NEW, b"ours"))
    assert prune(tmp_path, frozenset()) == 0
    assert all(path.exists() for path in kept)


def test_what_another_program_is_fetching_stays(tmp_path: Path) -> None:
    part = tmp_path / "models--acme--tiny" / "blobs" / ("e" * 64 + ".incomplete")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"half")
    assert prune(tmp_path, frozenset()) == 0
    assert part.exists()


def test_what_another_node_of_the_machine_fetches_is_neither_dropped_nor_removed(
    tmp_path: Path,
) -> None:
    theirs, ours = Repository(tmp_path, MODEL), Repository(tmp_path, MODEL)
    theirs.prepare()
    part = theirs.own / "abc.part"
    with theirs.lock() as is_theirs:
        assert is_theirs
        part.write_bytes(b"x" * 1000)
        assert ours.drop_parts() == 0
        with pytest.raises(ConflictError, match="another node"):
            ours.remove()
        assert part.exists()
    assert ours.drop_parts() == 1000
    ours.remove()
    assert not ours.directory.exists()


def test_giving_up_what_never_began_leaves_nothing(tmp_path: Path) -> None:
    repository = Repository(tmp_path, MODEL)
    assert repository.drop_parts() == 0
    assert not repository.directory.exists()
