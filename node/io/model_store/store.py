"""The models that lie in the model directories of this machine."""

import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from node.core.failure_text import short_text
from node.io.model_store.cards import CardShelf, fingerprint_of, library_version, unknown_card
from node.io.model_store.embedded import EmbeddedModel, convert_file
from node.io.model_store.keeping import (
    discard,
    fresh_staging,
    settle,
    sweep_staging,
)
from node.io.model_store.names import lies_within, parse_model_id
from node.io.model_store.places import Place, places_of
from node.io.model_store.weight_files import (
    FileStamp,
    check,
    source_of,
    stamps_of,
    unreadable,
)
from node.log import logger
from node.model.card import ModelCard
from node.model.errors import BusyError, Failure, NotFoundError, UsageError
from node.model.ids import ModelId
from node.model.register import HeldModel, ModelFigures

MODELS_MAX = 1000
"""Models that are listed; further ones are passed over."""
BYTES_MAX = 2**63 - 1
"""What is told of a model at most: sparse files can claim more than a number on the wire holds."""

_log = logger("models")


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
        return min(BYTES_MAX, sum(max(0, size) for size, _ in self.stamps.values()))


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
        self.shelf = CardShelf(
            state_directory.absolute(), self._roots[0], tools.inspect, environment
        )
        self._library = library_version()
        self._convert = tools.convert
        self._environment = environment
        self._found: dict[ModelId, _Found] | None = None
        self._checked: dict[Path, tuple[str, Failure | None]] = {}
        self._described: dict[Path, tuple[str, ModelCard | Failure]] = {}
        self._passed_over: dict[Path, str] = {}
        """Places that can't be looked into and are no model, with what the system says."""
        self.embedded = EmbeddedModel(self._roots[0], tools.convert, environment)

    @property
    def root(self) -> Path:
        """The directory that is written to."""
        return self._roots[0]

    def place_of(self, model: ModelId) -> Path | None:
        """Where a model lies, whole or not; None where it does not."""
        found = (self._found or {}).get(model)
        return found.directory if found is not None else None

    async def convert(self, source: Path, target: Path) -> None:
        """Unpack a GGUF file into a model directory, all or nothing.

        Raises:
            ExoctlError: what the converter said.
        """
        staging = await anyio.to_thread.run_sync(fresh_staging, self.root)
        try:
            await convert_file(source, staging / "model", self._convert, self._environment)
            await anyio.to_thread.run_sync(settle, staging / "model", target)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(discard, staging)

    async def scan(self) -> None:
        """Look through the directories; cheap where nothing has changed since."""
        if self._found is None:
            await anyio.to_thread.run_sync(sweep_staging, self.root)
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
            places = short_text(", ".join(str(root) for root in self._roots))
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
        kept = await anyio.to_thread.run_sync(self.shelf.kept, found.directory, found.fingerprint)
        if kept is not None:
            return kept
        made = await self.shelf.inspect(found.directory)
        if isinstance(made, ModelCard):
            await anyio.to_thread.run_sync(
                self.shelf.keep, found.directory, found.fingerprint, made
            )
        return made

    def _scan(self) -> dict[ModelId, _Found]:
        models: dict[ModelId, _Found] = {}
        passed_over: dict[Path, str] = {}
        for root in self._roots:
            for place in places_of(root, passed_over):
                found = self._look(root, place)
                if found is None and place.failure is not None:
                    passed_over[place.directory] = place.failure.message
                if found is not None and len(models) < MODELS_MAX:
                    models.setdefault(found.model, found)
        for place in passed_over.keys() - self._passed_over.keys():
            _log.warning("passed over: %s", passed_over[place])
        self._passed_over = passed_over
        present = {found.directory for found in models.values()}
        for cache in (self._checked, self._described):
            for gone in cache.keys() - present:
                del cache[gone]
        return models

    def _look(self, root: Path, place: Place) -> _Found | None:
        """What lies there. Never raises for what is on the disk: one model must not keep the
        others from being found.
        """
        directory, failure = place.directory, place.failure
        try:
            model = parse_model_id(place.name)
        except UsageError:
            return None  # no name that could be asked for
        stamps: dict[str, FileStamp] = {}
        fingerprint = ""
        try:
            if failure is None:
                stamps = stamps_of(directory)
                fingerprint = fingerprint_of(stamps, self._library)
                failure = self._check(root, directory, stamps, fingerprint)
        except FileNotFoundError:
            return None  # gone since it was listed
        except (OSError, ValueError) as error:
            failure = unreadable(directory, error)
        return _Found(
            model=model,
            directory=directory,
            stamps=stamps,
            fingerprint=fingerprint,
            source=place.source or source_of(directory),
            failure=failure,
        )

    def _check(
        self, root: Path, directory: Path, stamps: Mapping[str, FileStamp], fingerprint: str
    ) -> Failure | None:
        if not lies_within(directory, root):
            return _outside(directory, root)
        if not _is_utf8(directory):
            return _unspeakable(directory)
        checked = self._checked.get(directory)
        if checked is None or checked[0] != fingerprint:
            checked = self._checked[directory] = fingerprint, check(directory, stamps, root)
        return checked[1]


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _unspeakable(directory: Path) -> Failure:
    return Failure(
        code="model_path_not_utf8",
        message=short_text(f"the path {directory} is not UTF-8, so no runner can be told of it"),
        remedy="rename the directory, or choose another with --model-dir",
    )


def _outside(directory: Path, root: Path) -> Failure:
    return Failure(
        code="model_outside",
        message=short_text(f"{directory} leads out of {root}"),
        remedy="name its real place as a further model directory; links out are not followed",
    )
