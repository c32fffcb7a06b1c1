"""Deleting models and bringing local ones in; blocking, and only below one model directory."""

import os
import shutil
import tempfile
from pathlib import Path

import psutil

from node.io import clock
from node.io.model_store.hub_cache import PREFIX, SNAPSHOTS, Repository, model_of
from node.io.model_store.names import directory_in, lies_within
from node.io.model_store.weight_files import CONFIG_NAME, SOURCE_NAME
from node.model.errors import ConflictError, NotFoundError, RefusedError
from node.model.ids import ModelId

STAGING = ".exoctl-import"
STAGING_SECONDS = 24 * 3600.0
"""Younger than that, a staging directory may be that of another machine which shares the disk."""


def remove_model(root: Path, model: ModelId, directory: Path) -> int:
    """Delete exactly the files of a model; returns the bytes freed.

    Raises:
        RefusedError: it lies in a directory that is only read.
        OSError: the disk refuses.
    """
    if not lies_within(directory, root):
        raise RefusedError.because(
            "model_read_only",
            f"{model} lies in {directory}, which exoctl only reads",
            f"delete it there yourself; only models in {root} are deleted",
        )
    if directory.parent.name == SNAPSHOTS:
        return Repository(root, model).remove()
    freed = sum(path.lstat().st_size for path in directory.rglob("*") if not path.is_dir())
    shutil.rmtree(directory)
    if directory.parent != root:
        with_others = any(directory.parent.iterdir())
        if not with_others:
            directory.parent.rmdir()
    return freed


def prune(root: Path, busy: frozenset[ModelId]) -> int:
    """Delete parts of given-up downloads and replaced revisions, but of `busy` models."""
    freed = 0
    if not root.is_dir():
        return 0
    for folder in root.iterdir():
        model = model_of(folder.name) if folder.name.startswith(PREFIX) else None
        if model is None or model in busy or not lies_within(folder, root):
            continue
        repository = Repository(root, model)
        if not repository.own.is_dir():
            continue  # another program's: nothing of it is ours to delete
        with repository.lock() as is_ours:
            if not is_ours:
                continue
            freed += repository.drop_unused()
            if repository.current() is None:
                freed += repository.remove()
    return freed


def import_target(root: Path, model: ModelId) -> Path:
    """Where an imported model will lie.

    Raises:
        ConflictError: something lies there. UsageError: the name can't be one.
    """
    target = directory_in(root, model)
    if target.exists():
        raise ConflictError.because(
            "model_exists",
            f"{target} exists already",
            "choose another --name, or `exoctl model rm` it first",
        )
    return target


def copy_model(source: Path, root: Path, target: Path) -> None:
    """Copy the files of a model directory, all or nothing.

    Raises:
        NotFoundError: there is no model. OSError: it can't be read, or the disk refuses.
    """
    if not (source / CONFIG_NAME).is_file():
        raise NotFoundError.because(
            "no_model_there",
            f"{source} holds no {CONFIG_NAME}: that is no model directory",
            "name a directory in MLX form, or a .gguf file",
        )
    staging = fresh_staging(root)
    try:
        for path in sorted(source.iterdir()):
            if path.is_file() and not path.name.startswith("."):
                shutil.copyfile(path, staging / path.name)
        settle(staging, target)
    finally:
        discard(staging)


def discard(staging: Path) -> None:
    """Remove what is left of an import."""
    shutil.rmtree(staging, ignore_errors=True)


def fresh_staging(root: Path) -> Path:
    """An empty directory beside the models, which no scan looks into."""
    root.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f"{STAGING}-{os.getpid()}-", dir=root))
    staging.chmod(0o755)
    return staging


def sweep_staging(root: Path) -> None:
    """Remove what imports of processes that are gone have left."""
    for path in root.glob(f"{STAGING}-*"):
        owner = path.name.removeprefix(f"{STAGING}-").partition("-")[0]
        is_running = owner.isdecimal() and psutil.pid_exists(int(owner))
        try:
            age_seconds = clock.wall() - path.stat().st_mtime
        except OSError:
            continue  # its import has just ended
        if age_seconds > STAGING_SECONDS and not is_running:
            discard(path)


def settle(staging: Path, target: Path) -> None:
    """Give what was made its place."""
    (staging / SOURCE_NAME).write_text("local\n", encoding="utf-8")
    target.parent.mkdir(parents=True, exist_ok=True)
    staging.rename(target)
