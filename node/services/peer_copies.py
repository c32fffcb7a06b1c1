"""Large files between nodes over connections of their own: a thread gives, a thread takes."""

import os
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, TypeVarTuple

import anyio
import anyio.from_thread
import anyio.to_thread
import msgspec

from node.core.download_queue import Job
from node.core.hub_files import is_hash
from node.io import clock
from node.io.hub.part_file import CHUNK_BYTES, PartFile
from node.io.hub.transfer import OnBytes
from node.io.mesh.copy_stream import BUFFER_BYTES, CopyBrokenError, CopyStream
from node.io.model_store.hub_cache import Repository
from node.log import logger
from node.model.download import RemoteFile
from node.model.errors import UsageError
from node.model.ids import CommandId, NodeId, short
from node.services.peer_pieces import Held, find_held
from node.wire.frame import FrameError, FrameKind, encode_frame
from node.wire.message import PieceAsked, RangeSent

GIVEN_MAX = 16
"""Files that are given at once; further ones are refused."""
TAKEN_MAX = 16
ASKED_BYTES_MAX = 16 * 1024
TELL_BYTES = 16 * CHUNK_BYTES
TELL_SECONDS = 0.2
"""How long bytes come before the loop hears of them."""
NONE_SECONDS = 60.0
"""How long a peer that offers no connection for copies is not asked for one again."""

OpenCopy = Callable[[NodeId], Awaitable[CopyStream | None]]
Tell = Callable[[int], Coroutine[Any, Any, float]]
_Arguments = TypeVarTuple("_Arguments")

_asked: msgspec.msgpack.Decoder[PieceAsked] = msgspec.msgpack.Decoder(PieceAsked)
_range: msgspec.msgpack.Decoder[RangeSent] = msgspec.msgpack.Decoder(RangeSent)
_encoder = msgspec.msgpack.Encoder()
_log = logger("downloads")


