"""Model cards: made once by the inspecting child, then kept beside the model."""

import contextlib
import hashlib
import importlib.metadata
import os
from collections.abc import Mapping
from pathlib import Path

import anyio
import msgspec

from node.core.failure_text import short_failure, short_text
from node.io.child_process import child_environment, make_private
from node.io.model_store.hub_cache import SNAPSHOTS
from node.io.model_store.weight_files import NONSENSE, FileStamp, read_regular
from node.model.card import ModelCard
from node.model.errors import Failure
from node.model.ids import ModelId

CARD_NAME = ".exoctl-card.json"
CARD_VERSION = 2
"""Raised when cards of before must be made anew."""
CARD_BYTES_MAX = 8 * 1024 * 1024
INSPECT_SECONDS_MAX = 120.0
_LINES_SHOWN = 3


class _KeptCard(msgspec.Struct, frozen=True, kw_only=True):
    """A card with the fingerprint of the files that it describes."""

    fingerprint: str
    card: ModelCard


class _Refusal(msgspec.Struct, frozen=True):
    """The last thing that an inspecting child says of a model it can't read."""

    error: Failure | str


_kept: msgspec.json.Decoder[_KeptCard] = msgspec.json.Decoder(_KeptCard)
_card: msgspec.json.Decoder[ModelCard] = msgspec.json.Decoder(ModelCard)
_refusal: msgspec.json.Decoder[_Refusal] = msgspec.json.Decoder(_Refusal)


def library_version() -> str:
    """Of mlx-lm, which decides what can be described; empty where it is not installed."""
    try:
        return importlib.metadata.version("mlx-lm")
    except importlib.metadata.PackageNotFoundError:
        return ""


def fingerprint_of(stamps: Mapping[str, FileStamp], library: str) -> str:
    """Changes with any file of a model, with the version of cards, and with that of mlx-lm."""
    # Written out in ASCII: no name and no time that a disk can hold is too odd for that.
    files = sorted((os.fsencode(name), stamp) for name, stamp in stamps.items())
    return hashlib.sha256(ascii((CARD_VERSION, library, files)).encode()).hexdigest()


def unknown_card(model: ModelId, source: str) -> ModelCard:
    """Stands for the card of a model that can't be described (yet): no layers, all sizes 0."""
    return ModelCard(
        model=model,
        architecture="",
        source=source,
        layers=(),
        embedding_bytes=0,
        hidden_size=0,
        activation_bytes_per_token=0,
        context_tokens_max=0,
        parameters=0,
        attention_heads=0,
        kv_heads=0,
    )


class CardShelf:
    """Reads and keeps cards; `command` and a directory print the card of the model in it."""

    def __init__(
        self,
        state_directory: Path,
        own: Path,
        command: tuple[str, ...],
        environment: Mapping[str, str],
    ) -> None:
        """`own` is the model directory that may be written to."""
        self._own = own
        self._shelf = state_directory / "cards"
        self._scratch = state_directory / "tmp"
        self._command = command
        self._environment = environment

    def kept(self, directory: Path, fingerprint: str) -> ModelCard | None:
        """The card that was made of exactly these files; None where there is none."""
        for path in (directory / CARD_NAME, self._elsewhere(directory)):
            try:
                kept = _kept.decode(read_regular(path, CARD_BYTES_MAX))
            except (OSError, *NONSENSE):
                continue
            if kept.fingerprint == fingerprint:
                return kept.card
        return None

    def keep(self, directory: Path, fingerprint: str, card: ModelCard) -> None:
        """Put a card beside its model; into the state directory where the model is in the hub's
        layout, in a directory that is only read, or on a disk that refuses.
        """
        content = msgspec.json.encode(_KeptCard(fingerprint=fingerprint, card=card))
        is_ours = directory.is_relative_to(self._own) and directory.parent.name != SNAPSHOTS
        beside = (directory / CARD_NAME,) if is_ours else ()
        for path in (*beside, self._elsewhere(directory)):
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                _replace(path, content)
                return

    async def inspect(self, directory: Path) -> ModelCard | Failure:
        """Have a child describe the model; nothing that lies in the directory can harm this one."""
        try:
            make_private(self._scratch)
            with anyio.fail_after(INSPECT_SECONDS_MAX):
                done = await anyio.run_process(
                    (*self._command, str(directory)),
                    check=False,
                    cwd=self._scratch,
                    env={**child_environment(self._environment), "TMPDIR": str(self._scratch)},
                    start_new_session=True,
                )
        except TimeoutError:
            return _failure(f"looking at {directory} took longer than {INSPECT_SECONDS_MAX:.0f} s")
        except OSError as error:
            return _failure(f"{directory} could not be looked at: {error}")
        lines = done.stdout.strip().splitlines() or [b""]
        if done.returncode == 0:
            with contextlib.suppress(*NONSENSE):
                return _card.decode(lines[-1])
        with contextlib.suppress(*NONSENSE):
            refused = _refusal.decode(lines[-1]).error
            return short_failure(refused) if isinstance(refused, Failure) else _failure(refused)
        said = done.stderr.decode(errors="replace").strip().splitlines()[-_LINES_SHOWN:]
        return _failure(
            f"looking at {directory} ended with exit code {done.returncode}: {'; '.join(said)}"
        )

    def _elsewhere(self, directory: Path) -> Path:
        digest = hashlib.sha256(os.fsencode(directory.absolute())).hexdigest()
        return self._shelf / f"{digest[:32]}.json"


def _replace(path: Path, content: bytes) -> None:
    """Several nodes may do so at once; whichever is last holds, and all write the same."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _failure(message: str) -> Failure:
    return Failure(
        code="model_unreadable",
        message=short_text(message),
        remedy="fetch the model again, or choose one that mlx-lm supports",
    )
