"""Neither of the app and its node holds up the other, measured on a real cluster of two.

The app's side of the embedded node is this process's main thread; it is blocked as a stalled frame
would block it. Then the node's own loop is blocked, and the screen's side is asked how it fares.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from node.config import Config
from node.handle import NodeHandle
from node.model.ids import NodeId
from node.model.machine import Address
from node.model.session import Entry
from tests.benchmarks.measure import line
from tests.fakes.node_process import NodeProcess, wait_for
from tui.app import embedding
from tui.bridge.inbox import Answered, Inbox, Streamed
from tui.bridge.node_thread import NodeThread

BLOCK_SECONDS = 5.0
ORDERS = 40
NODE_BLOCK_SECONDS = 2.0
LOOK_SECONDS = 0.005


class Side:
    """The screen's side: an inbox and the thread of the node."""

    def __init__(self, config: Config) -> None:
        self.inbox = Inbox(lambda: None)
        self.node = NodeThread(embedding(config), self.inbox, is_embedded=True)
        self.entries: list[int] = []
        self.answers: list[object] = []

    def take(self) -> None:
        for item in self.inbox.take():
            if isinstance(item, Streamed) and isinstance(item.item, Entry):
                self.entries.append(item.item.index)
            elif isinstance(item, Answered):
                item.reply(item.result)

    def ask(self, work: Callable[[NodeHandle], object]) -> object:
        """Have the node do something and wait for the answer, reading the inbox meanwhile."""
        found: list[object] = []

        async def run(handle: NodeHandle) -> object:
            return work(handle)

        self.node.call(run, found.append)
        wait_for(lambda: (self.take(), bool(found))[1], "the node answers", 30)
        return found[0]


def measure(root: Path) -> None:
    secret = root / "secret"
    secret.write_text("s" * 64)
    secret.chmod(0o600)
    (root / "models").mkdir()
    other = NodeProcess(root, "other", root / "models", "--cluster-secret-file", str(secret))
    other.wait_ready()
    host, _, port = other.cluster_address.rpartition(":")
    side = Side(
        Config(
            state_directory=root / "own",
            model_directories=(root / "models",),
            name="own",
            bind="127.0.0.1",
            cluster_port=0,
            api_port=-1,
            discovery=False,
            cluster_secret_file=str(secret),
            peers=(Address(host, int(port)),),
        )
    )
    side.node.start()
    try:
        wait_for(lambda: len(other.state()["nodes"]) == 2, "both are members", 30)
        wait_for(lambda: side.ask(lambda handle: len(handle.state.nodes)) == 2, "here too", 30)
        blocked(side, other)
        stalled(side)
    finally:
        side.node.close()
        other.stop()


def blocked(side: Side, other: NodeProcess) -> None:
    """The screen stands still; the cluster goes on and nothing of it is missing afterwards."""
    before = other.state()
    side.take()
    side.entries.clear()
    started = time.monotonic()
    for number in range(ORDERS):
        flag = "cordon" if number % 2 == 0 else "uncordon"
        other.cli("node", flag, "other")
        if time.monotonic() - started > BLOCK_SECONDS:
            break
    time.sleep(max(0.0, BLOCK_SECONDS - (time.monotonic() - started)))
    after = other.state()
    side.ask(lambda handle: handle.state.index)
    wait_for(lambda: (side.take(), side.entries[-1:] >= [after["index"]])[1], "it comes", 10)
    wanted = [*range(before["index"] + 1, after["index"] + 1)]
    missing = len({*wanted} - {*side.entries})
    seen = time.monotonic() - started
    line(f"screen blocked for {seen:.1f} s: elections", str(_elections(before, after)), "0")
    line(f"screen blocked: entries missing of {len(wanted)}", str(missing), "0")
    lost = [record["name"] for record in _records(after) if record["lost"]]
    line("screen blocked: nodes that were thought lost", str(len(lost)), "0")


def stalled(side: Side) -> None:
    """The node's loop stands still; how long the screen's side is held up at most."""

    async def stand_still(handle: NodeHandle) -> object:
        time.sleep(NODE_BLOCK_SECONDS)  # noqa: ASYNC251 - what no code of the node may do
        return handle.state.index

    done: list[object] = []
    side.node.call(stand_still, done.append)
    longest, last = 0.0, time.monotonic()
    while not done:
        side.take()
        side.node.call(_nothing, side.answers.append)
        time.sleep(LOOK_SECONDS)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    words = f"{1000 * longest:.0f} ms"
    line(f"node blocked for {NODE_BLOCK_SECONDS:g} s: screen held up", words, "<= 100 ms")


async def _nothing(handle: NodeHandle) -> object:
    return NodeId(handle.state.master)


def _elections(before: dict[str, object], after: dict[str, object]) -> int:
    return int(before["session"] != after["session"])


def _records(state: dict[str, object]) -> list[dict[str, object]]:
    nodes = msgspec.convert(state["nodes"], dict[str, dict[str, object]])
    return list(nodes.values())


def run() -> None:
    with tempfile.TemporaryDirectory(prefix="exoctl-isolation-") as folder:
        measure(Path(folder))
