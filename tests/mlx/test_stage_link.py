"""Links between stages: arrays arrive as they were, strangers and silence are named."""

import socket
import ssl
import sys
import threading
import time
from collections.abc import Generator
from typing import Any

import mlx.core as mx
import pytest

from node.model.ids import RunnerId
from node.runner.certificate import is_pinned, make_certificate, tls_context
from node.runner.failures import RunnerError, StopAskedError
from node.runner.inbox import Inbox
from node.runner.protocol import Shutdown
from node.runner.stage_frame import (
    ArrayLayout,
    Envelope,
    StageAnswer,
    StageFrameError,
    StageGoodbye,
    decode_header,
)
from node.runner.stage_link import PeerGoneError, StageLink, tune
from node.runner.stage_ring import StageRing
from node.runner.step_deadline import FIRST_SECONDS
from tests.mlx.loop_ring import loop
from tests.mlx.test_architectures import build

Pair = tuple[StageLink, StageLink]


@pytest.fixture
def inbox() -> Generator[Inbox]:
    made = Inbox()
    yield made
    made.close()


@pytest.fixture
def pair(inbox: Inbox) -> Generator[Pair]:
    one, other = socket.socketpair()
    links = StageLink(one, "stage 1"), StageLink(other, "stage 0", inbox)
    yield links
    for link in links:
        link.close()


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16, mx.int32, mx.bool_])
@pytest.mark.parametrize("shape", [(), (1, 1, 7), (2, 3, 5), (0, 4)])
def test_arrays_arrive_as_they_were(pair: Pair, dtype: mx.Dtype, shape: tuple[int, ...]) -> None:
    array = (mx.random.normal(shape) * 3).astype(dtype)
    turned = array.T
    pair[0].send(StageAnswer(sequence=3), [array, turned])
    message, arrays = pair[1].receive(5)
    assert message == StageAnswer(sequence=3)
    for sent, received in zip((array, turned), arrays, strict=True):
        assert (sent.shape, sent.dtype) == (received.shape, received.dtype)
        assert mx.array_equal(sent, received)


def test_a_silent_neighbour_is_lost_after_the_deadline(pair: Pair) -> None:
    with pytest.raises(RunnerError, match=r"stage 0 sent nothing for 0\.1 s"):
        pair[1].receive(0.1)


def test_a_neighbour_that_stops_in_a_frame_is_lost(pair: Pair) -> None:
    pair[0].socket.sendall(b"\x00\x00\x00\x10abc")
    with pytest.raises(RunnerError, match="sent nothing"):
        pair[1].receive(0.1)


def test_a_neighbour_that_takes_nothing_is_lost(pair: Pair) -> None:
    with pytest.raises(RunnerError, match="took nothing"):
        pair[0].send(StageAnswer(sequence=1), [mx.zeros((4_000_000,))], seconds=0.1)


def test_a_neighbour_that_takes_little_at_a_time_is_not_lost(pair: Pair) -> None:
    sent = mx.ones((1_000_000,))
    mx.eval(sent)
    taken = bytearray()

    def take() -> None:
        while len(taken) < 4_000_000:
            threading.Event().wait(0.005)  # more than a second for all of it
            taken.extend(pair[1].socket.recv(16_000))

    taker = threading.Thread(target=take)
    taker.start()
    began = time.monotonic()
    pair[0].send(StageAnswer(sequence=1), [sent], seconds=0.5)
    assert time.monotonic() - began > 0.5
    taker.join(10)
    assert len(taken) >= 4_000_000


def test_a_frame_that_trickles_in_has_a_last_moment(pair: Pair) -> None:
    over = threading.Event()

    def trickle() -> None:
        for byte in b"\x00\x00\x01\x00" + bytes(256):
            pair[0].socket.sendall(bytes([byte]))
            if over.wait(0.05):
                return

    trickler = threading.Thread(target=trickle)
    trickler.start()
    began = time.monotonic()
    try:
        with pytest.raises(RunnerError, match="sent nothing"):
            pair[1].receive(5.0, by=began + 0.4)
        assert time.monotonic() - began < 2
    finally:
        over.set()
        trickler.join(10)


@pytest.mark.skipif(sys.platform != "linux", reason="an option of Linux")
def test_a_neighbour_that_computes_for_long_keeps_its_link() -> None:
    with socket.socket() as connection:
        tune(connection)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0


