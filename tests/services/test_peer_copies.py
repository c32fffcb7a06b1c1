"""Large files over connections of their own: two real meshes on loopback, each with a store."""

import errno
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from node.core.download_queue import Job
from node.io.hub import part_file
from node.io.hub.part_file import PartFile, WrongChunkError
from node.io.mesh.copy_stream import CopyBrokenError, CopyStream
from node.io.mesh.limits import MeshLimits
from node.io.model_store.hub_cache import Repository
from node.model.download import RemoteFile
from node.model.ids import ModelId, NodeId
from node.services import peer_copies, peer_pieces
from node.services.peer_copies import PeerCopies, Taking
from node.wire.frame import FrameKind, encode_frame
from tests.fakes.mesh_lab import Lab, LabNode, eventually, members, open_lab

MODEL = ModelId("acme/m")
JOB = Job(model=MODEL, queued_at=1.0)
CHUNK = 64 * 1024
CONTENT = bytes(number % 251 for number in range(5 * CHUNK + 999))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (part_file, peer_pieces, peer_copies):
        monkeypatch.setattr(module, "CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(peer_copies, "BUFFER_BYTES", CHUNK // 4)


def remote_file(content: bytes) -> RemoteFile:
    file = RemoteFile(path="model.safetensors", size=len(content), hash="0" * 64)
    running = part_file.Running(file)
    running.update(content)
    return RemoteFile(path=file.path, size=file.size, hash=running.hexdigest())


class Two:
    """One that gives, one that takes."""

    def __init__(self, lab: Lab, giver: LabNode, taker: LabNode, root: Path) -> None:
        self.lab, self.giver, self.taker = lab, giver, taker
        self.file = remote_file(CONTENT)
        self.theirs, self.ours = Repository(root / "g", MODEL), Repository(root / "t", MODEL)
        for repository in (self.theirs, self.ours):
            repository.prepare()
        self.giving = PeerCopies(root / "g", giver.mesh.open_copy)
        giver.mesh.serve_copies(self.giving.serve)
        self.opened: list[CopyStream] = []
        self.copies = PeerCopies(root / "t", self._open)
        self.part = PartFile(self.ours.own, self.file)
        self.part.open()
        self.told = 0

    async def _open(self, peer: NodeId) -> CopyStream | None:
        copy = await self.taker.mesh.open_copy(peer)
        if copy is not None:
            self.opened.append(copy)
        return copy

    def give(self, content: bytes = CONTENT) -> None:
        part = PartFile(self.theirs.own, self.file)
        part.open()
        part.append(CONTENT)
        part.finish(self.theirs.blob(self.file))
        self.theirs.blob(self.file).write_bytes(content)

    def on_bytes(self, count: int) -> float:
        self.told += count
        return 0.0

    async def take(self, taking: Taking) -> bool:
        return await taking.take(self.giver.node, JOB, self.file, self.part, self.on_bytes)

    async def take_once(self) -> bool:
        taking = self.copies.taking()
        try:
            return await self.take(taking)
        finally:
            taking.close()


@asynccontextmanager
async def two_in(tmp_path: Path, limits: MeshLimits | None = None) -> AsyncGenerator[Two]:
    async with open_lab(tmp_path / "lab") as lab:
        giver = await lab.start("giver", limits=limits)
        taker = await lab.start("taker")
        await lab.link(giver, taker)
        two = Two(lab, giver, taker, tmp_path)
        with anyio.fail_after(20):
            yield two
        two.part.close()


async def test_a_file_comes_whole_and_every_byte_is_told(tmp_path: Path) -> None:
    async with two_in(tmp_path) as two:
        two.give()
        assert await two.take_once()
        assert two.told == len(CONTENT)
        target = two.ours.blob(two.file)
        two.part.finish(target)
        assert target.read_bytes() == CONTENT


async def test_it_goes_on_at_any_byte_and_either_side_may_have_dialled(tmp_path: Path) -> None:
    async with two_in(tmp_path) as two:
        two.give()
        two.part.append(CONTENT[: CHUNK + 77])
        two.giver, two.taker = two.taker, two.giver
        two.giver.mesh.serve_copies(two.giving.serve)
        assert await two.take_once()
        assert two.told == len(CONTENT) - CHUNK - 77
        assert two.part.all_digests()[-1].hex() == two.file.hash


async def test_a_damaged_chunk_is_cut_off_and_never_noted(tmp_path: Path) -> None:
    wrong = bytearray(CONTENT)
    wrong[3 * CHUNK + 5] ^= 1
    async with two_in(tmp_path) as two:
        two.give(bytes(wrong))
        with pytest.raises(WrongChunkError) as caught:
            await two.take_once()
        assert caught.value.sound == two.part.length == 3 * CHUNK
        held = peer_pieces.find_held(two.ours, two.file)
        assert held.available == 3 * CHUNK
        two.theirs.blob(two.file).write_bytes(CONTENT)
        assert await two.take_once()
        assert two.part.all_digests()[-1].hex() == two.file.hash


async def test_what_is_still_arriving_is_followed_over_one_connection(tmp_path: Path) -> None:
    async with two_in(tmp_path) as two:
        theirs = PartFile(two.theirs.own, two.file)
        theirs.open()
        theirs.append(CONTENT[: CHUNK + 100])
        taking = two.copies.taking()
        assert await two.take(taking)
        assert two.part.length == CHUNK  # what has no sum yet is not given on
        assert await two.take(taking)
        assert two.part.length == CHUNK
        theirs.append(CONTENT[CHUNK + 100 :])
        theirs.finish(two.theirs.blob(two.file))
        assert await two.take(taking)
        assert two.part.is_full
        taking.close()
        assert len(two.opened) == 1


async def test_cancelled_it_ends_at_once_and_what_came_is_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_in(tmp_path) as two:
        two.give()

        def pause_after_some(count: int) -> float:
            two.told += count
            return 3600.0 if two.told > 2 * CHUNK else 0.0

        two.on_bytes = pause_after_some
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(two.take_once)
            await eventually(lambda: two.told > 2 * CHUNK)
            tasks.cancel_scope.cancel()
        length = two.part.length
        assert 2 * CHUNK < length < len(CONTENT)
        two.part.close()
        again = PartFile(two.ours.own, two.file)
        again.open()
        assert again.length == length
        again.close()
        await eventually(lambda: two.copies._takers.borrowed_tokens == 0)  # pyright: ignore[reportPrivateUsage]
        await eventually(lambda: two.giving._givers.borrowed_tokens == 0)  # pyright: ignore[reportPrivateUsage]


async def test_the_end_of_the_link_is_the_end_of_its_copies(tmp_path: Path) -> None:
    async with two_in(tmp_path) as two:
        two.give()
        copy = await two.taker.mesh.open_copy(two.giver.node)
        assert copy is not None
        two.giver.mesh.set_admitted({})

        def read() -> None:
            with pytest.raises(CopyBrokenError):
                copy.receive_frame(1024)

        await anyio.to_thread.run_sync(read)
        copy.close()
        assert await two.taker.mesh.open_copy(two.giver.node) is None


async def test_a_stranger_and_one_connection_too_many_get_none(tmp_path: Path) -> None:
    async with two_in(tmp_path, MeshLimits(copies_max=2)) as two:
        stranger = await two.lab.start("stranger")
        stranger.mesh.set_admitted(members(two.giver))
        assert await stranger.mesh.open_copy(two.giver.node) is None
        first = await two.taker.mesh.open_copy(two.giver.node)
        second = await two.taker.mesh.open_copy(two.giver.node)
        assert first is not None
        assert second is not None
        assert await two.taker.mesh.open_copy(two.giver.node) is None
        first.close()
        await eventually(lambda: two.giving._givers.borrowed_tokens == 1)  # pyright: ignore[reportPrivateUsage]
        third = await two.taker.mesh.open_copy(two.giver.node)
        assert third is not None
        third.close()
        second.close()


async def test_a_peer_without_such_connections_is_not_asked_twice(tmp_path: Path) -> None:
    async with two_in(tmp_path) as two:
        asked: list[NodeId] = []

        async def none(peer: NodeId) -> None:
            asked.append(peer)

        two.copies = PeerCopies(tmp_path, none)
        assert not await two.take_once()
        assert not await two.take_once()
        assert asked == [two.giver.node]
        assert two.part.length == 0


@pytest.mark.parametrize(
    "asked",
    [
        encode_frame(FrameKind.SERVICE, b"\xc1nonsense"),
        b"\xff\xff\xff\xff\x22\x00",
        b"\x00\x00\x00\x00\x22\x00",
    ],
)
async def test_nonsense_ends_only_its_connection(tmp_path: Path, asked: bytes) -> None:
    async with two_in(tmp_path) as two:
        two.give()
        copy = await two.taker.mesh.open_copy(two.giver.node)
        assert copy is not None
        copy.send(asked)
        with pytest.raises(CopyBrokenError):
            await anyio.to_thread.run_sync(copy.receive_frame, 1024)
        copy.close()
        assert await two.take_once()
        assert two.part.is_full


@pytest.mark.parametrize("answer", ["other offset", "too long", "nonsense"])
async def test_a_giver_that_sends_what_was_not_asked_for_is_cut(
    tmp_path: Path, answer: str
) -> None:
    heads = {
        "other offset": peer_copies._head(7, 10, 10, b""),  # pyright: ignore[reportPrivateUsage]
        "too long": peer_copies._head(0, CHUNK + 1, CHUNK + 1, b""),  # pyright: ignore[reportPrivateUsage]
        "nonsense": encode_frame(FrameKind.RANGE, b"\xc1"),
    }
    async with two_in(tmp_path) as two:

        async def lie(_: NodeId, copy: CopyStream) -> None:
            try:
                copy.send(heads[answer] + bytes(100))
                await anyio.sleep_forever()
            finally:
                copy.close()

        two.giver.mesh.serve_copies(lie)
        assert await two.take_once()
        assert two.part.length == 0


async def test_a_full_disk_is_told_as_such_not_as_a_bad_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    async with two_in(tmp_path) as two:
        two.give()
        monkeypatch.setattr(two.part, "append", full)
        with pytest.raises(OSError, match="no space left"):
            await two.take_once()
