"""A runner child that speaks the protocol and computes nothing; its first argument is a mode.

Modes are words joined by `,`: `hang:PHASE`, `die:PHASE:CODE` (negative: a signal), `fail:PHASE`,
`ramble:PHASE` (fails with too many words), `swollen:PHASE` (has too large an address),
`garbage:PHASE`, `oversize:PHASE`, `back:PHASE`, `twice`, `stranger`, `hangup`, `stuck`, `silent`,
`stubborn` (ignores SIGTERM and `Shutdown`), `flood` (beats without pause), `chatter` (fills its
log), `child` (leaves a grandchild in its group), `deaf` (stops reading), `fast`, `exit` (at once).
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
from node.runner.protocol import (
    Beat,
    Cancel,
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
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        self.connection, _ = listener.accept()

    def send(self, message: RunnerMessage) -> None:
        payload = msgspec.msgpack.encode(message)
        with self.lock:
            self.connection.sendall(struct.pack(">I", len(payload)) + payload)

    def receive(self) -> NodeMessage | None:
        prefix = self.connection.recv(4, socket.MSG_WAITALL)
        if len(prefix) < 4:
            return None
        (length,) = struct.unpack(">I", prefix)
        return self.decoder.decode(self.connection.recv(length, socket.MSG_WAITALL))

    def enter(self, phase: RunnerPhase) -> None:
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

    def do_ramble(self) -> None:
        failure = Failure(code="model_broken", message="tensor " * 100_000, remedy="try " * 100_000)
        self.send(PhaseChanged(phase=RunnerPhase.FAILED, failure=failure))
        time.sleep(0.05)
        os._exit(1)

    def do_swollen(self) -> None:
        self.send(Listening(address=StageAddress("127.0.0.1", 1, bytes(300_000))))
        time.sleep(3600)

    def do_garbage(self) -> None:
        self.connection.sendall(struct.pack(">I", 5) + b"\xc1\xc1\xc1\xc1\xc1")
        time.sleep(3600)

    def do_oversize(self) -> None:
        self.connection.sendall(struct.pack(">I", 0xFFFFFFFF))
        time.sleep(3600)

    def do_back(self) -> None:
        self.send(PhaseChanged(phase=RunnerPhase.CONNECTING))
        time.sleep(3600)

    def do_hangup(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)
        time.sleep(3600)

    def introduce(self) -> None:
        if "child" in self.modes:
            subprocess.Popen((sys.executable, "-c", "import time; time.sleep(3600)"))
        if "chatter" in self.modes:
            for _ in range(64):
                sys.stderr.write("x" * 99_999 + "\n")
        name = RunnerId("r-ffffffff") if "stranger" in self.modes else self.runner
        message = Introduced(
            runner=name, process_id=os.getpid(), phase=RunnerPhase.STARTING, attempt=0
        )
        self.send(message)
        if "twice" in self.modes:
            self.send(message)

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
        self.misbehave("starting")
        self.introduce()
        threading.Thread(target=self.beat, daemon=True).start()
        while (message := self.receive()) is not None:
            match message:
                case Prepare():
                    self.prepare = message
                    if message.stages == 1:
                        threading.Thread(target=self.load, daemon=True).start()
                        continue
                    self.send(PhaseChanged(phase=RunnerPhase.CONNECTING))
                    address = StageAddress("127.0.0.1", 40_000 + message.rank, b"certificate")
                    self.send(Listening(address=address))
                    self.misbehave("connecting")
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
                        return
        time.sleep(3600)

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
