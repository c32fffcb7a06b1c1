"""What the earlier life of a node left behind: runners that live on, and files about them."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil

from node.io.child_process import child_environment
from node.io.runner_files import RunnerFile, RunnerFiles
from node.model.instance import RunnerPhase, StageAddress
from node.runner.claim import SECRET_BYTES, VARIABLE
from node.runner.frames import encode_frame
from node.runner.protocol import (
    Challenge,
    Connect,
    Introduced,
    NodeMessage,
    PhaseChanged,
    RunnerMessage,
)
from node.services.runner_keeper import RunnerOrder
from node.services.runner_link import FrameReader, RunnerClaim
from node.version import __version__

FAKE = Path(__file__).parent / "fake_runner.py"
SECRET = bytes(range(SECRET_BYTES)).hex()
WAIT_SECONDS = 20.0


class EarlierLife:
    """A fake runner that was started, claimed and prepared by an earlier life of the node."""

    def __init__(self, files: RunnerFiles, order: RunnerOrder, mode: str) -> None:
        self.order = order
        self.runner = order.prepare.runner
        self.log = files.log(self.runner)
        self._path = files.socket(self.runner)
        self._reader = FrameReader()
        self._waiting: list[RunnerMessage] = []
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(WAIT_SECONDS)
        self.log.parent.mkdir(exist_ok=True, parents=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                (sys.executable, str(FAKE), mode, *files.command_words(self.runner)),
                env=child_environment(os.environ) | {VARIABLE: SECRET},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.file = RunnerFile(
            runner=self.runner,
            instance=order.prepare.instance,
            process_id=self.process.pid,
            start_time=psutil.Process(self.process.pid).create_time(),
            socket=str(self._path),
            attempt=order.prepare.attempt,
            secret=SECRET,
            version=__version__,
            order=msgspec.Raw(msgspec.json.encode(order)),
        )

    def claim(self, incarnation: int = 1) -> None:
        """Connect, as life `incarnation` of the node."""
        patience = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                self.connection.connect(str(self._path))
                break
            except OSError:
                assert time.monotonic() < patience, self.log.read_text()
        claim = RunnerClaim(self.runner, bytes.fromhex(SECRET), incarnation)
        challenge = self.expect(lambda message: isinstance(message, Challenge))
        assert isinstance(challenge, Challenge)
        self.connection.sendall(claim.answer(challenge))
        introduced = self.expect(lambda message: isinstance(message, Introduced))
        assert isinstance(introduced, Introduced)
        assert claim.holds_for(introduced)

    def send(self, message: NodeMessage) -> None:
        self.connection.sendall(encode_frame(message))

    def expect(self, is_it: Callable[[RunnerMessage], bool]) -> RunnerMessage:
        while True:
            while self._waiting:
                message = self._waiting.pop(0)
                if is_it(message):
                    return message
            received = self.connection.recv(65536)
            assert received, self.log.read_text()
            self._waiting += self._reader.feed(received)

    def reach(self, phase: RunnerPhase) -> None:
        """Have it prepared and, past CONNECTING, told its neighbours."""
        self.claim()
        self.send(self.order.prepare)
        if self.order.prepare.stages > 1 and phase is not RunnerPhase.CONNECTING:
            self.send(Connect(next_stage=StageAddress("127.0.0.1", 40_001)))
        self.expect(lambda said: isinstance(said, PhaseChanged) and said.phase is phase)

    def end(self) -> None:
        """The earlier life is killed: no goodbye, the runner lives on."""
        self.connection.close()


@contextmanager
def earlier_life(
    files: RunnerFiles,
    order: RunnerOrder,
    mode: str = "normal",
    phase: RunnerPhase | None = RunnerPhase.READY,
) -> Generator[EarlierLife]:
    """A runner brought to a phase by a node that is gone; it, and its file, are left behind."""
    files.prepare()
    made = EarlierLife(files, order, mode)
    try:
        if phase is not None:
            made.reach(phase)
        made.end()
        files.write(made.file)
        yield made
    finally:
        made.process.kill()
        made.process.wait(WAIT_SECONDS)
