"""The greeting on a fresh TLS connection, both sides; `wire.handshake` says what is exchanged."""

import hashlib
import hmac
from typing import Literal, TypeVar

import msgspec

from node.io import clock
from node.io.identity import Identity, node_id, verify
from node.io.mesh.tls_stream import TlsStream
from node.model.errors import Failure
from node.model.ids import NodeId
from node.wire.frame import GREETING_BYTES_MAX, HEADER_BYTES, FrameReader
from node.wire.handshake import (
    NONCE_BYTES,
    Bearing,
    Challenge,
    Commitment,
    Exchange,
    Granted,
    Greeting,
    HandshakeError,
    Hello,
    Proof,
    Revelation,
    Verdict,
    decode_greeting,
    encode_greeting,
)

Purpose = Literal["link", "bulk", "join", "ask", "copy"]
_G = TypeVar("_G", Hello, Challenge, Proof, Commitment, Revelation)


class BadProofError(HandshakeError):
    """The other end does not hold the key that it shows."""


class Met(msgspec.Struct, frozen=True, kw_only=True):
    """The other side of a greeting. For the server its id is proved once `Guest` is made of it."""

    peer: NodeId
    bearing: Bearing
    exchange: Exchange


class Guest(msgspec.Struct, frozen=True, kw_only=True):
    """A dialler that proved its id."""

    peer: NodeId
    bearing: Bearing
    exchange: Exchange
    purpose: Purpose
    code_proof: bytes
    refusal: Failure | None
    """Why it does not want this node, after all."""


class GreetingStream:
    """Greetings over a connection, small ones only."""

    def __init__(self, stream: TlsStream) -> None:
        self.stream = stream
        self.reader = FrameReader(GREETING_BYTES_MAX)
        """Holds what came after the last greeting."""

    async def send(self, greeting: Greeting) -> bytes:
        """Send it; returns the payload as it went out."""
        frame = encode_greeting(greeting)
        await self.stream.send(frame)
        return frame[HEADER_BYTES:]

    async def receive(self) -> tuple[Greeting, bytes]:
        """The next greeting and its payload.

        Raises:
            FrameError, HandshakeError: it is too long, or no greeting.
        """
        while (frame := self.reader.next_frame()) is None:
            self.reader.feed(await self.stream.receive(GREETING_BYTES_MAX))
        return decode_greeting(frame), frame.payload

    async def expect(self, greeting: type[_G]) -> tuple[_G, bytes]:
        """The next greeting, which must be of this type.

        Raises:
            FrameError, HandshakeError: it is not.
        """
        received, payload = await self.receive()
        if not isinstance(received, greeting):
            raise HandshakeError(f"{type(received).__name__} came where {greeting.__name__} is due")
        return received, payload


class Dialler:
    """The side that dialled. `introduce` first, then `prove`."""

    def __init__(self, wire: GreetingStream, identity: Identity) -> None:
        self._wire = wire
        self._identity = identity

    async def introduce(
        self, bearing: Bearing, purpose: Purpose, server: NodeId, certificate: bytes
    ) -> Met:
        """Say hello to the server that TLS has proved, and hear what it says of itself."""
        hello = Hello(
            bearing=bearing,
            purpose=purpose,
            public_key=self._identity.public_key,
            nonce=new_nonce(),
        )
        hello_payload = await self._wire.send(hello)
        challenge, challenge_payload = await self._wire.expect(Challenge)
        exchange = Exchange(
            dialler=self._identity.node,
            server=server,
            hello=hello_payload,
            challenge=challenge_payload,
            certificate=certificate,
        )
        return Met(peer=server, bearing=challenge.bearing, exchange=exchange)

    async def prove(
        self, met: Met, refusal: Failure | None = None, code_key: bytes = b""
    ) -> Verdict | Granted:
        """Prove this node's id and hear the verdict.

        Raises:
            FrameError, HandshakeError: what comes back is none.
        """
        await self.send_proof(met, refusal, code_key)
        verdict, _ = await self._wire.receive()
        if not isinstance(verdict, Verdict | Granted):
            raise HandshakeError(f"{type(verdict).__name__} came where a verdict is due")
        return verdict

    async def send_proof(
        self, met: Met, refusal: Failure | None = None, code_key: bytes = b""
    ) -> None:
        """Prove this node's id; the answer is the caller's to hear."""
        transcript = met.exchange.transcript("dialler")
        proof = Proof(
            signature=self._identity.sign(transcript),
            code_proof=code_proof(code_key, met.exchange, "dialler") if code_key else b"",
            refusal=refusal,
        )
        await self._wire.send(proof)


async def receive_guest(wire: GreetingStream, identity: Identity, bearing: Bearing) -> Guest:
    """The server's side up to the verdict: hear who is there, and have it proved.

    Raises:
        BadProofError: it does not hold the key that it shows, or the proof was made for another.
        FrameError, HandshakeError: what it says is no greeting.
    """
    hello, hello_payload = await wire.expect(Hello)
    challenge = Challenge(bearing=bearing, nonce=new_nonce())
    challenge_payload = await wire.send(challenge)
    proof, _ = await wire.expect(Proof)
    exchange = Exchange(
        dialler=node_id(hello.public_key),
        server=identity.node,
        hello=hello_payload,
        challenge=challenge_payload,
        certificate=identity.certificate,
    )
    if not verify(hello.public_key, proof.signature, exchange.transcript("dialler")):
        raise BadProofError("the proof of identity does not hold")
    return Guest(
        peer=exchange.dialler,
        bearing=hello.bearing,
        exchange=exchange,
        purpose=hello.purpose,
        code_proof=proof.code_proof,
        refusal=proof.refusal,
    )


def code_proof(key: bytes, exchange: Exchange, role: Literal["dialler", "server"]) -> bytes:
    """Shows that this side knows the invite code, to this other side only."""
    return hmac.digest(key, b"code|" + exchange.transcript(role), hashlib.sha256)


def proofs_equal(one: bytes, other: bytes) -> bool:
    """Compare two proofs in a time that tells nothing of them."""
    return hmac.compare_digest(one, other)


def new_nonce() -> bytes:
    """Fresh chance for one greeting."""
    return bytes.fromhex(clock.random_hex(2 * NONCE_BYTES))
