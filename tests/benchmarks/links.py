"""Links on loopback, both ends in this process: small frames, bulk beside plain TLS, heartbeats."""

import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel

from node.io.identity import load_or_create_identity
from node.io.mesh import tls
from node.io.mesh.event import PeerDown, PeerUp
from node.io.mesh.limits import MeshLimits
from node.model.ids import RequestId
from node.wire.message import StreamCredit
from tests.benchmarks.measure import line, load
from tests.fakes.mesh_lab import Lab, LabNode, eventually, members, open_lab

FRAMES = 200_000
BATCH = 1000
BULK_SECONDS = 3.0
PLAIN_BYTES = 300_000_000
CHUNK = bytes(60_000)
REJOINS = 10


async def small_frames(lab: Lab) -> None:
    limits = MeshLimits(control_frames_max=FRAMES, control_bytes_max=1 << 30)
    one, two = await lab.start("one", limits=limits), await lab.start("two", limits=limits)
    await lab.link(one, two)
    message = StreamCredit(request=RequestId("q-0123456789abcdef"), consumed=7)
    started, wall = time.process_time(), time.monotonic()

    async def send() -> None:
        for _ in range(0, FRAMES, BATCH):
            for _ in range(BATCH):
                assert one.mesh.send(two.node, message)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(send)
        for _ in range(FRAMES):
            await two.mesh.received.receive()
    spent, wall = time.process_time() - started, time.monotonic() - wall
    line("frames a second of processor, both ends together", f"{FRAMES / spent:,.0f}")
    line("the same by the clock", f"{FRAMES / wall:,.0f}", "asked: 300,000, a core each")


async def bulk(lab: Lab) -> None:
    one, two = await lab.start("three"), await lab.start("four")
    await lab.link(one, two)
    sender, receiver = (one, two) if one.mesh.has_bulk(two.node) else (two, one)
    await eventually(lambda: sender.mesh.has_bulk(receiver.node))
    trips: list[float] = []

    async def beat() -> None:
        while True:
            started = time.monotonic()
            await sender.mesh.ping(receiver.node)
            trips.append((time.monotonic() - started) / 5)
            await anyio.sleep(0.005)

    started, wall = time.process_time(), time.monotonic()
    record = None
    async with anyio.create_task_group() as group:
        group.start_soon(beat)
        record = await sender.mesh.ping(receiver.node, BULK_SECONDS)
        group.cancel_scope.cancel()
    spent, wall = time.process_time() - started, time.monotonic() - wall
    assert record is not None
    assert record.bits_per_second is not None
    gigabytes = record.bits_per_second * wall / 8e9
    trips.sort()
    line("bulk, Mb/s", f"{record.bits_per_second / 1e6:,.0f}")
    line("its processor seconds per GB, both ends", f"{spent / gigabytes:.2f}")
    line(
        "heartbeats beside it: p50 / p99, ms",
        f"{1000 * trips[len(trips) // 2]:.1f} / {1000 * trips[int(len(trips) * 0.99)]:.1f}",
        "asked: p99 <= 25 ms",
    )


async def plain_tls(directory: Path) -> None:
    identity = load_or_create_identity(directory / "plain")
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:

        async def take(connection: anyio.abc.SocketStream) -> None:
            stream = await tls.wrap(connection, tls.server_context(identity), server_side=True)
            left = PLAIN_BYTES
            while left > 0:
                left -= len(await stream.receive(65_536))
            await stream.send(b"x")

        group.start_soon(listener.serve, take)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        connection = await anyio.connect_tcp("127.0.0.1", port)
        stream = await tls.wrap(connection, tls.client_context(), server_side=False)
        started, wall = time.process_time(), time.monotonic()
        sent = 0
        while sent < PLAIN_BYTES:
            await stream.send(CHUNK)
            sent += len(CHUNK)
        await stream.receive(1)
        spent, wall = time.process_time() - started, time.monotonic() - wall
        line("plain TLS in the same process, Mb/s", f"{8 * sent / wall / 1e6:,.0f}")
        line("its processor seconds per GB, both ends", f"{spent / (sent / 1e9):.2f}")
        await anyio.aclose_forcefully(stream)
        group.cancel_scope.cancel()


async def rejoin(lab: Lab) -> None:
    keeper, leaver = await lab.start("five"), await lab.start("six")
    await lab.link(keeper, leaver)
    seconds: list[float] = []
    for _ in range(REJOINS):
        port = leaver.address.port
        await leaver.stop()
        await keeper.next_of(PeerDown)
        started = time.monotonic()
        leaver = await _start_again(lab, keeper, port)
        up = await keeper.next_of(PeerUp)
        assert up.peer == leaver.node
        seconds.append(time.monotonic() - started)
    line("a restarted mesh is linked again, worst of 10", f"{max(seconds):.3f} s", "asked: 0.5 s")


async def _start_again(lab: Lab, keeper: LabNode, port: int) -> LabNode:
    leaver = await lab.start("six", port=port)
    leaver.mesh.set_admitted(members(keeper))
    return leaver


def run() -> None:
    line("load averages", load())

    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            parts: tuple[Callable[[Lab], Awaitable[None]], ...] = (small_frames, bulk, rejoin)
            for number, part in enumerate(parts):
                async with open_lab(Path(folder) / str(number)) as lab:
                    await part(lab)
            await plain_tls(Path(folder))

    anyio.run(main)
