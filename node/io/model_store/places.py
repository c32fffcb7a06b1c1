"""Where models may lie below a model directory."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from node.io.model_store.hub_cache import Repository, model_of
from node.io.model_store.names import lies_within
from node.io.model_store.weight_files import CONFIG_NAME, unreadable
from node.model.errors import Failure
from node.model.ids import ModelId


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A directory that holds a model, or may."""

    name: str
    """As it would be asked for; not checked."""
    directory: Path
    failure: Failure | None = None
    """Why it can't be told whether there is a model."""
    source: str = ""
    """`owner/name@commit` where it came from a hub."""


def places_of(root: Path, passed_over: dict[Path, str]) -> Iterator[Place]:
    """Directories with a config.json: at the top, one below for `owner/name`, and the revision
    that counts of each repository in the hub's cache layout.

    What can't even be listed is noted in `passed_over`.
    """
    for directory in _subdirectories(root, passed_over):
        repo = model_of(directory.name)
        is_model, failure = _holds_config(directory)
        if repo is not None:
            yield from _revision(root, directory, repo)
        elif is_model:
            yield Place(name=directory.name, directory=directory, failure=failure)
        elif lies_within(directory, root):
            for inner in _subdirectories(directory, passed_over):
                is_model, failure = _holds_config(inner)
                if is_model:
                    name = f"{directory.name}/{inner.name}"
                    yield Place(name=name, directory=inner, failure=failure)


def _revision(root: Path, directory: Path, repo: ModelId) -> Iterator[Place]:
    current = Repository(root, repo).current() if lies_within(directory, root) else None
    if current is not None:
        is_model, failure = _holds_config(current)
        if is_model:
            yield Place(
                name=repo, directory=current, failure=failure, source=f"{repo}@{current.name}"
            )


def _holds_config(directory: Path) -> tuple[bool, Failure | None]:
    try:
        return (directory / CONFIG_NAME).is_file(), None
    except (OSError, ValueError) as error:
        return True, unreadable(directory, error)


def _subdirectories(directory: Path, passed_over: dict[Path, str]) -> Iterator[Path]:
    try:
        paths = sorted(directory.iterdir())
    except FileNotFoundError:
        return  # not made yet, or gone since it was listed
    except OSError as error:
        passed_over[directory] = unreadable(directory, error).message
        return
    for path in paths:
        if path.name.startswith("."):
            continue
        try:
            is_directory = path.is_dir()
        except (OSError, ValueError) as error:
            passed_over[path] = unreadable(path, error).message
            continue
        if is_directory:
            yield path
