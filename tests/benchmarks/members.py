"""Members as child processes, and what is asked of them over their pipes."""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from tests.fakes.node_process import ROOT

STOP_SECONDS = 20.0
SETTLE_SECONDS = 60.0


class MemberProcess:
    """One node; `ask` waits for its answer, `order` and `answer` are the two halves."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.directory = root / name
        self._errors = (root / f"{name}.log").open("ab")
        self.spawned_at = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.member", str(self.directory), name],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            text=True, start_new_session=True,
        )  # fmt: skip
        self.ready = self.answer()

    def order(self, do: str, **arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait(STOP_SECONDS)
            self._errors.flush()
            words = Path(str(self._errors.name)).read_text(errors="replace")[-2000:]
            raise AssertionError(f"{self.name} ended with {code}: {words}")
        return json.loads(line)

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.order(do, **arguments)
        return self.answer()

    def stop(self) -> None:
        """End it cleanly: its stdin ends."""
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(STOP_SECONDS)
        self._close()

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Members:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.every: list[MemberProcess] = []

    def start(self, name: str) -> MemberProcess:
        member = MemberProcess(self.root, name)
        self.every.append(member)
        return member

    def join(self, first: MemberProcess, other: MemberProcess) -> dict[str, Any]:
        code = first.ask("invite")["code"]
        return other.ask("join", code=code, address=first.ready["address"])

    def cluster(self, *names: str) -> list[MemberProcess]:
        members = [self.start(name) for name in names]
        for other in members[1:]:
            self.join(members[0], other)
        settle(members)
        return members

    def close(self) -> None:
        for member in self.every:
            member.stop()


def settle(members: list[MemberProcess]) -> None:
    """Return once every node is in sync, and all have applied the same."""
    deadline = time.monotonic() + SETTLE_SECONDS
    looks: list[dict[str, Any]] = []
    while time.monotonic() < deadline:
        looks = [member.ask("look") for member in members]
        indices = {look["index"] for look in looks}
        if len(indices) == 1 and all(look["in_sync"] == len(members) for look in looks):
            return
        time.sleep(0.1)
    raise AssertionError(f"not settled within {SETTLE_SECONDS:.0f} s: {looks}")


def master_of(members: list[MemberProcess]) -> MemberProcess:
    return next(member for member in members if member.ask("look")["role"] == "mastering")


@contextlib.contextmanager
def members() -> Generator[Members]:
    """An empty place for nodes on loopback; whatever runs at the end is stopped."""
    with tempfile.TemporaryDirectory(prefix="exoctl-bench-") as folder:
        started = Members(Path(folder))
        try:
            yield started
        finally:
            started.close()