def test_a_worker_waits_as_long_as_rank_0_allows() -> None:
    models = [build("llama"), build("llama")]
    pipeline, workers = loop(models, (0, 1, len(models[0].layers)))
    allowed: list[float] = []
    worker: Any = workers[0]
    ring = worker._ring
    send = ring.send

    def note(message: Any, arrays: Any = (), seconds: float = 0.0) -> None:
        allowed.append(seconds)
        send(message, arrays, seconds)

    ring.send = note
    cache = pipeline.make_cache()
    for length in (8, 1, 1):
        pipeline(mx.zeros((1, length), mx.int32), cache)
    # Nothing was measured before the first of each kind.
    assert allowed[:2] == [FIRST_SECONDS, FIRST_SECONDS]
    assert allowed[2] < FIRST_SECONDS


def test_a_closed_link_and_a_goodbye_differ(pair: Pair) -> None:
    pair[0].send(StageGoodbye())
    with pytest.raises(PeerGoneError):
        pair[1].receive(1)
    pair[0].close()
    with pytest.raises(RunnerError) as lost:
        pair[1].receive(1)
    assert lost.value.failure.code == "stage_lost"


def test_a_goodbye_explains_a_lost_link(pair: Pair) -> None:
    one, other = socket.socketpair()
    ring = StageRing(previous=pair[1], following=StageLink(one, "stage 1"))
    try:
        pair[0].send(StageAnswer(sequence=1))
        pair[0].say_goodbye()
        other.close()
        with pytest.raises(PeerGoneError):
            ring.send(StageAnswer(sequence=2))
        with pytest.raises(RunnerError, match="is gone"):
            ring.send(StageAnswer(sequence=3))
    finally:
        one.close()


def test_a_stop_ends_the_wait(pair: Pair, inbox: Inbox) -> None:
    threading.Timer(0.05, lambda: inbox.put(Shutdown())).start()
    with pytest.raises(StopAskedError):
        pair[1].receive(10)
    assert inbox.take() == [Shutdown()]


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope(StageAnswer(sequence=1), [ArrayLayout("float32", (1 << 40,))]),
        Envelope(StageAnswer(sequence=1), [ArrayLayout("float32", (-4,))]),
        Envelope(StageAnswer(sequence=1), [ArrayLayout("object", (4,))]),
        Envelope(StageAnswer(sequence=1), [ArrayLayout("float32", (1,) * 20)]),
        Envelope(StageAnswer(sequence=1), [ArrayLayout("float32", (1,))] * 300),
    ],
)
def test_a_frame_that_promises_too_much_is_refused(envelope: Envelope) -> None:
    import msgspec

    with pytest.raises(StageFrameError):
        decode_header(msgspec.msgpack.encode(envelope))


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x02\xc1\xc1", b"GET /"])
def test_garbage_is_named(pair: Pair, garbage: bytes) -> None:
    pair[0].socket.sendall(garbage)
    pair[0].socket.shutdown(socket.SHUT_WR)
    with pytest.raises(RunnerError) as lost:
        pair[1].receive(1)
    assert lost.value.failure.code == "stage_lost"


def handshake(server_trusts: bytes, client_trusts: bytes) -> list[str]:
    """What server and client make of each other: `pinned`, or the error."""
    server, client = (make_certificate(RunnerId(name)) for name in ("r-1", "r-2"))
    one, other = socket.socketpair()
    results: dict[str, str] = {}

    def side(name: str, connection: socket.socket, context: ssl.SSLContext, peer: bytes) -> None:
        connection.settimeout(5)
        try:
            with context.wrap_socket(connection, server_side=name == "server") as protected:
                protected.sendall(b"x")
                protected.recv(1)
                results[name] = "pinned" if is_pinned(protected, peer) else "another"
        except OSError as error:
            results[name] = type(error).__name__
        finally:
            connection.close()

    server_peer, client_peer = server_trusts or client.der, client_trusts or server.der
    sides = [
        threading.Thread(
            target=side,
            args=("server", one, tls_context(server, server_peer, is_server=True), server_peer),
        ),
        threading.Thread(
            target=side,
            args=("client", other, tls_context(client, client_peer, is_server=False), client_peer),
        ),
    ]
    for thread in sides:
        thread.start()
    for thread in sides:
        thread.join(10)
    return [results["server"], results["client"]]


def test_neighbours_know_each_other_by_their_certificates() -> None:
    assert handshake(b"", b"") == ["pinned", "pinned"]


@pytest.mark.parametrize("fooled", ["server", "client"])
def test_another_certificate_is_turned_away(fooled: str) -> None:
    stranger = make_certificate(RunnerId("r-9")).der
    results = handshake(
        stranger if fooled == "server" else b"", stranger if fooled == "client" else b""
    )
    assert results != ["pinned", "pinned"]
    assert results[0 if fooled == "server" else 1] not in ("pinned", "another")
