"""What waits for a peer is bounded, in order, and joined."""

from node.io.mesh.outbox import Outbox
from node.model.ids import NodeId
from node.model.register import LinkFigures, Register, RouterFigures
from node.wire.codec import Codec
from node.wire.frame import FrameKind, FrameReader, encode_frame
from node.wire.message import RegistersChanged

A, B = NodeId("a" * 52), NodeId("b" * 52)


def outbox(frames: int = 100, size: int = 10_000, registers: int = 10) -> Outbox:
    return Outbox(Codec(), frames, size, registers)


def frame(number: int, size: int = 4) -> bytes:
    return encode_frame(FrameKind.SERVICE, number.to_bytes(size, "big"))


def link_figures(node: NodeId, sequence: int, incarnation: int = 1) -> Register:
    value = LinkFigures(discovery=str(sequence))
    return Register(node=node, incarnation=incarnation, sequence=sequence, value=value)


def registers_in(taken: bytes) -> list[Register]:
    codec, reader, registers = Codec(), FrameReader(), list[Register]()
    reader.feed(taken)
    for one in reader.frames():
        message = codec.decode(one)
        assert isinstance(message, RegistersChanged)
        registers += message.registers
    return registers


def test_frames_leave_in_order_joined_up_to_a_size():
    box = outbox()
    frames = [frame(number) for number in range(10)]
    assert all(box.put(one) for one in frames)
    first = box.take(25)
    assert first == b"".join(frames[:3])
    assert box.take(10_000) == b"".join(frames[3:])
    assert box.take(10_000) == b""


def test_the_number_of_frames_is_bounded():
    box = outbox(frames=3)
    assert [box.put(frame(number)) for number in range(5)] == [True, True, True, False, False]
    box.take(1)
    assert box.put(frame(9))


def test_the_size_of_frames_is_bounded():
    box = outbox(size=25)
    assert [box.put(frame(number)) for number in range(4)] == [True, True, False, False]
    assert box.bytes_waiting == 20
    box.take(10_000)
    assert box.bytes_waiting == 0
    assert box.put(frame(1))


def test_pings_overtake_and_replace_each_other():
    box = outbox()
    ping, later, pong = (encode_frame(FrameKind.PING, bytes([number])) for number in range(3))
    box.put(frame(1))
    for slot, one in (("ping", ping), ("pong", pong), ("ping", later)):
        box.put_urgent(slot, one)
    assert box.take(10_000) == later + pong + frame(1)


def test_of_registers_only_the_latest_version_waits():
    box = outbox()
    box.put_registers([link_figures(A, 1), link_figures(B, 5), link_figures(A, 3)])
    box.put_registers([link_figures(A, 2), link_figures(B, 1, incarnation=2)])
    assert registers_in(box.take(1)) == [
        link_figures(A, 3),
        link_figures(B, 1, incarnation=2),
    ]
    assert box.take(1) == b""


def test_registers_of_one_node_and_different_kinds_both_wait():
    box = outbox()
    other = Register(node=A, incarnation=1, sequence=1, value=RouterFigures(role="looking"))
    box.put_registers([link_figures(A, 1), other])
    assert registers_in(box.take(1)) == [link_figures(A, 1), other]


def test_the_number_of_registers_is_bounded_and_the_oldest_go():
    box = outbox(registers=3)
    box.put_registers(link_figures(NodeId(f"n{number}"), 1) for number in range(10))
    assert [register.node for register in registers_in(box.take(1))] == ["n7", "n8", "n9"]
