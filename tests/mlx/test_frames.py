"""Frames between node and runner survive any cutting, and nonsense is named."""

import random

import msgspec
import pytest

from node.model.ids import RequestId, RunnerId
from node.model.instance import RunnerPhase
from node.model.request import Delta
from node.runner.frames import FrameBuffer, FrameError, encode_frame
from node.runner.protocol import (
    FRAME_BYTES_MAX,
    Introduced,
    Item,
    PhaseChanged,
    RunnerMessage,
)

MESSAGES: list[RunnerMessage] = [
    Introduced(runner=RunnerId("r-1"), process_id=7, phase=RunnerPhase.READY, attempt=2),
    PhaseChanged(phase=RunnerPhase.LOADING),
    Item(request=RequestId("q-1"), item=Delta(index=0, text="é" * 5000)),
]


def buffer() -> FrameBuffer[RunnerMessage]:
    return FrameBuffer(RunnerMessage)  # type: ignore[arg-type]


def test_messages_come_out_whole_however_they_are_cut() -> None:
    stream = b"".join(encode_frame(message) for message in MESSAGES)
    chance = random.Random(1)
    for _ in range(50):
        frames = buffer()
        received: list[RunnerMessage] = []
        rest = stream
        while rest:
            size = chance.randint(1, 3000)
            received += frames.feed(rest[:size])
            rest = rest[size:]
        assert received == MESSAGES


@pytest.mark.parametrize(
    "nonsense",
    [
        (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x00\x00\x02\x91\x01",
        encode_frame(msgspec.defstruct("Unknown", [], tag=True)()),
    ],
)
def test_what_is_no_frame_is_named(nonsense: bytes) -> None:
    with pytest.raises(FrameError):
        buffer().feed(nonsense)


def test_a_frame_that_is_nested_too_deeply_is_refused() -> None:
    payload = b"\x82\xa4type\xa4Beat\xa1x" + b"\x91" * 4000 + b"\xc0"
    with pytest.raises(FrameError):
        buffer().feed(len(payload).to_bytes(4, "big") + payload)
