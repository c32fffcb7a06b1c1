"""What a connection measures: only its own answer says how much has arrived."""

import anyio
from anyio.abc import ByteStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from node.io.mesh.channel import Channel
from node.io.mesh.event import PeerMessage
from node.io.mesh.limits import MeshLimits
from node.io.mesh.outbox import Outbox
from node.wire.codec import Codec
from node.wire.frame import FrameKind, FrameReader, encode_frame


class Piped(ByteStream):
    """One end of a connection within this process."""

    def __init__(
        self, send: MemoryObjectSendStream[bytes], receive: MemoryObjectReceiveStream[bytes]
    ) -> None:
        self._send, self._receive = send, receive

    async def send(self, item: bytes) -> None:
        await self._send.send(item)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._receive.receive()

    async def send_eof(self) -> None:
        self._send.close()

    async def aclose(self) -> None:
        self._send.close()
        self._receive.close()


class Peer:
    """Takes everything, and answers a measurement when it is told to."""

    def __init__(self, stream: Piped) -> None:
        self.stream = stream
        self.asked: list[bytes] = []

    async def run(self) -> None:
        reader = FrameReader()
        while True:
            reader.feed(await self.stream.receive())
            self.asked += [
                frame.payload for frame in reader.frames() if frame.kind == FrameKind.PROBE_END
            ]

    async def answer(self, payload: bytes) -> None:
        await self.stream.send(encode_frame(FrameKind.PROBE_ARRIVED, payload))


async def ignores(_: PeerMessage) -> None:
    """Nothing else comes over this connection."""


async def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_measurement() -> None:
    there, from_here = anyio.create_memory_object_stream[bytes](100)
    here, from_there = anyio.create_memory_object_stream[bytes](100)
    codec, own = Codec(), Piped(there, from_there)
    channel = Channel(
        own, FrameReader(), codec, MeshLimits(stall_seconds=0.3),
        Outbox(codec, 64, 8 * 1024 * 1024, 0),
    )  # fmt: skip
    peer = Peer(Piped(here, from_here))
    rates: list[float | None] = []

    async def measure() -> None:
        rates.append(await channel.measure(0.02))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(channel.run, ignores)
        tasks.start_soon(peer.run)
        await measure()
        assert rates == [None], "nobody has answered"
        tasks.start_soon(measure)
        with anyio.fail_after(5):
            while len(peer.asked) < 2:  # noqa: ASYNC110
                await anyio.sleep(0.005)
            await peer.answer(peer.asked[0])
            await anyio.wait_all_tasks_blocked()
            assert rates == [None], "what has come is the answer of before"
            await peer.answer(peer.asked[1])
            while len(rates) < 2:  # noqa: ASYNC110
                await anyio.sleep(0.005)
        assert rates[1]
        tasks.cancel_scope.cancel()
    for stream in (own, peer.stream):
        await stream.aclose()
