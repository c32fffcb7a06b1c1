"""Other nodes as a download's source: chosen, followed, checked chunk by chunk, left if bad."""

from collections.abc import Callable, Mapping

import anyio
import anyio.to_thread

from node.core.download_queue import Job
from node.core.sources import Sources, sources
from node.io import clock
from node.io.hub.part_file import CHUNK_BYTES, PartFile, WrongChunkError
from node.io.hub.transfer import OnBytes
from node.log import logger
from node.model.download import Listing, RemoteFile
from node.model.ids import NodeId
from node.model.register import LinkFigures, Register
from node.services.peer_copies import PeerCopies, Taking
from node.services.peer_pieces import PeerPieces
from node.wire.message import PIECES_BYTES_MAX

FOLLOW_SECONDS = 0.1
"""Between two looks at a peer that has no more yet."""
LEFT_SECONDS = 30.0
"""How long a peer that did not answer is left alone."""

_log = logger("downloads")


class PeerSource:
    """Made once; `Peers` for `services.fetch`."""

    def __init__(
        self,
        node: NodeId,
        registers: Callable[[], Mapping[tuple[NodeId, str], Register]],
        pieces: PeerPieces,
        name_of: Callable[[NodeId], str],
        copies: PeerCopies | None = None,
    ) -> None:
        self._node = node
        self._registers = registers
        self._pieces = pieces
        self._name_of = name_of
        self._copies = copies
        self._left: dict[NodeId, float] = {}
        self._bad: set[tuple[NodeId, str]] = set()
        self._gave: dict[str, set[NodeId]] = {}

    async def listing(self, job: Job) -> Listing | None:
        """What a peer knows of the revision; None where none does."""
        for peer in self._linked():
            listing = await self._pieces.listing(peer, job.model, job.revision)
            if listing is not None:
                return listing
        return None

    async def fetch(
        self, job: Job, listing: Listing, file: RemoteFile, part: PartFile, on_bytes: OnBytes
    ) -> bool:
        """Append to the part until it is full; False where the hub has to be asked."""
        taking = self._copies.taking() if self._copies is not None else None
        try:
            return await self._fetch(job, listing, file, part, on_bytes, taking)
        finally:
            if taking is not None:
                taking.close()

    async def _fetch(
        self,
        job: Job,
        listing: Listing,
        file: RemoteFile,
        part: PartFile,
        on_bytes: OnBytes,
        taking: Taking | None,
    ) -> bool:
        while not part.is_full:
            found = sources(self._registers(), self._node, job, listing.commit, clock.wall())
            usable = self._usable(found, file)
            if not usable:
                if not found.should_wait:
                    return False
                await anyio.sleep(FOLLOW_SECONDS)
                continue
            peer = usable[0]
            before = part.length
            try:
                is_copied = (
                    taking is not None
                    and file.size - before >= CHUNK_BYTES
                    and await taking.take(peer, job, file, part, on_bytes)
                )
                if not is_copied:
                    await self._take(peer, job, file, part, on_bytes)
            except WrongChunkError as error:
                _log.error(
                    "%s is left: bytes from %d on of %s: %s that came from it are damaged",
                    *(self._name_of(peer), error.sound, job.model, file.path),
                )
                self._bad.add((peer, file.hash))
                continue
            if part.length > before:
                self._gave.setdefault(file.hash, set()).add(peer)
            elif peer in found.partly:
                await anyio.sleep(FOLLOW_SECONDS)
            else:
                self._left[peer] = clock.monotonic() + LEFT_SECONDS
        return True

    def blame(self, file: RemoteFile) -> tuple[str, ...]:
        """A file hashed wrong in the end: the peers that gave of it are left, and named."""
        gave = self._gave.pop(file.hash, set())
        self._bad |= {(peer, file.hash) for peer in gave}
        return tuple(sorted(self._name_of(peer) for peer in gave))

    async def _take(
        self, peer: NodeId, job: Job, file: RemoteFile, part: PartFile, on_bytes: OnBytes
    ) -> None:
        """Take what the peer has of the next bytes.

        Raises:
            WrongChunkError: they don't hash to what the peer has said.
        """
        start = part.length
        wanted = min(PIECES_BYTES_MAX, CHUNK_BYTES - start % CHUNK_BYTES, file.size - start)
        gathered = bytearray()
        digest = b""
        async for piece in self._pieces.pieces(peer, job.model, file, start, wanted):
            gathered += piece.content
            digest = piece.digest or digest
        if not gathered:
            return
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(part.append, memoryview(gathered), digest)
        pause = on_bytes(len(gathered))
        if pause > 0:
            await anyio.sleep(pause)

    def _usable(self, found: Sources, file: RemoteFile) -> list[NodeId]:
        """The peers to take from, best first; files are spread over those that have all."""
        linked = self._linked()
        now = clock.monotonic()

        def fits(peer: NodeId) -> bool:
            is_left = self._left.get(peer, 0.0) > now
            return peer in linked and not is_left and (peer, file.hash) not in self._bad

        whole = [peer for peer in linked if peer in found.whole and fits(peer)]
        turn = int(file.hash[:4], 16) % len(whole) if whole else 0
        best = whole[turn:] + whole[:turn]
        return [*best, *(peer for peer in found.partly if fits(peer))]

    def _linked(self) -> list[NodeId]:
        """Peers that this node has a link with, the quickest first."""
        register = self._registers().get((self._node, LinkFigures.__name__))
        figures = register.value if register is not None else None
        if not isinstance(figures, LinkFigures):
            return []
        links = [link for link in figures.links if link.up]
        links.sort(key=lambda link: link.rtt_seconds if link.rtt_seconds is not None else 1.0)
        return [link.peer for link in links]
