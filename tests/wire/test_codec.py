"""Every message survives the wire, versions get along, and garbage is an error of its link only."""

import random

import msgspec
import pytest

from node.core.replica.messages import (
    Append,
    AppendAck,
    AppendNack,
    Campaign,
    Heartbeat,
    Proposal,
    Relayed,
    ReplicaMessage,
    Role,
    SnapshotAck,
    SnapshotChunk,
    Submit,
    Yield,
)
from node.model.command import CommandRequest, StopInstance, Wish
from node.model.ids import ClusterId, CommandId, InstanceId, ModelId, NodeId, RequestId
from node.model.machine import Address
from node.model.register import LinkFigures, Register, RouterFigures
from node.model.request import Delta, GenerationRequest, Message
from node.model.session import Entry, EventId, Position, Session
from node.wire.codec import REGISTERS_PER_FRAME, Codec, CodecError, frame_kind
from node.wire.frame import Frame, FrameError, FrameKind, FrameReader
from node.wire.message import (
    AddressesKnown,
    CommandSent,
    Leaving,
    LogAnswered,
    LogAsked,
    LogRow,
    PlanAsked,
    RegistersChanged,
    ServiceMessage,
    StreamCancelled,
    StreamCredit,
    StreamItems,
    StreamOpened,
)

A, B = NodeId("a" * 52), NodeId("b" * 52)
CLUSTER = ClusterId("c" * 32)
SESSION = Session(term=3, master=A, incarnation=2)
POSITION = Position(session=SESSION, index=41)
EVENT = EventId(origin=B, incarnation=7, sequence=9)
ENTRY = Entry(session=SESSION, index=42, id=EVENT, payload=b"\x81event", written_at=1.5)
REQUEST = RequestId("q-0000000000000001")

REPLICA_MESSAGES: tuple[ReplicaMessage, ...] = (
    Heartbeat(CLUSTER, 2, Role.FOLLOWING, SESSION, A, POSITION, 41, 3, 0, 3, relayed=True),
    Campaign(CLUSTER, POSITION, 0, 3),
    Append(CLUSTER, SESSION, POSITION, (ENTRY, ENTRY), 41),
    AppendAck(CLUSTER, SESSION, 42),
    AppendNack(CLUSTER, SESSION, SESSION, 12, snapshot_wanted=True),
    Submit(CLUSTER, (Proposal(EVENT, b"x", 9),)),
    SnapshotChunk(CLUSTER, SESSION, POSITION, 0, 70_000, bytes(65_536)),
    SnapshotAck(CLUSTER, SESSION, POSITION, 65_536),
    Yield(CLUSTER, SESSION, B, POSITION),
    Relayed(CLUSTER, A, B, AppendAck(CLUSTER, SESSION, 42)),
)
SERVICE_MESSAGES: tuple[ServiceMessage, ...] = (
    CommandSent(
        request=CommandRequest(
            id=CommandId("c-1"), asked_by=A, command=StopInstance(instance=InstanceId("i-1"))
        )
    ),
    PlanAsked(id=CommandId("c-2"), model=ModelId("m"), wish=Wish(nodes=(A,))),
    RegistersChanged(
        registers=(Register(node=A, incarnation=1, sequence=2, value=LinkFigures(discovery="on")),)
    ),
    StreamOpened(
        request=GenerationRequest(
            id=REQUEST, model=ModelId("m"), messages=(Message(role="user", content="hé"),)
        )
    ),
    StreamItems(request=REQUEST, first=3, items=(Delta(index=0, text="to"), Delta(index=1))),
    StreamCredit(request=REQUEST, consumed=4),
    StreamCancelled(request=REQUEST),
    AddressesKnown(addresses=((A, Address("10.0.0.1", 52416)),)),
    Leaving(reason="stopped"),
    LogAsked(id=CommandId("c-1"), source="runner r-1", lines_max=10),
    LogAnswered(
        id=CommandId("c-1"), rows=(LogRow(at=1.0, level="info", source="worker", text="x"),)
    ),
)
MESSAGES = (*REPLICA_MESSAGES, *SERVICE_MESSAGES)


def frame_of(encoded: bytes) -> Frame:
    reader = FrameReader()
    reader.feed(encoded)
    frame = reader.next_frame()
    assert frame is not None
    return frame


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_wire(message: ReplicaMessage | ServiceMessage):
    codec = Codec()
    assert codec.decode(frame_of(codec.encode(message))) == message
    assert not codec.ignored


def test_kinds_tell_the_planes_apart_without_decoding():
    kinds = {type(message).__name__: frame_kind(message) for message in MESSAGES}
    assert kinds["Heartbeat"] == kinds["Append"] == FrameKind.REPLICA
    assert kinds["SnapshotChunk"] == FrameKind.SNAPSHOT
    assert kinds["SnapshotAck"] == FrameKind.REPLICA
    assert kinds["RegistersChanged"] == FrameKind.REGISTERS
    assert kinds["StreamItems"] == kinds["StreamOpened"] == FrameKind.STREAM
    assert kinds["CommandSent"] == kinds["Leaving"] == FrameKind.SERVICE


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (Frame(77, 0, b"anything"), "kind 77"),
        (Frame(FrameKind.REPLICA, 1, b"compressed, say"), "flags 1"),
        (Frame(FrameKind.REPLICA, 0, msgspec.msgpack.encode([99, 1])), "unknown value in kind 32"),
        (
            Frame(FrameKind.SERVICE, 0, msgspec.msgpack.encode({"type": "later", "x": 1})),
            "unknown value in kind 34",
        ),
        (
            Frame(
                FrameKind.SERVICE,
                0,
                msgspec.msgpack.encode(
                    {
                        "type": "command",
                        "request": {"id": "c", "asked_by": "n", "command": {"type": "Fly"}},
                    }
                ),
            ),
            "unknown value in kind 34",
        ),
    ],
)
def test_what_a_newer_version_says_is_counted_and_ignored(frame: Frame, reason: str):
    codec = Codec()
    assert codec.decode(frame) is None
    assert codec.ignored == {reason: 1}


