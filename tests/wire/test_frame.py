"""Frames are cut exactly, and nothing but frames gets through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.wire.frame import (
    FRAME_BYTES_MAX,
    GREETING_BYTES_MAX,
    HEADER_BYTES,
    Frame,
    FrameError,
    FrameKind,
    FrameReader,
    encode_frame,
)

kinds = st.sampled_from(FrameKind)


@given(st.lists(st.tuples(kinds, st.binary(max_size=300))), st.integers(1, 97))
def test_frames_survive_any_cutting_of_the_stream(frames: list[tuple[FrameKind, bytes]], step: int):
    stream = b"".join(encode_frame(kind, payload) for kind, payload in frames)
    reader, got = FrameReader(), list[Frame]()
    for start in range(0, len(stream), step):
        reader.feed(stream[start : start + step])
        got += reader.frames()
    assert got == [Frame(kind, 0, payload) for kind, payload in frames]
    assert reader.next_frame() is None


@given(st.binary(max_size=200))
def test_any_bytes_give_frames_or_a_frame_error(stream: bytes):
    reader = FrameReader(GREETING_BYTES_MAX)
    reader.feed(stream)
    try:
        frames = list(reader.frames())
    except FrameError:
        return
    assert sum(HEADER_BYTES + len(frame.payload) for frame in frames) <= len(stream)


def test_an_unknown_kind_is_a_frame_like_any_other():
    reader = FrameReader()
    reader.feed(b"\x00\x00\x00\x03\xc8\x07x")
    assert reader.next_frame() == Frame(200, 7, b"x")


@pytest.mark.parametrize("length", [0, 1, GREETING_BYTES_MAX - 3, 2**32 - 1])
def test_a_length_out_of_bounds_is_refused_before_its_bytes_come(length: int):
    reader = FrameReader(GREETING_BYTES_MAX)
    reader.feed(length.to_bytes(4, "big"))
    with pytest.raises(FrameError, match=str(length + 4)):
        reader.next_frame()


def test_the_longest_frame_passes_and_one_byte_more_does_not():
    payload = bytes(FRAME_BYTES_MAX - HEADER_BYTES)
    reader = FrameReader()
    reader.feed(encode_frame(FrameKind.SNAPSHOT, payload))
    frame = reader.next_frame()
    assert frame is not None
    assert len(frame.payload) == len(payload)
    with pytest.raises(FrameError):
        encode_frame(FrameKind.SNAPSHOT, payload + b"x")


def test_a_limit_raised_after_the_greeting_holds_for_what_follows_in_the_same_bytes():
    reader = FrameReader(GREETING_BYTES_MAX)
    reader.feed(
        encode_frame(FrameKind.VERDICT, b"ok") + encode_frame(FrameKind.REPLICA, bytes(9000))
    )
    first = reader.next_frame()
    assert first is not None
    assert first.kind == FrameKind.VERDICT
    reader.frame_bytes_max = FRAME_BYTES_MAX
    second = reader.next_frame()
    assert second is not None
    assert len(second.payload) == 9000