class PeerCopies:
    """Made once; both sides."""

    def __init__(self, root: Path, open_copy: OpenCopy) -> None:
        self._root = root
        self._open = open_copy
        self._givers = anyio.CapacityLimiter(GIVEN_MAX)
        self._takers = anyio.CapacityLimiter(TAKEN_MAX)
        self._without: dict[NodeId, float] = {}

    async def serve(self, peer: NodeId, copy: CopyStream) -> None:
        """Give what is asked for over a connection until it ends, and close it."""
        try:
            if self._givers.available_tokens:
                await _in_thread(copy, self._givers, self._give, copy)
        except CopyBrokenError as error:
            _log.debug("copies for %s have ended: %s", short(peer), error)
        except (OSError, UsageError, FrameError, msgspec.MsgspecError) as error:
            _log.warning("a copy for %s was given up: %s", short(peer), error)
        finally:
            copy.close()

    def taking(self) -> "Taking":
        """For the length of one file; to be closed."""
        return Taking(self._open, self._takers, self._without)

    # -- giving, in a thread -----------------------------------------------------------------------

    def _give(self, copy: CopyStream) -> None:
        buffer = memoryview(bytearray(BUFFER_BYTES))
        while True:
            asked = _asked.decode(copy.receive_frame(ASKED_BYTES_MAX).payload)
            offset, end = asked.offset, min(asked.offset + asked.length, asked.file.size)
            if not is_hash(asked.file.hash) or offset < 0:
                raise CopyBrokenError("what was asked for is no file")
            repository = Repository(self._root, asked.repo)
            while offset < end:
                held = find_held(repository, asked.file)
                if held.available <= offset:
                    break
                offset = self._give_held(copy, held, offset, min(end, held.available), buffer)
            if offset < end or asked.length <= 0:
                copy.send(_head(offset, 0, find_held(repository, asked.file).available, b""))

    def _give_held(
        self, copy: CopyStream, held: Held, offset: int, end: int, buffer: memoryview
    ) -> int:
        descriptor = os.open(held.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            while offset < end:
                chunk_end = offset - offset % CHUNK_BYTES + CHUNK_BYTES
                stop = min(end, chunk_end)
                is_whole = stop in (chunk_end, held.available)
                digest = held.digest_after(offset) if is_whole else b""
                copy.send(_head(offset, stop - offset, held.available, digest))
                while offset < stop:
                    view = buffer[: stop - offset]
                    count = os.preadv(descriptor, [view], offset)
                    if not count:
                        raise CopyBrokenError("the file has become shorter")
                    copy.send(view[:count])
                    offset += count
        finally:
            os.close(descriptor)
        return offset


class Taking:
    """Takes one file: its connections, one to a peer, are made when they are needed."""

    def __init__(
        self, open_copy: OpenCopy, limiter: anyio.CapacityLimiter, without: dict[NodeId, float]
    ) -> None:
        self._open = open_copy
        self._limiter = limiter
        self._without = without
        self._copies: dict[NodeId, CopyStream] = {}

    async def take(
        self, peer: NodeId, job: Job, file: RemoteFile, part: PartFile, on_bytes: OnBytes
    ) -> bool:
        """Append what the peer has to the part; False where there is no connection for it.

        Raises:
            WrongChunkError: what came is not what the peer says that it has.
            OSError: the disk refuses.
        """
        copy = await self._copy(peer)
        if copy is None:
            return False
        wanted = file.size - part.length
        asked = PieceAsked(
            id=CommandId(""), repo=job.model, file=file, offset=part.length, length=wanted
        )

        async def tell(count: int) -> float:
            pause = on_bytes(count)
            if pause > 0:
                await anyio.sleep(pause)
            return pause

        is_sound = False
        try:
            await _in_thread(copy, self._limiter, _take, copy, asked, part, tell)
            is_sound = True
        except CopyBrokenError as error:
            _log.debug("a copy from %s has ended: %s", short(peer), error)
        finally:
            if not is_sound:
                self._copies.pop(peer).close()
        return True

    def close(self) -> None:
        """Close the connections."""
        while self._copies:
            self._copies.popitem()[1].close()

    async def _copy(self, peer: NodeId) -> CopyStream | None:
        if peer in self._copies:
            return self._copies[peer]
        if self._without.get(peer, 0.0) > clock.monotonic() or not self._limiter.available_tokens:
            return None
        copy = await self._open(peer)
        if copy is None:
            self._without[peer] = clock.monotonic() + NONE_SECONDS
        else:
            self._copies[peer] = copy
        return copy


def _take(copy: CopyStream, asked: PieceAsked, part: PartFile, tell: Tell) -> None:
    """In a thread: ask, and append what comes until all of it is there or there is no more."""
    copy.send(encode_frame(FrameKind.SERVICE, _encoder.encode(asked)))
    buffer = memoryview(bytearray(BUFFER_BYTES))
    untold, told_at, tell_at_bytes = 0, clock.monotonic(), BUFFER_BYTES
    end = asked.offset + asked.length
    try:
        while part.length < end:
            head = _receive_head(copy)
            room = min(CHUNK_BYTES - part.length % CHUNK_BYTES, end - part.length)
            if not head.length:
                return
            if head.offset != part.length or not 0 < head.length <= room:
                raise CopyBrokenError("a range came that was not asked for")
            left = head.length
            while left:
                view = buffer[:left]
                copy.receive_into(view)
                left -= len(view)
                part.append(view, b"" if left else head.digest)
                untold += len(view)
                now = clock.monotonic()
                if untold >= tell_at_bytes or now - told_at >= TELL_SECONDS:
                    count, untold = untold, 0
                    pause = _tell(tell, count)
                    told_at = clock.monotonic()
                    # A cap is kept in small steps.
                    tell_at_bytes = BUFFER_BYTES if pause > 0 else min(2 * count, TELL_BYTES)
    finally:
        if untold:
            _tell(tell, untold)


def _tell(tell: Tell, count: int) -> float:
    """Have the loop know of bytes; how long it has made this thread wait."""
    try:
        return anyio.from_thread.run(tell, count)
    except CancelledError as error:
        raise CopyBrokenError("cancelled") from error


def _receive_head(copy: CopyStream) -> RangeSent:
    try:
        return _range.decode(copy.receive_frame(ASKED_BYTES_MAX).payload)
    except msgspec.MsgspecError as error:
        raise CopyBrokenError(f"the peer sends nonsense: {error}") from error


def _head(offset: int, length: int, available: int, digest: bytes) -> bytes:
    sent = RangeSent(offset=offset, length=length, available=available, digest=digest)
    return encode_frame(FrameKind.RANGE, _encoder.encode(sent))


async def _in_thread(
    copy: CopyStream,
    limiter: anyio.CapacityLimiter,
    function: Callable[[*_Arguments], None],
    *arguments: *_Arguments,
) -> None:
    """Run what waits in a stream in a thread, which hears of no cancellation: it is cut off."""
    failure: Exception | None = None
    is_done = False

    async def cut_when_cancelled() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            if not is_done:
                copy.cut()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cut_when_cancelled)
        try:
            await anyio.to_thread.run_sync(function, *arguments, limiter=limiter)
        except Exception as error:  # noqa: BLE001 - raised below, outside of the group
            failure = error
        is_done = True
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
