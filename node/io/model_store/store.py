"""The models that lie in the model directories of this machine."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio.to_thread
import msgspec

from node.io.model_store.cards import CardShelf, fingerprint_of, library_version, unknown_card
from node.io.model_store.embedded import EmbeddedModel
from node.io.model_store.names import lies_within, parse_model_id
from node.io.model_store.weight_files import CONFIG_NAME, FileStamp, check, source_of, stamps_of
from node.model.card import ModelCard
from node.model.errors import BusyError, Failure, NotFoundError, UsageError
from node.model.ids import ModelId
from node.model.register import HeldModel, ModelFigures

MODELS_MAX = 1000
"""Models that are listed; further ones are passed over."""


class ModelTools(msgspec.Struct, frozen=True, kw_only=True):
    """Commands that load mlx in a child: `inspect DIRECTORY` and `convert GGUF DIRECTORY`."""

    inspect: tuple[str, ...] = (sys.executable, "-m", "node.runner.inspect")
    convert: tuple[str, ...] = (sys.executable, "-m", "node.runner.convert")


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """A model as it lay there at the last look."""

    model: ModelId
    directory: Path
    stamps: dict[str, FileStamp]
    fingerprint: str
    source: str
    failure: Failure | None
    """What its files lack."""

    @property
    def bytes_on_disk(self) -> int:
        return sum(max(0, size) for size, _ in self.stamps.values())


class ModelStore:
    """Models by name; where directories hold the same name, the first directory's counts."""

    def __init__(
        self,
        directories: tuple[Path, ...],
        state_directory: Path,
        environment: Mapping[str, str],
        tools: ModelTools | None = None,
    ) -> None:
        """The first directory is written to, further ones are only read. Any may not exist yet."""
        tools = tools or ModelTools()
        self._roots = tuple(directory.absolute() for directory in directories)
        self._shelf = CardShelf(state_directory.absolute(), tools.inspect, environment)
        self._library = library_version()
        self._found: dict[ModelId, _Found] | None = None
        self._checked: dict[Path, tuple[str, Failure | None]] = {}
        self._described: dict[Path, tuple[str, ModelCard | Failure]] = {}
        self.embedded = EmbeddedModel(self._roots[0], tools.convert, environment)

    async def scan(self) -> None:
        """Look through the directories; cheap where nothing has changed since."""
        self._found = await anyio.to_thread.run_sync(self._scan)

    async def describe_next(self) -> bool:
        """Make the card of one model that has none; False where all are described."""
        for found in (self._found or {}).values():
            if found.failure is None and self._description(found) is None:
                description = await self._describe(found)
                self._described[found.directory] = (found.fingerprint, description)
                return True
        return False

    def figures(self) -> ModelFigures:
        """What lies here, by name; a model not described yet is not complete."""
        models = self._found or {}
        return ModelFigures(held=tuple(self._held(models[name]) for name in sorted(models)))

    def directory_of(self, model: ModelId) -> Path:
        """Where a complete model lies.

        Raises:
            NotFoundError: it is not here, or not whole; says what is wrong with it.
            BusyError: it has not been looked at yet.
        """
        if self._found is None:
            raise BusyError.because("models_unread", "the models are being looked through")
        found = self._found.get(model)
        if found is None:
            places = ", ".join(str(root) for root in self._roots)
            raise NotFoundError.because(
                "model_not_found",
                f"no model {model!r} lies in {places}",
                "see `exoctl models` for those that do",
            )
        description = self._description(found)
        failure = found.failure or (description if isinstance(description, Failure) else None)
        if failure is not None:
            raise NotFoundError(failure)
        if description is None:
            raise BusyError.because("model_unread", f"{model} is being looked at")
        return found.directory

    # -- inside ------------------------------------------------------------------------------------

    def _held(self, found: _Found) -> HeldModel:
        description = self._description(found)
        if found.failure is None and isinstance(description, ModelCard):
            card = msgspec.structs.replace(description, model=found.model, source=found.source)
            return HeldModel(card=card, complete=True, bytes_on_disk=found.bytes_on_disk)
        return HeldModel(
            card=unknown_card(found.model, found.source),
            complete=False,
            bytes_on_disk=found.bytes_on_disk,
            fraction=0.0 if found.failure is not None else 1.0,
            failure=found.failure or (description if isinstance(description, Failure) else None),
        )

    def _description(self, found: _Found) -> ModelCard | Failure | None:
        fingerprint, description = self._described.get(found.directory, ("", None))
        return description if fingerprint == found.fingerprint else None

    async def _describe(self, found: _Found) -> ModelCard | Failure:
        kept = await anyio.to_thread.run_sync(self._shelf.kept, found.directory, found.fingerprint)
        if kept is not None:
            return kept
        made = await self._shelf.inspect(found.directory)
        if isinstance(made, ModelCard):
            await anyio.to_thread.run_sync(
                self._shelf.keep, found.directory, found.fingerprint, made
            )
        return made

    def _scan(self) -> dict[ModelId, _Found]:
        models: dict[ModelId, _Found] = {}
        for root in self._roots:
            for directory in _model_directories(root):
                found = self._look(root, directory)
                if found is not None and len(models) < MODELS_MAX:
                    models.setdefault(found.model, found)
        present = {found.directory for found in models.values()}
        for cache in (self._checked, self._described):
            for gone in cache.keys() - present:
                del cache[gone]
        return models

    def _look(self, root: Path, directory: Path) -> _Found | None:
        try:
            model = parse_model_id(directory.relative_to(root).as_posix())
            stamps = stamps_of(directory)
        except (UsageError, OSError):
            return None  # no name that could be asked for, or gone since it was listed
        fingerprint = fingerprint_of(stamps, self._library)
        checked = self._checked.get(directory)
        if checked is None or checked[0] != fingerprint:
            checked = self._checked[directory] = fingerprint, check(directory, stamps, root)
        return _Found(
            model=model,
            directory=directory,
            stamps=stamps,
            fingerprint=fingerprint,
            source=source_of(directory),
            failure=checked[1] if lies_within(directory, root) else _outside(directory, root),
        )


def _model_directories(root: Path) -> Iterator[Path]:
    """Directories with a config.json: at the top, or one below for `owner/name`."""
    for directory in _subdirectories(root):
        if (directory / CONFIG_NAME).is_file():
            yield directory
        elif lies_within(directory, root):
            for inner in _subdirectories(directory):
                if (inner / CONFIG_NAME).is_file():
                    yield inner


def _subdirectories(directory: Path) -> list[Path]:
    try:
        return sorted(
            path for path in directory.iterdir() if not path.name.startswith(".") and path.is_dir()
        )
    except OSError:
        return []


def _outside(directory: Path, root: Path) -> Failure:
    return Failure(
        code="model_outside",
        message=f"{directory} leads out of {root}",
        remedy="name its real place as a further model directory; links out are not followed",
    )