def test_an_unknown_field_is_ignored():
    codec = Codec()
    payload = msgspec.msgpack.encode({"type": "leaving", "reason": "r", "mood": "good"})
    assert codec.decode(Frame(FrameKind.SERVICE, 0, payload)) == Leaving(reason="r")


def test_an_unknown_register_does_not_take_the_known_ones_with_it():
    codec = Codec()
    known = Register(node=A, incarnation=1, sequence=1, value=LinkFigures())
    unknown = {"node": A, "incarnation": 1, "sequence": 1, "value": {"type": "Weather"}}
    payload = msgspec.msgpack.encode({"type": "registers", "registers": [unknown, known]})
    decoded = codec.decode(Frame(FrameKind.REGISTERS, 0, payload))
    assert decoded == RegistersChanged(registers=(known,))
    assert codec.ignored.total() == 1


def test_registers_are_split_into_frames_that_fit():
    codec = Codec()
    registers = [
        Register(node=NodeId(f"n{number}"), incarnation=1, sequence=1, value=LinkFigures())
        for number in range(2 * REGISTERS_PER_FRAME + 1)
    ]
    frames = codec.encode_registers(registers)
    assert len(frames) == 3
    decoded = [codec.decode(frame_of(frame)) for frame in frames]
    got = [one for part in decoded if isinstance(part, RegistersChanged) for one in part.registers]
    assert got == registers


def test_a_register_that_no_frame_can_hold_is_left_out_and_counted():
    codec = Codec()
    small = Register(node=A, incarnation=1, sequence=1, value=RouterFigures(role="looking"))
    huge = Register(node=B, incarnation=1, sequence=1, value=LinkFigures(discovery="x" * 2**20))
    (frame,) = codec.encode_registers([huge, small])
    assert codec.decode(frame_of(frame)) == RegistersChanged(registers=(small,))
    assert codec.ignored == {"register too large": 1}


def test_a_message_that_no_frame_can_hold_is_refused_by_the_sender():
    with pytest.raises(FrameError, match="1048576 are allowed"):
        Codec().encode(Leaving(reason="x" * 2**20))


HOSTILE = {
    "empty": b"",
    "truncated map": b"\x82\xa4type",
    "a string of 4 GiB": b"\xdb\xff\xff\xff\xff",
    "nested 200,000 deep": b"\x91" * 200_000,
    "wrong type": msgspec.msgpack.encode({"type": "leaving", "reason": 5}),
    "missing field": msgspec.msgpack.encode({"type": "leaving"}),
    "not a map": msgspec.msgpack.encode([1, 2, 3]),
    "invalid UTF-8": b"\x82\xa4type\xa7leaving\xa6reason\xa2\xff\xfe",
}


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("kind", [FrameKind.SERVICE, FrameKind.STREAM])
def test_hostile_payloads_are_a_codec_error(kind: FrameKind, payload: bytes):
    with pytest.raises(CodecError, match=f"kind {kind.value}"):
        Codec().decode(Frame(kind, 0, payload))


@pytest.mark.parametrize("registers", [5, [5], [{"node": 1}], [[]]])
def test_registers_of_wrong_shape_are_a_codec_error(registers: object):
    payload = msgspec.msgpack.encode({"type": "registers", "registers": registers})
    with pytest.raises(CodecError, match="kind 35"):
        Codec().decode(Frame(FrameKind.REGISTERS, 0, payload))


def test_deep_nesting_in_a_field_of_any_type_is_a_codec_error():
    head = msgspec.msgpack.encode(
        {"type": "stream_open", "request": {"id": "q", "model": "m", "tools": [0]}}
    )
    assert head.endswith(b"\x91\x00")
    deep = head[:-1] + b"\x81\xa1k" * 50_000 + b"\x00"
    with pytest.raises(CodecError):
        Codec().decode(Frame(FrameKind.STREAM, 0, deep))


def test_twenty_thousand_mutated_frames_give_a_message_nothing_or_a_typed_error():
    chance = random.Random(20_240)
    codec = Codec()
    originals = [bytearray(codec.encode(message)) for message in MESSAGES]
    originals = [original for original in originals if len(original) < 4096]
    outcomes = {"message": 0, "ignored": 0, "codec": 0, "frame": 0, "incomplete": 0}
    for _ in range(20_000):
        mutated = bytearray(chance.choice(originals))
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(mutated))
            match chance.randrange(4):
                case 0:
                    mutated[place] = chance.randrange(256)
                case 1:
                    mutated[place] ^= 1 << chance.randrange(8)
                case 2:
                    del mutated[place : place + chance.randint(1, 8)]
                case _:
                    mutated[place:place] = chance.randbytes(chance.randint(1, 8))
            if not mutated:
                mutated = bytearray(b"\x00")
        outcomes[outcome_of(codec, bytes(mutated))] += 1
    assert sum(outcomes.values()) == 20_000
    assert min(outcomes.values()) > 0, f"each outcome must be reached: {outcomes}"


def outcome_of(codec: Codec, stream: bytes) -> str:
    reader = FrameReader()
    reader.feed(stream)
    try:
        frame = reader.next_frame()
        if frame is None:
            return "incomplete"
        return "ignored" if codec.decode(frame) is None else "message"
    except FrameError:
        return "frame"
    except CodecError:
        return "codec"
