import itertools
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model.ids import RequestId, RunnerId
from node.model.instance import RunnerPhase
from node.model.request import Delta, GenerationRequest
from node.runner.protocol import FRAME_BYTES_MAX, Generate, Introduced, Item, RunnerMessage
from node.services.runner_link import (
    FrameReader,
    FrameTooLargeError,
    RunnerFaultError,
    encode_frame,
)

MESSAGES: list[RunnerMessage] = [
    Introduced(runner=RunnerId("r-00000001"), process_id=1, phase=RunnerPhase.STARTING, attempt=1),
    Item(request=RequestId("q-1"), item=Delta(index=0, text="x" * 300)),
]


def frame(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


WIRE = b"".join(frame(msgspec.msgpack.encode(message)) for message in MESSAGES)


@given(st.lists(st.integers(0, len(WIRE)), max_size=20))
def test_messages_come_out_however_the_bytes_are_cut(cuts: list[int]) -> None:
    reader = FrameReader()
    bounds = [0, *sorted(cuts), len(WIRE)]
    received: list[RunnerMessage] = []
    for begin, end in itertools.pairwise(bounds):
        received += reader.feed(WIRE[begin:end])
    assert received == MESSAGES


@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_a_fault(payload: bytes) -> None:
    reader = FrameReader()
    try:
        reader.feed(frame(payload))
    except RunnerFaultError:
        pass
    else:
        msgspec.msgpack.decode(payload, type=RunnerMessage)


def test_a_length_past_the_bound_is_a_fault_before_its_bytes_come() -> None:
    with pytest.raises(RunnerFaultError, match=str(FRAME_BYTES_MAX + 1)):
        FrameReader().feed(struct.pack(">I", FRAME_BYTES_MAX + 1))


def test_deep_nesting_is_a_fault() -> None:
    with pytest.raises(RunnerFaultError):
        FrameReader().feed(frame(b"\x91" * 100_000))


def test_a_message_that_fits_no_frame_is_not_sent() -> None:
    request = GenerationRequest(id=RequestId("q"), model="m", prompt="x" * FRAME_BYTES_MAX)  # type: ignore[arg-type]
    with pytest.raises(FrameTooLargeError):
        encode_frame(Generate(request=request))
