"""Frames as they should be, and the same after somebody has been at them."""

import random
from collections.abc import Callable

from node.model.command import CommandRequest, PlaceInstance
from node.model.errors import Failure
from node.model.ids import ClusterId, CommandId, ModelId, NodeId, RequestId
from node.model.machine import Address
from node.model.register import JoinFigures, LinkFigures, MachineFigures, Register
from node.wire.codec import Codec, CodecError
from node.wire.frame import (
    FRAME_BYTES_MAX,
    GREETING_BYTES_MAX,
    Frame,
    FrameError,
    FrameKind,
    FrameReader,
    encode_frame,
)
from node.wire.handshake import (
    NONCE_BYTES,
    Bearing,
    Challenge,
    Commitment,
    Granted,
    HandshakeError,
    Hello,
    Proof,
    Revelation,
    Verdict,
    Waiting,
    decode_greeting,
    encode_greeting,
)
from node.wire.message import (
    AddressesKnown,
    CommandSent,
    JoinJudged,
    Leaving,
    RegistersChanged,
    StreamCancelled,
    StreamCredit,
)

NODE = NodeId("a" * 52)
MUTATIONS_MAX = 4
GREW_MAX = 64


def greetings() -> list[bytes]:
    """One frame of each kind that comes before anybody is known."""
    nonce = bytes(NONCE_BYTES)
    bearing = Bearing(protocol=1, cluster="c" * 32, process="p", name="studio", port=52416)
    failure = Failure(code="other_cluster", message="it is another's", remedy="ask", node="a")
    return [
        encode_greeting(greeting)
        for greeting in (
            Hello(bearing=bearing, purpose="link", public_key=bytes(91), nonce=nonce),
            Challenge(bearing=bearing, nonce=nonce),
            Proof(signature=bytes(70), code_proof=bytes(32), refusal=failure),
            Verdict(refusal=failure),
            Granted(
                cluster="c" * 32,
                cluster_name="home",
                code_proof=bytes(32),
                addresses=((NODE, Address("10.0.0.1", 52416)),) * 4,
            ),
            Commitment(digest=nonce),
            Revelation(nonce=nonce),
            Waiting(),
        )
    ]


def messages() -> list[bytes]:
    """Frames of members, of every kind of frame."""
    codec = Codec()
    figures = MachineFigures(
        memory_bytes_total=1,
        memory_bytes_available=1,
        disk_bytes_free=1,
        disk_bytes_total=1,
        processor_fraction=0.5,
        load_average=1.0,
        node_rss_bytes=1,
    )
    registers = tuple(
        Register(node=NODE, incarnation=1, sequence=2, value=value)
        for value in (figures, LinkFigures(), JoinFigures())
    )
    command = CommandRequest(
        id=CommandId("c-1"), asked_by=NODE, command=PlaceInstance(model=ModelId("m"))
    )
    service = (
        CommandSent(request=command, cluster=ClusterId("c")),
        RegistersChanged(registers=registers),
        AddressesKnown(addresses=((NODE, Address("fe80::1", 1)),)),
        StreamCredit(request=RequestId("q-1"), consumed=7),
        StreamCancelled(request=RequestId("q-1")),
        JoinJudged(request="j-1", approve=True),
        Leaving(reason="it stops"),
    )
    ends = [encode_frame(kind, b"12345678") for kind in (FrameKind.PING, FrameKind.PONG)]
    return [codec.encode(one) for one in service] + ends


def mutated(frame: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """The frame with a few bytes changed, cut, repeated, or mixed with another."""
    made = bytearray(frame)
    for _ in range(chance.randint(1, MUTATIONS_MAX)):
        place = chance.randrange(len(made) + 1)
        match chance.randrange(6):
            case 0 if made:
                made[place % len(made)] ^= 1 << chance.randrange(8)
            case 1 if made:
                made[place % len(made)] = chance.choice((0, 0x7F, 0x80, 0xDD, 0xDF, 0xFF))
            case 2:
                del made[place : place + chance.randint(1, 8)]
            case 3:
                made[place:place] = chance.randbytes(chance.randint(1, GREW_MAX))
            case 4:
                other = chance.choice(others)
                cut = chance.randrange(len(other))
                made[place:] = other[cut:]
            case _:
                made[place:place] = made[: chance.randint(0, GREW_MAX)]
    if chance.random() < 0.5 and len(made) >= 4:
        # With a right length the damage gets past the frame's own check.
        made[:4] = max(0, len(made) - 4).to_bytes(4, "big")
    return bytes(made)


class Tally:
    """What became of frames."""

    def __init__(self) -> None:
        self.refused = 0
        self.ignored = 0
        self.taken = 0

    def feed(self, frames: bytes, bytes_max: int, take: Callable[[Frame], object]) -> None:
        """Read bytes as a connection does; whatever is not one of its own errors comes out."""
        reader = FrameReader(bytes_max)
        reader.feed(frames)
        try:
            for frame in reader.frames():
                if take(frame) is None:
                    self.ignored += 1
                else:
                    self.taken += 1
        except (FrameError, HandshakeError, CodecError):
            self.refused += 1


def campaign(count: int, seed: int) -> tuple[Tally, Tally]:
    """Half of the frames before, half after anybody is known."""
    chance = random.Random(seed)
    before, after = Tally(), Tally()
    strangers, members, codec = greetings(), messages(), Codec()
    for _ in range(count // 2):
        made = mutated(chance.choice(strangers), strangers + members, chance)
        before.feed(made, GREETING_BYTES_MAX, decode_greeting)
        made = mutated(chance.choice(members), members + strangers, chance)
        after.feed(made, FRAME_BYTES_MAX, codec.decode)
    return before, after
