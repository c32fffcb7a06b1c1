"""Files from node to node: two nodes in one process, their messages handed over by hand."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from node.core.download_queue import Job
from node.io.hub import part_file
from node.io.hub.part_file import PartFile
from node.io.model_store.hub_cache import Repository
from node.model.download import Listing, RemoteFile
from node.model.ids import ModelId, NodeId
from node.model.machine import Address
from node.model.register import (
    DownloadFigures,
    DownloadRecord,
    LinkFigures,
    LinkRecord,
    Register,
)
from node.services import peer_pieces, peer_source
from node.services.peer_pieces import PeerPieces, PieceMessage
from node.services.peer_source import PeerSource
from node.wire.message import ListingAsked, ListingTold, PieceSent, ServiceMessage

HERE, GOOD, BAD = NodeId("here"), NodeId("good"), NodeId("bad")
MODEL = ModelId("acme/m")
COMMIT = "c" * 40
CHUNK = 64 * 1024
CONTENT = bytes(number % 251 for number in range(3 * CHUNK + 999))


def remote_file(content: bytes) -> RemoteFile:
    file = RemoteFile(path="model.safetensors", size=len(content), hash="0" * 64)
    running = part_file.Running(file)
    running.update(content)
    return RemoteFile(path=file.path, size=file.size, hash=running.hexdigest())


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (part_file, peer_pieces, peer_source):
        monkeypatch.setattr(module, "CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(peer_pieces, "PIECE_BYTES", CHUNK // 4)
    monkeypatch.setattr(peer_pieces, "ANSWER_SECONDS", 0.2)


class Net:
    """Hands messages from node to node; what a wire does to bytes can be played."""

    def __init__(self, tmp_path: Path, tasks: anyio.abc.TaskGroup) -> None:
        self.file = remote_file(CONTENT)
        self.listing = Listing(repo=MODEL, revision="main", commit=COMMIT, files=(self.file,))
        self.pieces: dict[NodeId, PeerPieces] = {}
        self.silent: set[NodeId] = set()
        self.flips: set[NodeId] = set()
        self.sent: dict[NodeId, int] = {}
        self.repositories: dict[NodeId, Repository] = {}
        for node in (HERE, GOOD, BAD):
            root = tmp_path / node
            self.pieces[node] = PeerPieces(root, self._sender(node), tasks)
            self.repositories[node] = Repository(root, MODEL)
            self.repositories[node].prepare()
        self.source = PeerSource(HERE, self.registers, self.pieces[HERE], str)
        self.phases = {GOOD: "complete", BAD: "complete"}
        self.part = PartFile(self.repositories[HERE].own, self.file)

    def registers(self) -> dict[tuple[NodeId, str], Register]:
        links = tuple(
            LinkRecord(peer=node, address=Address("127.0.0.1", 1), up=True, rtt_seconds=rtt)
            for node, rtt in ((BAD, 0.001), (GOOD, 0.002))
        )
        found = {
            (HERE, "LinkFigures"): Register(
                node=HERE, incarnation=1, sequence=1, value=LinkFigures(links=links)
            )
        }
        for node, phase in self.phases.items():
            record = DownloadRecord(
                model=MODEL, phase=phase, bytes_done=1, bytes_total=1, commit=COMMIT
            )
            value = DownloadFigures(downloads=(record,))
            found[node, "DownloadFigures"] = Register(
                node=node, incarnation=1, sequence=1, value=value
            )
        return found

    def give(self, node: NodeId, content: bytes = CONTENT) -> None:
        """Have a node hold the file, whatever its bytes are by now."""
        repository = self.repositories[node]
        part = PartFile(repository.own, self.file)
        part.open()
        part.append(CONTENT)
        part.finish(repository.blob(self.file))
        repository.blob(self.file).write_bytes(content)
        repository.keep_listing(self.listing)

    def _sender(self, node: NodeId):
        def send(peer: NodeId, message: ServiceMessage) -> bool:
            if node in self.silent or peer in self.silent:
                return peer not in self.silent
            if isinstance(message, PieceSent):
                self.sent[node] = self.sent.get(node, 0) + len(message.content)
            if isinstance(message, PieceMessage):
                self.pieces[peer].on_message(node, message)
            return True

        return send

    async def fetch(self) -> bool:
        self.part.open()
        job = Job(model=MODEL, queued_at=1.0)
        return await self.source.fetch(job, self.listing, self.file, self.part, lambda _: 0.0)


@asynccontextmanager
async def net_in(tmp_path: Path) -> AsyncGenerator[Net]:
    async with anyio.create_task_group() as tasks:
        net = Net(tmp_path, tasks)
        with anyio.fail_after(20):
            yield net
        net.part.close()
        tasks.cancel_scope.cancel()


def finish(net: Net) -> bytes:
    target = net.repositories[HERE].blob(net.file)
    net.part.finish(target)
    return target.read_bytes()


async def test_a_file_comes_whole_from_a_peer(tmp_path: Path) -> None:
    async with net_in(tmp_path) as net:
        net.give(GOOD)
        net.phases = {GOOD: "complete"}
        assert await net.fetch()
        assert finish(net) == CONTENT
        assert net.sent[GOOD] == len(CONTENT)


async def test_a_damaged_chunk_is_noticed_its_peer_named_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = bytearray(CONTENT)
    wrong[CHUNK + 5] ^= 1
    async with net_in(tmp_path) as net:
        net.give(GOOD)
        net.give(BAD, bytes(wrong))
        net.phases = {BAD: "complete"}
        with anyio.move_on_after(0.5):
            assert not await net.fetch()  # nobody else has it: the hub is asked
        assert net.part.length == CHUNK
        assert "bad is left" in caplog.text
        net.part.close()
        net.phases = {GOOD: "complete", BAD: "complete"}
        net.part = PartFile(net.repositories[HERE].own, net.file)
        assert await net.fetch()
        assert finish(net) == CONTENT


async def test_a_peer_that_says_nothing_is_left_for_another(tmp_path: Path) -> None:
    async with net_in(tmp_path) as net:
        net.give(GOOD)
        net.give(BAD)
        net.silent = {BAD}
        assert await net.fetch()
        assert finish(net) == CONTENT
        assert BAD not in net.sent


async def test_a_peer_that_is_still_fetching_is_followed_chunk_by_chunk(tmp_path: Path) -> None:
    async with net_in(tmp_path) as net, anyio.create_task_group() as tasks:
        net.phases = {GOOD: "downloading"}
        theirs = PartFile(net.repositories[GOOD].own, net.file)
        theirs.open()
        theirs.append(CONTENT[: CHUNK + 100])
        tasks.start_soon(net.fetch)
        while net.part.length < CHUNK:  # noqa: ASYNC110 -- the far end of an exchange
            await anyio.sleep(0.01)
        await anyio.sleep(0.2)
        assert net.part.length == CHUNK  # what has no sum yet is not given on
        theirs.append(CONTENT[CHUNK + 100 :])
        theirs.finish(net.repositories[GOOD].blob(net.file))
        while not net.part.is_full:  # noqa: ASYNC110
            await anyio.sleep(0.01)
    assert net.part.all_digests()[-1].hex() == net.file.hash


async def test_who_gave_of_a_file_that_hashed_wrong_is_named_and_left(tmp_path: Path) -> None:
    async with net_in(tmp_path) as net:
        net.give(GOOD)
        net.phases = {GOOD: "complete"}
        assert await net.fetch()
        assert net.source.blame(net.file) == ("good",)
        net.part.discard()
        net.part = PartFile(net.repositories[HERE].own, net.file)
        assert not await net.fetch()


async def test_a_listing_can_be_had_from_a_peer(tmp_path: Path) -> None:
    async with net_in(tmp_path) as net:
        net.give(GOOD)
        net.silent = {BAD}
        assert await net.source.listing(Job(model=MODEL)) == net.listing
        assert await net.source.listing(Job(model=MODEL, revision="v2")) is None


@pytest.mark.parametrize("hash_text", ["../../../etc/passwd", "", "z" * 10])
async def test_odd_requests_get_nothing(tmp_path: Path, hash_text: str) -> None:
    odd = RemoteFile(path="x", size=10, hash=hash_text)
    async with net_in(tmp_path) as net:
        net.give(GOOD)
        found = [piece async for piece in net.pieces[HERE].pieces(GOOD, MODEL, odd, 0, 10)]
        assert found == []
        evil = ModelId("../../evil")
        assert [p async for p in net.pieces[HERE].pieces(GOOD, evil, net.file, 0, 10)] == []
        beyond = [
            p async for p in net.pieces[HERE].pieces(GOOD, MODEL, net.file, len(CONTENT) + 5, 10)
        ]
        assert [p.content for p in beyond] == [b""]


async def test_a_name_that_can_be_no_hash_gets_nothing_even_where_such_a_file_lies(
    tmp_path: Path,
) -> None:
    odd = RemoteFile(path="x", size=3, hash="z" * 64)
    async with net_in(tmp_path) as net:
        net.give(GOOD)
        net.repositories[GOOD].blob(odd).write_bytes(b"abc")
        found = [piece async for piece in net.pieces[HERE].pieces(GOOD, MODEL, odd, 0, 3)]
        assert found == []
        assert await net.fetch()  # it still serves


async def test_a_peer_cannot_put_another_commit_in_the_place_of_the_one_asked_for(
    tmp_path: Path,
) -> None:
    async with net_in(tmp_path) as net:

        def lies(peer: NodeId, message: PieceMessage) -> None:
            assert isinstance(message, ListingAsked)
            net.pieces[HERE].on_message(GOOD, ListingTold(id=message.id, listing=net.listing))

        net.pieces[GOOD].on_message = lies
        net.silent = {BAD}
        for revision in ("d" * 40, "v2"):
            assert await net.source.listing(Job(model=MODEL, revision=revision)) is None
        for revision in (COMMIT, "main"):
            assert await net.source.listing(Job(model=MODEL, revision=revision)) == net.listing
