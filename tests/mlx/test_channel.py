"""What waits for the node: bounded, and never waited for by the thread that sends it."""

import socket
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from node.model.ids import RequestId, RunnerId
from node.model.instance import RunnerPhase
from node.model.request import Delta
from node.runner import channel as channel_module
from node.runner.channel import OUTBOX_BYTES_MAX, NodeChannel
from node.runner.child import Child
from node.runner.frames import FrameBuffer, encode_frame
from node.runner.protocol import Beat, Challenge, Item, PhaseChanged, RunnerMessage, Shutdown
from tests.mlx.runner_process import SECRET, claim_for, select_pause

RUNNER = RunnerId("r-00000001")
PART = Item(request=RequestId("q"), item=Delta(index=0, text="x" * 100_000))


@pytest.fixture
def full() -> Generator[NodeChannel]:
    """A channel whose node has not read for a while."""
    channel = NodeChannel(RunnerId("r-00000001"))
    channel.connected()
    for _ in range(OUTBOX_BYTES_MAX // 100_000 + 1):
        channel.send(PART)
    yield channel
    channel.close()


def messages(channel: NodeChannel) -> list[Any]:
    buffer: FrameBuffer[Any] = FrameBuffer(RunnerMessage)  # type: ignore[arg-type]
    found: list[Any] = []
    while taken := channel.take_frames(1 << 20):
        found += buffer.feed(taken)
    return found


def test_a_full_outbox_keeps_no_beat_or_phase_waiting(full: NodeChannel) -> None:
    began = time.monotonic()
    for busy in (False, False, True):
        full.busy = busy
        full.beat()
    full.announce(RunnerPhase.STOPPING)
    assert time.monotonic() - began < 5
    found = messages(full)
    assert [message.busy for message in found if isinstance(message, Beat)] == [True]
    assert found[-1] == PhaseChanged(phase=RunnerPhase.STOPPING)


def test_a_beat_leaves_with_the_next_frames_however_many_wait(full: NodeChannel) -> None:
    full.beat()
    buffer: FrameBuffer[Any] = FrameBuffer(RunnerMessage)  # type: ignore[arg-type]
    first = list(buffer.feed(full.take_frames(250_000)))
    assert isinstance(first[-1], Beat)
    assert len(first) == 4


def test_refusals_that_nobody_reads_are_bounded(full: NodeChannel) -> None:
    for _ in range(OUTBOX_BYTES_MAX // 100_000 + 2):
        full.send_now(PART)
    assert full.is_given_up
    assert full.take_frames(1) == b""
    full.connected()
    assert not full.is_given_up


def no_signals(_: Child) -> None:
    """They are for the main thread of a process of its own."""


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, short_path: Path) -> Generator[tuple[NodeChannel, Path]]:
    """An io thread in this process, without its signals."""
    monkeypatch.setattr(Child, "_catch_signals", no_signals)
    channel = NodeChannel(RUNNER)
    path = short_path / "s"
    io = Child(path, RUNNER, channel, 30.0, SECRET)
    over = threading.Event()
    thread = threading.Thread(target=io.run, args=(lambda: over.wait(60) and 0,))
    thread.start()
    yield channel, path
    over.set()
    channel.inbox.put(Shutdown(), always=True)
    thread.join(10)
    assert not thread.is_alive()
    channel.close()


def dial(path: Path) -> socket.socket:
    node = socket.socket(socket.AF_UNIX)
    node.settimeout(20)
    deadline = time.monotonic() + 20
    while node.connect_ex(str(path)) != 0:
        assert time.monotonic() < deadline
        select_pause()
    (challenge,) = FrameBuffer[RunnerMessage](RunnerMessage).feed(node.recv(4096))  # type: ignore[arg-type]
    assert isinstance(challenge, Challenge)
    node.sendall(encode_frame(claim_for(RUNNER, challenge, 1)))
    assert node.recv(1 << 16)
    return node


def test_a_node_that_reads_nothing_is_disconnected_and_misses_no_part(
    child: tuple[NodeChannel, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, path = child
    monkeypatch.setattr(channel_module, "OUTBOX_WAIT_SECONDS", 0.5)
    with dial(path) as node:
        for index in range(OUTBOX_BYTES_MAX // 100_000 + 20):
            channel.send(Item(request=RequestId("q"), item=Delta(index=index, text="x" * 100_000)))
        buffer: FrameBuffer[Any] = FrameBuffer(RunnerMessage)  # type: ignore[arg-type]
        found: list[Any] = []
        while received := node.recv(1 << 20):
            found += [m for m in buffer.feed(received) if isinstance(m, Item)]
    indices = [message.item.index for message in found]
    assert indices == list(range(len(indices)))
    assert not channel.is_given_up


def test_a_node_that_was_held_up_gets_everything(child: tuple[NodeChannel, Path]) -> None:
    channel, path = child
    count = OUTBOX_BYTES_MAX // 100_000 + 40
    with dial(path) as node:
        sender = threading.Thread(target=lambda: [channel.send(PART) for _ in range(count)])
        sender.start()
        sender.join(1.3)  # a beat falls due meanwhile
        assert sender.is_alive()
        buffer: FrameBuffer[Any] = FrameBuffer(RunnerMessage)  # type: ignore[arg-type]
        found = 0
        began = time.monotonic()
        while found < count:
            found += sum(isinstance(m, Item) for m in buffer.feed(node.recv(1 << 20)))
        sender.join(10)
        assert time.monotonic() - began < 10
