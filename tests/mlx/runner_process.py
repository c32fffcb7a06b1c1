"""Runner children as real processes, driven as a node drives them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from node.model.ids import InstanceId, ModelId, RequestId, RunnerId
from node.model.instance import RunnerPhase, StageAddress, WeightFormat
from node.model.request import (
    Delta,
    Failed,
    Finished,
    GenerationItem,
    GenerationRequest,
    Message,
    Sampling,
)
from node.runner.claim import SECRET_BYTES, VARIABLE, proof
from node.runner.frames import FrameBuffer, encode_frame
from node.runner.protocol import (
    Beat,
    Cancel,
    Challenge,
    Claim,
    Connect,
    Generate,
    Introduced,
    Item,
    Listening,
    NodeMessage,
    PhaseChanged,
    Prepare,
    RunnerMessage,
)

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 60.0
SECRET = bytes(range(SECRET_BYTES))
GREEDY = Sampling(temperature=0.0)


class RunnerProcess:
    """One child and the node's end of its socket."""

    def __init__(self, directory: Path, number: int, *options: str) -> None:
        self.runner = RunnerId(f"r-{number:08x}")
        self.path = directory / f"{number}.sock"
        self.log = directory / f"{number}.log"
        (directory / f"tmp{number}").mkdir(exist_ok=True)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "node.runner"),
                    *("--socket", str(self.path), "--runner", self.runner, *options),
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    "TMPDIR": str(directory / f"tmp{number}"),
                    VARIABLE: SECRET.hex(),
                },
            )
        self.seen: list[RunnerMessage] = []
        self._position = 0
        self.incarnation = 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connect()

    def connect(self) -> None:
        """Dial it, as a node that comes back does."""
        deadline = time.monotonic() + 10
        while True:
            self.socket.close()
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self.socket.connect(str(self.path))
                break
            except OSError:
                assert time.monotonic() < deadline, self.text()
                assert self.process.poll() is None, self.text()
                select_pause()
        self._frames: FrameBuffer[Any] = FrameBuffer(RunnerMessage)  # type: ignore[arg-type]
        challenge = self.wait_for(lambda message: isinstance(message, Challenge))
        assert isinstance(challenge, Challenge)
        self.incarnation += 1
        self.send(claim_for(self.runner, challenge, self.incarnation))

    def text(self) -> str:
        """What it logged."""
        return self.log.read_text(errors="replace")

    def send(self, message: NodeMessage) -> None:
        self.socket.sendall(encode_frame(message))

    def wait_for(
        self, is_it: Callable[[RunnerMessage], bool], seconds: float = WAIT_SECONDS
    ) -> RunnerMessage:
        """The next message that is it; what came before it stays in `seen`."""
        deadline = time.monotonic() + seconds
        while True:
            while self._position < len(self.seen):
                message = self.seen[self._position]
                self._position += 1
                if is_it(message):
                    return message
            remaining = deadline - time.monotonic()
            assert remaining > 0, (
                f"nothing came within {seconds} s; {self.seen[-3:]}\n{self.text()}"
            )
            self.socket.settimeout(remaining)
            try:
                received = self.socket.recv(1 << 16)
            except TimeoutError:
                continue
            assert received, f"the runner closed; {self.seen[-3:]}\n{self.text()}"
            self.seen += self._frames.feed(received)

    def phase(self, phase: RunnerPhase, seconds: float = WAIT_SECONDS) -> PhaseChanged:
        """Wait until it enters the phase; a failure instead ends the test."""

        def is_it(message: RunnerMessage) -> bool:
            if not isinstance(message, PhaseChanged):
                return False
            if message.phase is RunnerPhase.FAILED and phase is not RunnerPhase.FAILED:
                raise AssertionError(f"{message}\n{self.text()}")
            return message.phase is phase

        message = self.wait_for(is_it, seconds)
        assert isinstance(message, PhaseChanged)
        return message

    def introduced(self) -> Introduced:
        message = self.wait_for(lambda message: isinstance(message, Introduced))
        assert isinstance(message, Introduced)
        return message

    def listening(self) -> StageAddress:
        message = self.wait_for(lambda message: isinstance(message, Listening))
        assert isinstance(message, Listening)
        return message.address

    def beat(self, is_it: Callable[[Beat], bool]) -> Beat:
        message = self.wait_for(lambda message: isinstance(message, Beat) and is_it(message))
        assert isinstance(message, Beat)
        return message

    def now(self) -> Beat:
        """A beat that is sent after this is called, and one more, for it to be of now."""
        self.socket.settimeout(0.0)
        with suppress(BlockingIOError):
            while received := self.socket.recv(1 << 16):
                self.seen += self._frames.feed(received)
        self._position = len(self.seen)
        return self.beat(lambda _: True)

    def collect(self, *requests: str, seconds: float = WAIT_SECONDS) -> dict[str, "Answer"]:
        """Every item of the requests up to the last one of each."""
        answers = {request: Answer() for request in requests}

        def is_last(message: RunnerMessage) -> bool:
            if isinstance(message, Item) and message.request in answers:
                answers[message.request].items.append(message.item)
            return all(answer.is_over for answer in answers.values())

        self.wait_for(is_last, seconds)
        return answers

    def generate(self, request: str, content: str, **options: Any) -> None:
        self.send(Generate(request=chat(request, content, **options)))

    def ask(self, request: str, content: str, **options: Any) -> "Answer":
        """Ask one thing and wait for the whole answer."""
        self.generate(request, content, **options)
        return self.collect(request)[request]

    def cancel(self, request: str) -> None:
        self.send(Cancel(request=RequestId(request)))

    def end(self) -> None:
        """Kill what is left of it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self.socket.close()


class Answer:
    """What one request got."""

    def __init__(self) -> None:
        self.items: list[GenerationItem] = []

    @property
    def is_over(self) -> bool:
        return bool(self.items) and isinstance(self.items[-1], Finished | Failed)

    @property
    def deltas(self) -> list[Delta]:
        found = [item for item in self.items if isinstance(item, Delta)]
        assert [delta.index for delta in found] == list(range(len(found)))
        return found

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def tokens(self) -> list[int]:
        return [token for delta in self.deltas for token in delta.tokens]

    @property
    def finished(self) -> Finished:
        last = self.items[-1]
        assert isinstance(last, Finished), last
        return last

    @property
    def failed(self) -> Failed:
        last = self.items[-1]
        assert isinstance(last, Failed), last
        return last


def claim_for(runner: RunnerId, challenge: Challenge, incarnation: int) -> Claim:
    """What the runner's node answers."""
    shown = proof("node", SECRET, runner, challenge.nonce, incarnation)
    return Claim(incarnation=incarnation, nonce=bytes(16), proof=shown)


