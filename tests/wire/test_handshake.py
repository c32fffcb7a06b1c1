"""Greetings are strict and small, and what strangers say is fit for a screen."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model.errors import Failure
from node.model.ids import ClusterId, NodeId
from node.model.machine import Address
from node.wire.frame import GREETING_BYTES_MAX, Frame, FrameKind, FrameReader
from node.wire.handshake import (
    ADDRESSES_MAX,
    Bearing,
    Challenge,
    Exchange,
    Granted,
    Greeting,
    HandshakeError,
    Hello,
    Proof,
    Verdict,
    cluster_hint,
    decode_greeting,
    encode_greeting,
    printable,
    printable_failure,
)

BEARING = Bearing(
    protocol=1, cluster=cluster_hint(ClusterId("c" * 32)), process="p" * 32, name="é", port=52416
)
FAILURE = Failure(code="other_cluster", message="m" * 300, remedy="r" * 300, node="n" * 64)
GREETINGS: tuple[Greeting, ...] = (
    Hello(bearing=BEARING, purpose="link", public_key=bytes(91), nonce=bytes(32)),
    Challenge(bearing=BEARING, nonce=bytes(32)),
    Proof(signature=bytes(72), code_proof=bytes(32), refusal=FAILURE),
    Verdict(refusal=FAILURE),
    Granted(
        cluster="c" * 32,
        cluster_name="home",
        code_proof=bytes(32),
        addresses=((("n" * 52), Address("fe80::1234:5678:9abc:def0%enp0s31f6", 52416)),)
        * ADDRESSES_MAX,
    ),
)


def frame_of(encoded: bytes) -> Frame:
    reader = FrameReader(GREETING_BYTES_MAX)
    reader.feed(encoded)
    frame = reader.next_frame()
    assert frame is not None
    return frame


@pytest.mark.parametrize("greeting", GREETINGS, ids=lambda greeting: type(greeting).__name__)
def test_a_greeting_at_its_largest_fits_and_survives_the_wire(greeting: Greeting):
    encoded = encode_greeting(greeting)
    assert len(encoded) <= GREETING_BYTES_MAX
    assert decode_greeting(frame_of(encoded)) == greeting


def hello(**changes: object) -> Frame:
    payload = msgspec.to_builtins(GREETINGS[0], builtin_types=(bytes,)) | changes
    return Frame(FrameKind.HELLO, 0, msgspec.msgpack.encode(payload))


@pytest.mark.parametrize(
    "frame",
    [
        Frame(FrameKind.REPLICA, 0, b""),
        Frame(200, 0, b""),
        Frame(FrameKind.HELLO, 0, b""),
        Frame(FrameKind.HELLO, 0, b"\x91" * 4000),
        hello(nonce=bytes(31)),
        hello(nonce=bytes(33)),
        hello(public_key=bytes(257)),
        hello(purpose="rule"),
        hello(bearing={"protocol": 1}),
        hello(bearing=msgspec.to_builtins(BEARING) | {"name": "n" * 129}),
        hello(bearing=msgspec.to_builtins(BEARING) | {"port": 65536}),
        hello(bearing=msgspec.to_builtins(BEARING) | {"members": -1}),
    ],
)
def test_anything_else_is_no_greeting(frame: Frame):
    with pytest.raises(HandshakeError):
        decode_greeting(frame)


def test_a_greeting_of_a_newer_version_with_more_fields_is_understood():
    newer = msgspec.to_builtins(BEARING) | {"protocol": 2, "mood": "good"}
    decoded = decode_greeting(hello(bearing=newer, more=[1, 2]))
    assert isinstance(decoded, Hello)
    assert decoded.bearing.protocol == 2


EXCHANGE = Exchange(
    dialler=NodeId("a" * 52),
    server=NodeId("b" * 52),
    hello=b"hello",
    challenge=b"challenge",
    certificate=b"certificate",
)


@pytest.mark.parametrize(
    "other",
    [
        msgspec.structs.replace(EXCHANGE, dialler=NodeId("c" * 52)),
        msgspec.structs.replace(EXCHANGE, server=NodeId("c" * 52)),
        msgspec.structs.replace(EXCHANGE, hello=b"hellp"),
        msgspec.structs.replace(EXCHANGE, challenge=b"challenger"),
        msgspec.structs.replace(EXCHANGE, certificate=b"another"),
    ],
)
def test_a_proof_binds_every_part_of_the_exchange(other: Exchange):
    assert EXCHANGE.transcript("dialler") != other.transcript("dialler")
    assert EXCHANGE.transcript("dialler") != EXCHANGE.transcript("server")


@given(st.text(max_size=300))
def test_a_strangers_text_holds_nothing_that_a_terminal_acts_upon(text: str):
    shown = printable(text)
    assert len(shown) <= 64
    assert shown.isprintable()


def test_a_strangers_failure_is_cut_and_cleaned():
    failure = printable_failure(
        Failure(code="c\x1b[2J", message="m\r\n" * 500, remedy="\x07", node="n" * 500)
    )
    assert failure == Failure(code="c[2J", message="m" * 300, remedy="", node="n" * 64)


def test_a_cluster_hint_tells_clusters_apart_and_not_their_ids():
    one, other = cluster_hint(ClusterId("1" * 32)), cluster_hint(ClusterId("2" * 32))
    assert one != other
    assert "1" * 8 not in one
