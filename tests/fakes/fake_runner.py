"""A runner child that speaks the protocol and computes nothing; its first argument is a mode.

Modes are words joined by `,`: `hang:PHASE`, `die:PHASE:CODE` (negative: a signal), `fail:PHASE`,
`leave:PHASE` (ends well, unasked), `ramble:PHASE` (fails with too many words), `swollen:PHASE` (has
too large an address), `garbage:PHASE`, `oversize:PHASE`, `back:PHASE`, `twice`, `stranger`,
`hangup`, `stuck`, `silent`, `stubborn` (ignores SIGTERM and `Shutdown`), `flood` (beats without
pause), `chatter` (fills its log), `child` (leaves a grandchild in its group), `deaf` (stops
reading), `fast`, `exit` (at once).

To a second connection, which is that of its node's next life: `mute` (never answers), `impostor`
(can't prove itself), `earlier` (is of another attempt), `slow` (answers late), `orphan:SECONDS`.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import msgspec

from node.model.errors import Failure
from node.model.ids import RequestId, RunnerId
from node.model.instance import RunnerPhase, StageAddress
from node.model.register import RunnerProgress
from node.model.request import Delta, Finished, FinishReason, GenerationRequest, Usage
from node.runner.claim import VARIABLE, proof
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
    Shutdown,
)

BEAT_SECONDS = 0.02


class FakeRunner:
    def __init__(self, mode: str, path: str, runner: RunnerId) -> None:
        self.modes = {word.split(":")[0]: word.split(":")[1:] for word in mode.split(",")}
        self.runner = runner
        self.steps = 0
        self.busy = False
        self.layers = 0
        self.lock = threading.Lock()
        self.cancelled: set[RequestId] = set()
        self.prepare: Prepare | None = None
        self.decoder = msgspec.msgpack.Decoder[NodeMessage](NodeMessage)
        self.secret = bytes.fromhex(os.environ[VARIABLE])
        self.phase = RunnerPhase.STARTING
        self.address: StageAddress | None = None
        self.lives = 0
        self.connection: socket.socket | None = None
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()

    def send(self, message: RunnerMessage) -> None:
        with self.lock:
            if self.connection is not None and not self.write(self.connection, message):
                self.connection = None

    def write(self, connection: socket.socket, message: RunnerMessage) -> bool:
        payload = msgspec.msgpack.encode(message)
        try:
            connection.sendall(struct.pack(">I", len(payload)) + payload)
        except OSError:
            return False
        return True

    def receive(self, connection: socket.socket) -> NodeMessage | None:
        try:
            prefix = connection.recv(4, socket.MSG_WAITALL)
            if len(prefix) < 4:
                return None
            (length,) = struct.unpack(">I", prefix)
            return self.decoder.decode(connection.recv(length, socket.MSG_WAITALL))
        except OSError:
            return None

    def await_node(self) -> tuple[socket.socket, Claim]:
        """Until its node, or the node's next life, connects; ends when none comes."""
        self.listener.settimeout(float(self.modes.get("orphan", ["30"])[0]))
        try:
            connection, _ = self.listener.accept()
        except TimeoutError:
            print("no node came", file=sys.stderr, flush=True)
            os._exit(0)
        self.lives += 1
        if self.lives > 1 and "mute" in self.modes:
            time.sleep(3600)
        if self.lives > 1 and "slow" in self.modes:
            time.sleep(0.3)
        nonce = os.urandom(16)
        self.write(connection, Challenge(nonce=nonce))
        claim = self.receive(connection)
        assert isinstance(claim, Claim)
        assert claim.proof == proof("node", self.secret, self.runner, nonce, claim.incarnation)
        print("claimed by life", claim.incarnation, file=sys.stderr, flush=True)
        return connection, claim

    def enter(self, phase: RunnerPhase) -> None:
        self.phase = phase
        self.send(PhaseChanged(phase=phase))
        print("entered", phase.value, file=sys.stderr, flush=True)
        self.misbehave(phase.value)

    def misbehave(self, moment: str) -> None:
        for name, words in self.modes.items():
            if words[:1] == [moment]:
                getattr(self, f"do_{name}")(*words[1:])

    def do_hang(self) -> None:
        time.sleep(3600)

    def do_die(self, code: str = "1") -> None:
        print("last words of the runner", file=sys.stderr, flush=True)
        if int(code) < 0:
            os.kill(os.getpid(), -int(code))
            time.sleep(3600)
        os._exit(int(code))

    def do_say(self, *words: str) -> None:
        print(*words, file=sys.stderr, flush=True)

    def do_fail(self) -> None:
        failure = Failure(code="model_broken", message="the fake model is broken")
        self.send(PhaseChanged(phase=RunnerPhase.FAILED, failure=failure))
        time.sleep(0.05)
        os._exit(1)

    def do_leave(self) -> None:
        self.send(PhaseChanged(phase=RunnerPhase.STOPPED))
        time.sleep(0.05)
        os._exit(0)

    def do_ramble(self) -> None:
        failure = Failure(code="model_broken", message="tensor " * 100_000, remedy="try " * 100_000)
        self.send(PhaseChanged(phase=RunnerPhase.FAILED, failure=failure))
        time.sleep(0.05)
        os._exit(1)

    def do_swollen(self) -> None:
        self.send(Listening(address=StageAddress("127.0.0.1", 1, bytes(300_000))))
        time.sleep(3600)

    def do_garbage(self) -> None:
        assert self.connection is not None
        self.connection.sendall(struct.pack(">I", 5) + b"\xc1\xc1\xc1\xc1\xc1")
        time.sleep(3600)

    def do_oversize(self) -> None:
        assert self.connection is not None
        self.connection.sendall(struct.pack(">I", 0xFFFFFFFF))
        time.sleep(3600)

    def do_back(self) -> None:
        self.send(PhaseChanged(phase=RunnerPhase.CONNECTING))
        time.sleep(3600)

    def do_hangup(self) -> None:
        assert self.connection is not None
        self.connection.shutdown(socket.SHUT_RDWR)
        time.sleep(3600)

    def introduce(self, connection: socket.socket, claim: Claim) -> None:
        if self.lives == 1 and "child" in self.modes:
            subprocess.Popen((sys.executable, "-c", "import time; time.sleep(3600)"))
        if self.lives == 1 and "chatter" in self.modes:
            for _ in range(64):
                sys.stderr.write("x" * 99_999 + "\n")
        shown = proof("runner", self.secret, self.runner, claim.nonce, claim.incarnation)
        attempt = 0 if self.prepare is None else self.prepare.attempt
        if self.lives > 1 and "earlier" in self.modes:
            attempt += 1
        message = Introduced(
            runner=RunnerId("r-ffffffff") if "stranger" in self.modes else self.runner,
            process_id=os.getpid(),
            phase=self.phase,
            attempt=attempt,
            address=self.address,
            proof=bytes(32) if self.lives > 1 and "impostor" in self.modes else shown,
        )
        with self.lock:  # nothing else is said before
            self.write(connection, message)
            if "twice" in self.modes:
                self.write(connection, message)
            self.connection = connection

    def beat(self) -> None:
        while True:
            if "silent" not in self.modes or self.layers < 4:
                if "stuck" not in self.modes:
                    self.steps += 1
                progress = RunnerProgress(
                    runner=self.runner, layers_loaded=self.layers, layers_total=4, steps=self.steps
                )
                self.send(Beat(progress=progress, busy=self.busy or "stuck" in self.modes))
            if "flood" not in self.modes:
                time.sleep(BEAT_SECONDS)

    def live(self) -> None:
        while True:
            connection, claim = self.await_node()
            if self.lives == 1:
                self.misbehave("starting")
            self.introduce(connection, claim)
            if self.lives == 1:
                threading.Thread(target=self.beat, daemon=True).start()
            if self.serve(connection):
                return
            print("the node is gone", file=sys.stderr, flush=True)

    def serve(self, connection: socket.socket) -> bool:
        """Until the node says to end, or is gone; returns which."""
        while (message := self.receive(connection)) is not None:
            match message:
                case Prepare():
                    self.prepare = message
                    self.begin(message)
                case Connect():
                    print("next", message.next_stage.port, file=sys.stderr, flush=True)
                    threading.Thread(target=self.load, daemon=True).start()
                case Generate():
                    if "deaf" in self.modes:
                        time.sleep(3600)
                    thread = threading.Thread(target=self.generate, args=(message.request,))
                    thread.daemon = True
                    thread.start()
                case Cancel():
                    self.cancelled.add(message.request)
                case Shutdown():
                    if "stubborn" not in self.modes:
                        return True
                case Claim():
                    raise AssertionError("claimed twice on one connection")
        return False

    def begin(self, prepare: Prepare) -> None:
        if prepare.stages == 1:
            threading.Thread(target=self.load, daemon=True).start()
            return
        self.phase = RunnerPhase.CONNECTING
        self.send(PhaseChanged(phase=RunnerPhase.CONNECTING))
        self.address = StageAddress("127.0.0.1", 40_000 + prepare.rank, b"certificate")
        self.send(Listening(address=self.address))
        self.misbehave("connecting")

    def load(self) -> None:
        if self.prepare is not None and self.prepare.stages > 1:
            time.sleep(0.01)
        self.enter(RunnerPhase.LOADING)
        self.layers = 4
        self.enter(RunnerPhase.WARMING_UP)
        self.enter(RunnerPhase.READY)

    def generate(self, request: GenerationRequest) -> None:
        """`prompt`: how many items, `forever`, or `die`."""
        self.busy = True
        prompt = request.prompt or "3"
        if prompt == "die":
            self.send(Item(request=request.id, item=Delta(index=0, text="0 ")))
            self.do_die("-11")
        count = 10**9 if prompt == "forever" else int(prompt)
        reason = FinishReason.LENGTH
        for index in range(count):
            if request.id in self.cancelled:
                reason = FinishReason.CANCELLED
                break
            self.send(Item(request=request.id, item=Delta(index=index, text=f"{index} ")))
            if "fast" not in self.modes:
                time.sleep(0.002)
        usage = Usage(prompt_tokens=1, output_tokens=0)
        print("finished", request.id, reason.value, file=sys.stderr, flush=True)
        self.send(Item(request=request.id, item=Finished(reason=reason, usage=usage)))
        self.busy = False


def main() -> None:
    mode = sys.argv[1]
    options = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    if "stubborn" in mode:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "exit" in mode.split(","):
        print("ImportError: libmlx.so: cannot open shared object file", file=sys.stderr)
        sys.exit(1)
    FakeRunner(mode, options["--socket"], RunnerId(options["--runner"])).live()


if __name__ == "__main__":
    main()