def select_pause() -> None:
    """A moment, where there is nothing to wait on: the socket does not exist yet."""
    time.sleep(0.01)


def chat(request: str, content: str, **options: Any) -> GenerationRequest:
    """A request of one turn, greedy unless said otherwise."""
    options.setdefault("sampling", GREEDY)
    return GenerationRequest(
        id=RequestId(request),
        model=ModelId("m"),
        messages=(Message(role="user", content=content),),
        **options,
    )


def preparation(model: Path, boundaries: tuple[int, ...], rank: int, **options: Any) -> Prepare:
    """`Prepare` for one stage."""
    options.setdefault("context_tokens", 1024)
    options.setdefault("weight_format", WeightFormat.AS_STORED)
    options.setdefault("stages", len(boundaries) - 1)
    return Prepare(
        runner=RunnerId(f"r-{rank:08x}"),
        instance=InstanceId("i-00000001"),
        model=ModelId("m"),
        model_directory=str(model),
        rank=rank,
        boundaries=boundaries,
        **options,
    )


@contextmanager
def stages(
    directory: Path,
    model: Path,
    boundaries: tuple[int, ...],
    *,
    options: tuple[str, ...] = (),
    **prepare: Any,
) -> Generator[list[RunnerProcess]]:
    """Children for every stage, brought to READY; killed at the end."""
    directory.mkdir(exist_ok=True)
    children: list[RunnerProcess] = []
    count = prepare.get("stages", len(boundaries) - 1)
    try:
        children.extend(RunnerProcess(directory, rank, *options) for rank in range(count))
        for rank, child in enumerate(children):
            child.send(preparation(model, boundaries, rank, **prepare))
        if len(children) > 1:
            link(children)
        for child in children:
            child.phase(RunnerPhase.READY)
        yield children
    finally:
        for child in children:
            child.end()


def link(children: list[RunnerProcess]) -> None:
    """Tell every stage its neighbours."""
    addresses = [child.listening() for child in children]
    for rank, child in enumerate(children):
        child.send(
            Connect(
                next_stage=addresses[(rank + 1) % len(children)],
                previous_certificate=addresses[rank - 1].certificate,
            )
        )
