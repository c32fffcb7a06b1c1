"""Which files of a repository make a model, and which names may ever become paths."""

import re
from collections.abc import Collection, Iterable, Iterator

from node.core.download_queue import Trouble
from node.core.failure_text import short_text
from node.model.download import Listing, RemoteFile
from node.model.errors import Failure

CONFIG_NAME = "config.json"
INDEX_NAME = "model.safetensors.index.json"
FILES_MAX = 2_000
FILE_BYTES_MAX = 1 << 46
SMALL_BYTES_MAX = 64 * 1024 * 1024
"""Of a file that is no weights; more is refused, since it is read whole."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+ -]{0,199}\Z")
_HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}\Z")
_SMALL_SUFFIXES = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".jsonl")
_README = "README.md"


def is_safe_name(name: str) -> bool:
    """Whether a name may become a file's: in the directory itself, nothing hidden, no `..`."""
    return ".." not in name and _NAME.match(name) is not None


def is_commit(text: str) -> bool:
    """Whether it is a whole commit id."""
    return _COMMIT.match(text) is not None


def is_revision(text: str) -> bool:
    """Whether a text may name a branch, a tag or a commit."""
    return ".." not in text and _REVISION.match(text) is not None


def first_files(listing: Listing) -> list[RemoteFile]:
    """The small files, that say what else is needed."""
    return [file for file in _usable(listing) if _is_small(file)]


def weight_files(listing: Listing, indexed: Collection[str] | None) -> list[RemoteFile] | Trouble:
    """The files that hold tensors: those that the index names, or else all that lie there.

    `indexed` is None where there is no index.
    """
    by_name = {file.path: file for file in _usable(listing) if _is_weights(file.path)}
    if indexed is not None:
        strange = sorted(name for name in indexed if not is_safe_name(name))
        if strange:
            return _broken(f"the index of {listing.repo} names {strange[0]!r}, which is no file")
        missing = sorted(name for name in indexed if name not in by_name)
        if missing or not indexed:
            what = f"names {missing[0]}, which is not there" if missing else "names no file"
            return _broken(f"the index of {listing.repo} {what}")
        return [by_name[name] for name in sorted(indexed)]
    if "model.safetensors" in by_name:
        return [by_name["model.safetensors"]]
    return [by_name[name] for name in sorted(by_name)]


def problem_of(listing: Listing) -> Trouble | None:
    """Why a repository is no model that can be fetched, if so."""
    return next(_problems(listing), None)


def _problems(listing: Listing) -> Iterator[Trouble]:
    repo, names = listing.repo, {file.path for file in listing.files}
    if not is_commit(listing.commit):
        yield _broken(f"the hub pins {repo} to {listing.commit[:60]!r}, which is no commit")
    if len(listing.files) > FILES_MAX:
        yield _broken(f"{repo} has {len(listing.files)} files; {FILES_MAX} are the limit")
    for file in _usable(listing):
        if not _is_hash(file):
            yield _broken(f"the hub gives no usable hash of {file.path} in {repo}")
        if not _is_size(file):
            yield _broken(f"the hub says {file.path} has {file.size} bytes")
        if _is_small(file) and file.size > SMALL_BYTES_MAX:
            yield _broken(f"{file.path} has {file.size} bytes, which no such file needs")
    if CONFIG_NAME not in names:
        yield _unsuitable(listing, "it has no config.json", names)
    if not any(_is_weights(name) for name in names):
        yield _unsuitable(listing, "it has no .safetensors file", names)


def is_hash(text: str) -> bool:
    """Whether a text may be a file's hash, and so the name under which its bytes lie."""
    return _HASH.match(text) is not None


def is_sound(listing: Listing) -> bool:
    """Whether the hashes may become names of files and the sizes be believed."""
    return all(_is_hash(file) and _is_size(file) for file in _usable(listing))


def total_bytes(files: Iterable[RemoteFile]) -> int:
    """Sum of the sizes."""
    return sum(file.size for file in files)


def _usable(listing: Listing) -> list[RemoteFile]:
    return [file for file in listing.files if is_safe_name(file.path)]


def _is_hash(file: RemoteFile) -> bool:
    return is_hash(file.hash) and (len(file.hash) == 64) is file.is_sha256


def _is_size(file: RemoteFile) -> bool:
    return 0 <= file.size <= FILE_BYTES_MAX


def _is_small(file: RemoteFile) -> bool:
    return file.path.endswith(_SMALL_SUFFIXES) and file.path != _README


def _is_weights(name: str) -> bool:
    return name.endswith(".safetensors") and is_safe_name(name)


def _unsuitable(listing: Listing, reason: str, names: Collection[str]) -> Trouble:
    others = sorted(name for name in names if name.endswith((".gguf", ".bin", ".pth", ".pt")))
    remedy = "choose a repository in MLX form, such as one of mlx-community"
    if any(name.endswith(".gguf") for name in others):
        remedy = "fetch its GGUF file and bring it in with `exoctl model import FILE`"
    has = f"; it has {others[0]}" if others else ""
    return Trouble(
        failure=Failure(
            code="repo_unsuitable",
            message=short_text(f"{listing.repo} can't be used: {reason}{has}"),
            remedy=remedy,
        ),
        is_passing=False,
    )


def _broken(message: str) -> Trouble:
    return Trouble(
        failure=Failure(
            code="repo_broken",
            message=short_text(message),
            remedy="tell whoever keeps the repository, or choose another revision",
        ),
        is_passing=False,
    )
