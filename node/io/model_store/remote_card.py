"""Cards of models that lie only on a hub: from config, tokenizer and the headers of the weights.

The headers are laid into files of the full size that hold nothing else, so that the inspecting
child sees the directory as it will be; of the weights themselves not a byte is fetched.
"""

import contextlib
import hashlib
import shutil
import struct
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from node.core import hub_trouble
from node.core.hub_files import INDEX_NAME, first_files, problem_of, weight_files
from node.io import clock
from node.io.durability import replace_file
from node.io.hub.hub import Hub, HubError
from node.io.hub.transfer import Transfer
from node.io.model_store.cards import CARD_BYTES_MAX, CardShelf
from node.io.model_store.weight_files import HEADER_BYTES_MAX, NONSENSE, read_regular
from node.model.card import ModelCard
from node.model.download import Listing, RemoteFile
from node.model.errors import ExoctlError, Failure
from node.model.ids import ModelId

_LENGTH = struct.Struct("<Q")
_card: msgspec.json.Decoder[ModelCard] = msgspec.json.Decoder(ModelCard)


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


_index: msgspec.json.Decoder[_Index] = msgspec.json.Decoder(_Index)


class RemoteCards:
    """Made once; what was described is kept for as long as its commit is asked for."""

    def __init__(
        self, state_directory: Path, hub: Hub, transfer: Transfer, shelf: CardShelf
    ) -> None:
        self._kept = state_directory / "cards"
        self._scratch = state_directory / "tmp"
        self._hub = hub
        self._transfer = transfer
        self._shelf = shelf

    async def describe(self, repo: ModelId, revision: str) -> ModelCard:
        """The card of a model on the hub.

        Raises:
            HubError: it can't be had. ExoctlError: mlx-lm can't run it.
        """
        listing = await self._hub.listing(repo, revision)
        problem = problem_of(listing)
        if problem is not None:
            raise HubError(problem)
        path = (
            self._kept
            / f"hub-{hashlib.sha256(f'{repo}@{listing.commit}'.encode()).hexdigest()[:32]}.json"
        )
        with contextlib.suppress(OSError, *NONSENSE):
            return _card.decode(await anyio.to_thread.run_sync(read_regular, path, CARD_BYTES_MAX))
        directory = self._scratch / f"card-{clock.random_hex(8)}"
        await anyio.to_thread.run_sync(lambda: directory.mkdir(parents=True, mode=0o700))
        try:
            await self._lay_out(listing, directory)
            made = await self._shelf.inspect(directory)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(lambda: shutil.rmtree(directory, ignore_errors=True))
        if isinstance(made, Failure):
            raise ExoctlError(made)
        card = msgspec.structs.replace(made, model=repo, source=f"{repo}@{listing.commit}")
        with contextlib.suppress(OSError):
            await anyio.to_thread.run_sync(_keep, path, msgspec.json.encode(card))
        return card

    async def _lay_out(self, listing: Listing, directory: Path) -> None:
        indexed: set[str] | None = None
        for file in first_files(listing):
            content = await self._read(listing, file, 0, file.size)
            await anyio.to_thread.run_sync((directory / file.path).write_bytes, content)
            if file.path == INDEX_NAME:
                indexed = _names(content, listing)
        chosen = weight_files(listing, indexed)
        if not isinstance(chosen, list):
            raise HubError(chosen)
        for file in chosen:
            await self._lay_header(listing, file, directory / file.path)

    async def _lay_header(self, listing: Listing, file: RemoteFile, path: Path) -> None:
        prefix = await self._read(listing, file, 0, _LENGTH.size)
        length = _LENGTH.unpack(prefix)[0] if len(prefix) == _LENGTH.size else 0
        if not 0 < length <= min(HEADER_BYTES_MAX, file.size):
            raise HubError(hub_trouble.changed(f"{listing.repo}: {file.path}", "it has no header"))
        header = await self._read(listing, file, _LENGTH.size, _LENGTH.size + length)
        await anyio.to_thread.run_sync(_write_hollow, path, prefix + header, file.size)

    async def _read(self, listing: Listing, file: RemoteFile, first: int, end: int) -> bytes:
        if end <= first:
            return b""
        url = await self._hub.file_url(listing.repo, listing.commit, file.path)
        what = f"{listing.repo}: {file.path}"
        return await self._transfer.read_range(url, self._hub.headers(), first, end, what)


def _names(content: bytes, listing: Listing) -> set[str]:
    try:
        return set(_index.decode(content).weight_map.values())
    except NONSENSE as error:
        raise HubError(
            hub_trouble.trouble("repo_broken", f"{listing.repo}: {INDEX_NAME}: {error}")
        ) from error


def _keep(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content)


def _write_hollow(path: Path, start: bytes, size: int) -> None:
    """A file of the full size of which only the start takes room on the disk."""
    with path.open("wb") as file:
        file.write(start)
        file.truncate(size)
