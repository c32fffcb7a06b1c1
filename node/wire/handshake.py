"""The greeting of two nodes inside TLS 1.3: its messages, and what each side signs.

The dialler knows the server by its certificate. The server knows the dialler by a signature over
both ids, both nonces and the server's certificate, so that a proof can't be passed on to a third.

    dialler                                  server
    Hello      key, nonce, cluster, purpose  ->
                                             <-  Challenge  nonce, cluster
    Proof      signature, own refusal        ->
                                             <-  Verdict    refusal or none; Granted for a join

One that asks to be let in by a person goes on after `Proof`, so that both screens show one short
code. The server commits itself to its nonce before it hears the dialler's: nobody in between can
make the two codes agree but by luck, once in a million.

                                             <-  Commitment  SHA-256 of a nonce
    Revelation nonce                         ->
                                             <-  Revelation  that nonce; then Waiting, often
    Verdict    the codes are equal           ->
                                             <-  Granted, or a Verdict with a refusal
"""

import hashlib
from typing import Annotated, Any, Literal

import msgspec

from node.model.errors import Failure
from node.model.ids import ClusterId, NodeId
from node.model.machine import Address
from node.wire.frame import Frame, FrameKind, encode_frame

PROTOCOL = 1
ALPN = "exoctl/1"
NONCE_BYTES = 32
NAME_CHARACTERS_MAX = 64
ADDRESSES_MAX = 16
COMPARISON_DIGITS = 6
_FAILURE_CHARACTERS_MAX = 300

_Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
_Text = Annotated[str, msgspec.Meta(max_length=128)]
_Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class HandshakeError(Exception):
    """The other end's greeting is no greeting."""


class Bearing(msgspec.Struct, frozen=True, kw_only=True):
    """What each side says of itself before anything is proved."""

    protocol: int
    cluster: _Text
    """`cluster_hint` of its cluster."""
    cluster_name: _Text = ""
    process: _Text
    """Random for each process: two processes with one id are told apart."""
    name: _Text
    port: _Port
    """Where it listens."""
    members: _Count = 1
    """Nodes in its cluster."""
    trust: _Text = "invite"
    version: _Text = ""
    wall: float = 0.0
    """What its clock shows, seconds since 1970; 0 where it does not say."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """Dialler, first."""

    bearing: Bearing
    purpose: Literal["link", "bulk", "join", "ask", "copy"]
    public_key: Annotated[bytes, msgspec.Meta(max_length=256)]
    nonce: _Nonce


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """Server, second."""

    bearing: Bearing
    nonce: _Nonce


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """Dialler, third: it is who it says, and whether it wants the server at all."""

    signature: Annotated[bytes, msgspec.Meta(max_length=128)]
    code_proof: Annotated[bytes, msgspec.Meta(max_length=64)] = b""
    """For a join: HMAC of the transcript under the invite code."""
    refusal: Failure | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Server, last: in, or why not."""

    refusal: Failure | None = None


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """Server, last, to one that joins: the cluster has admitted it."""

    cluster: _Text
    cluster_name: _Text
    code_proof: Annotated[bytes, msgspec.Meta(max_length=64)]
    """The server knows the code too; empty where none was asked for."""
    addresses: Annotated[
        tuple[tuple[_Text, Address], ...], msgspec.Meta(max_length=ADDRESSES_MAX)
    ] = ()
    """Members, and where to reach them."""


class Commitment(msgspec.Struct, frozen=True, kw_only=True):
    """Server, to one that asks: it can't choose its nonce by the dialler's any more."""

    digest: _Nonce


class Revelation(msgspec.Struct, frozen=True, kw_only=True):
    """Each side's share of the code that both screens show."""

    nonce: _Nonce


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Server, to one that asks: nobody has decided yet."""


Greeting = Hello | Challenge | Proof | Verdict | Granted | Commitment | Revelation | Waiting

_KINDS: dict[type, FrameKind] = {
    Hello: FrameKind.HELLO,
    Challenge: FrameKind.CHALLENGE,
    Proof: FrameKind.PROOF,
    Verdict: FrameKind.VERDICT,
    Granted: FrameKind.GRANTED,
    Commitment: FrameKind.COMMITMENT,
    Revelation: FrameKind.REVELATION,
    Waiting: FrameKind.WAITING,
}
_DECODERS: dict[int, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(greeting) for greeting, kind in _KINDS.items()
}
_ENCODER = msgspec.msgpack.Encoder()


def encode_greeting(greeting: Greeting) -> bytes:
    """The frame of a greeting."""
    return encode_frame(_KINDS[type(greeting)], _ENCODER.encode(greeting))


def decode_greeting(frame: Frame) -> Greeting:
    """The greeting in a frame.

    Raises:
        HandshakeError: the frame is of another kind, or its payload does not fit.
    """
    decoder = _DECODERS.get(frame.kind)
    if decoder is None:
        raise HandshakeError(f"a frame of kind {frame.kind} in the greeting")
    try:
        return decoder.decode(frame.payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise HandshakeError(f"the greeting does not fit: {error}") from error


def cluster_hint(cluster: ClusterId) -> str:
    """Tells clusters apart without giving the id away; its first 8 characters go into mDNS."""
    return hashlib.sha256(b"exoctl-cluster|" + cluster.encode()).hexdigest()[:32]


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a proof binds together; equal on both ends unless somebody sits between."""

    dialler: NodeId
    server: NodeId
    hello: bytes
    """Payload as it went over the wire; it holds the dialler's nonce."""
    challenge: bytes
    """Payload as it went over the wire; it holds the server's nonce."""
    certificate: bytes
    """DER of the server's certificate."""

    def transcript(self, role: Literal["dialler", "server"]) -> bytes:
        """The bytes that the side of this role proves itself over, every part of fixed length."""
        digests = (
            hashlib.sha256(part).digest() for part in (self.hello, self.challenge, self.certificate)
        )
        head = f"exoctl-auth-v{PROTOCOL}|{role}|{self.dialler}|{self.server}|"
        return head.encode() + b"".join(digests)

    def comparison_code(self, dialler_nonce: bytes, server_nonce: bytes) -> str:
        """Six digits for two people, or one between two screens, to compare."""
        bound = b"compare|" + dialler_nonce + server_nonce + self.transcript("dialler")
        number = int.from_bytes(hashlib.sha256(bound).digest(), "big")
        return f"{number % 10**COMPARISON_DIGITS:0{COMPARISON_DIGITS}d}"


def printable(text: str, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """Text from a stranger, without anything that a terminal would act upon."""
    return "".join(character for character in text if character.isprintable())[:characters_max]


def printable_failure(failure: Failure) -> Failure:
    """A failure as a stranger tells it, fit for a screen."""
    return Failure(
        code=printable(failure.code),
        message=printable(failure.message, _FAILURE_CHARACTERS_MAX),
        remedy=printable(failure.remedy, _FAILURE_CHARACTERS_MAX),
        node=printable(failure.node),
    )
