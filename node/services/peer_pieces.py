"""Files between nodes: serving what lies here, and asking others for what lies there."""

import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from node.core.hub_files import is_commit, is_hash
from node.io import clock
from node.io.hub.part_file import CHUNK_BYTES, part_path, read_sums, sums_path
from node.io.model_store.hub_cache import Repository
from node.log import logger
from node.model.download import Listing, RemoteFile
from node.model.errors import UsageError
from node.model.ids import CommandId, ModelId, NodeId
from node.wire.message import (
    PIECE_BYTES,
    PIECES_BYTES_MAX,
    ListingAsked,
    ListingTold,
    PieceAsked,
    PieceSent,
    ServiceMessage,
)

ANSWER_SECONDS = 10.0
"""Without a piece for so long a peer is left."""
SERVED_MAX = 32
"""Requests that are served at once; further ones go unanswered and are asked again elsewhere."""
QUEUE_SECONDS = 0.01
"""Between two tries to put a piece into a full bulk queue."""
PIECES_WAITING_MAX = 64

_log = logger("downloads")

PieceMessage = ListingAsked | ListingTold | PieceAsked | PieceSent
Send = Callable[[NodeId, ServiceMessage], bool]


class PeerPieces:
    """Made once; both sides of the exchange."""

    def __init__(self, root: Path, send: Send, tasks: TaskGroup) -> None:
        self._root = root
        self._send = send
        self._tasks = tasks
        self._serving = 0
        self._waiting: dict[
            CommandId, tuple[NodeId, MemoryObjectSendStream[ListingTold | PieceSent]]
        ] = {}

    def on_message(self, peer: NodeId, message: PieceMessage) -> None:
        """Take a message of another node."""
        match message:
            case ListingAsked() | PieceAsked():
                if self._serving < SERVED_MAX:
                    self._serving += 1
                    self._tasks.start_soon(self._serve, peer, message)
            case ListingTold() | PieceSent():
                asked, stream = self._waiting.get(message.id, (None, None))
                if stream is not None and asked == peer:
                    try:
                        stream.send_nowait(message)
                    except (anyio.WouldBlock, anyio.BrokenResourceError):
                        return

    # -- asking ------------------------------------------------------------------------------------

    async def listing(self, peer: NodeId, repo: ModelId, revision: str) -> Listing | None:
        """What a peer knows of a revision; None where it does not, or does not answer."""
        id_ = _fresh_id()
        with self._stream(peer, id_) as answers, anyio.move_on_after(ANSWER_SECONDS):
            if self._send(peer, ListingAsked(id=id_, repo=repo, revision=revision)):
                answer = await answers.receive()
                found = answer.listing if isinstance(answer, ListingTold) else None
                is_asked = found is not None and found.repo == repo and _is_of(found, revision)
                return found if is_asked else None
        return None

    async def pieces(
        self, peer: NodeId, repo: ModelId, file: RemoteFile, offset: int, length: int
    ) -> AsyncGenerator[PieceSent, None]:
        """The pieces of a range as they come; ends early where there are no more, or silence."""
        id_ = _fresh_id()
        end = offset + min(length, PIECES_BYTES_MAX)
        with self._stream(peer, id_) as answers:
            asked = PieceAsked(id=id_, repo=repo, file=file, offset=offset, length=end - offset)
            if not self._send(peer, asked):
                return
            while offset < end:
                piece: ListingTold | PieceSent | None = None
                with anyio.move_on_after(ANSWER_SECONDS):
                    piece = await answers.receive()
                if not isinstance(piece, PieceSent):
                    return
                if piece.offset != offset or len(piece.content) > end - offset:
                    return
                yield piece
                if not piece.content:
                    return
                offset += len(piece.content)

    def _stream(self, peer: NodeId, id_: CommandId) -> "_Waiting":
        return _Waiting(self._waiting, peer, id_)

    # -- serving -----------------------------------------------------------------------------------

    async def _serve(self, peer: NodeId, message: ListingAsked | PieceAsked) -> None:
        try:
            if isinstance(message, ListingAsked):
                listing = await anyio.to_thread.run_sync(self._find_listing, message)
                self._send(peer, ListingTold(id=message.id, listing=listing))
            else:
                await self._serve_pieces(peer, message)
        except (OSError, UsageError) as error:
            _log.debug("not served: %s", error)
        finally:
            self._serving -= 1

    def _find_listing(self, message: ListingAsked) -> Listing | None:
        repository = Repository(self._root, message.repo)
        commits = [message.revision] if is_commit(message.revision) else []
        current = repository.current()
        commits += [current.name] if current is not None else []
        commits += [path.stem.removeprefix("listing-") for path in repository.listings()]
        for commit in commits:
            listing = repository.listing(commit)
            if listing is not None and message.revision in (commit, listing.revision):
                return listing
        return None

    async def _serve_pieces(self, peer: NodeId, message: PieceAsked) -> None:
        file = message.file
        if not is_hash(file.hash):
            return
        offset = max(0, message.offset)
        length = min(message.length, PIECES_BYTES_MAX)
        found = await anyio.to_thread.run_sync(self._read, message.repo, file, offset, length)
        available, content, digests = found
        if not content:
            await self._put(
                peer, PieceSent(id=message.id, offset=offset, content=b"", available=available)
            )
            return
        view = memoryview(content)
        while view:
            room = CHUNK_BYTES - offset % CHUNK_BYTES
            piece = bytes(view[: min(PIECE_BYTES, room)])
            end = offset + len(piece)
            sent = PieceSent(
                id=message.id,
                offset=offset,
                content=piece,
                available=available,
                digest=digests.get(end, b""),
            )
            if not await self._put(peer, sent):
                return
            view, offset = view[len(piece) :], end

    async def _put(self, peer: NodeId, piece: PieceSent) -> bool:
        """Queue a piece; waits while the bulk queue is full."""
        deadline = clock.monotonic() + ANSWER_SECONDS
        while not self._send(peer, piece):
            if clock.monotonic() > deadline:
                return False
            await anyio.sleep(QUEUE_SECONDS)
        return True

    def _read(
        self, repo: ModelId, file: RemoteFile, offset: int, length: int
    ) -> tuple[int, bytes, dict[int, bytes]]:
        """How much is here, the bytes, and the digests at the chunks' ends within them."""
        repository = Repository(self._root, repo)
        held = find_held(repository, file)
        length = min(length, held.available - offset)
        if length <= 0:
            return held.available, b"", {}
        descriptor = os.open(held.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            content = os.pread(descriptor, length, offset)
        finally:
            os.close(descriptor)
        ends = range(offset - offset % CHUNK_BYTES, offset + len(content), CHUNK_BYTES)
        digests = {min(at + CHUNK_BYTES, file.size): held.digest_after(at) for at in ends}
        return held.available, content, digests


def _is_of(listing: Listing, revision: str) -> bool:
    """Whether it is the revision's: a commit stands for itself, whatever it is said to be."""
    return revision == (listing.commit if is_commit(revision) else listing.revision)


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What lies here of a file and may be given on."""

    path: Path
    available: int
    """From its beginning; -1: nothing at all."""
    sums: list[bytes]

    def digest_after(self, offset: int) -> bytes:
        """Of everything up to the end of the chunk in which the offset lies, where it is known."""
        number = offset // CHUNK_BYTES
        return self.sums[number] if number < len(self.sums) else b""


def find_held(repository: Repository, file: RemoteFile) -> Held:
    """Look for a file: of one on its way only chunks whose sums are noted, for those are proved."""
    sums = read_sums(sums_path(repository.own, file), len(file.hash) // 2)
    if repository.has(file):
        return Held(path=repository.blob(file), available=file.size, sums=sums)
    path = part_path(repository.own, file)
    try:
        size = min(path.stat().st_size, file.size)
    except OSError:
        return Held(path=path, available=-1, sums=[])
    return Held(path=path, available=min(size // CHUNK_BYTES, len(sums)) * CHUNK_BYTES, sums=sums)


class _Waiting:
    """Who waits for answers to one question, for the length of a `with`."""

    def __init__(
        self,
        waiting: dict[CommandId, tuple[NodeId, MemoryObjectSendStream[ListingTold | PieceSent]]],
        peer: NodeId,
        id_: CommandId,
    ) -> None:
        self._waiting, self._peer, self._id = waiting, peer, id_
        self._send, self._receive = anyio.create_memory_object_stream[ListingTold | PieceSent](
            PIECES_WAITING_MAX
        )

    def __enter__(self) -> MemoryObjectReceiveStream[ListingTold | PieceSent]:
        self._waiting[self._id] = (self._peer, self._send)
        return self._receive

    def __exit__(self, *_: object) -> None:
        del self._waiting[self._id]
        self._send.close()
        self._receive.close()


def _fresh_id() -> CommandId:
    return CommandId("c-" + clock.random_hex(16))
