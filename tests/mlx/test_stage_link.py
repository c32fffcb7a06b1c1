"""Links between stages: arrays arrive as they were, strangers and silence are named."""

import socket
import ssl
import threading
from collections.abc import Generator

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
from node.runner.stage_link import PeerGoneError, StageLink
from node.runner.stage_ring import StageRing

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
