"""A whole node in a process of its own, driven by lines on stdin, for the control plane's figures.

Its log, mesh, router, state and timers are the product's; only the embedded model is not made.
"""

import contextlib
import cProfile
import json
import os
import resource
import sys
import time
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread

from node.config import Config, parse_address
from node.io.identity import load_or_create_identity
from node.io.log_file import open_log
from node.io.mesh.event import PeerMessage
from node.io.mesh.mesh import Mesh
from node.io.node_lock import NodeLock
from node.log import NodeLog
from node.model.command import CordonNode
from node.model.errors import BusyError
from node.model.event import NodeCordoned
from node.model.ids import NodeId
from node.model.session import Entry
from node.model.state import State
from node.runtime import Node
from node.services.background import background_tasks
from node.wire.codec import Codec

INDICES_MAX = 4_000_000
OUTBOX_WAIT_SECONDS = 0.0005


class Applied:
    """When each index was folded into the state here, by the machine's monotonic clock."""

    def __init__(self, state: State) -> None:
        self.first = state.index + 1
        self.times = array("d")

    def note(self, before: State, after: State) -> None:
        now = time.monotonic()
        if after.index - before.index > len(self.times) + INDICES_MAX:
            return
        if self.first + len(self.times) != before.index + 1:
            self.first, self.times = before.index + 1, array("d")
        self.times.extend([now] * max(0, after.index - before.index))

    def at(self, index: int) -> float | None:
        place = index - self.first
        return self.times[place] if 0 <= place < len(self.times) else None


class Sent:
    """Bytes of the frames handed to the mesh, by receiver and kind of message."""

    def __init__(self) -> None:
        self.bytes_by_peer: Counter[str] = Counter()
        self.counting = False
        codec, send = Codec(), Mesh.send

        def counted(self_: Mesh, peer: NodeId, message: PeerMessage) -> bool:
            if self.counting:
                kind = type(message).__name__
                self.bytes_by_peer[f"{peer} {kind}"] += len(codec.encode(message))
            return send(self_, peer, message)

        setattr(Mesh, "send", counted)  # noqa: B010


class Member:
    def __init__(self, node: Node, sent: Sent, started_at: float) -> None:
        self.node = node
        self.sent = sent
        self.started_at = started_at
        self.router = node.control.router
        self.applied = Applied(node.control.store.state)
        node.control.store.on_change(self.applied.note)

    async def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        return await getattr(self, "do_" + order.pop("do"))(**order)

    async def do_look(self) -> dict[str, Any]:
        """Where it stands."""
        figures, usage = self.router.figures(), resource.getrusage(resource.RUSAGE_SELF)
        return {
            "node": self.node.node,
            "role": figures.role,
            "index": figures.index_applied,
            "log_bytes": figures.log_bytes,
            "unacknowledged": figures.unacknowledged,
            "elections": figures.elections,
            "in_sync": len(self.node.control.store.state.in_sync),
            "members": len(self.node.control.store.state.nodes),
            "processor_seconds": usage.ru_utime + usage.ru_stime,
            "rss_bytes": usage.ru_maxrss * 1024,
            "sent": dict(self.sent.bytes_by_peer),
        }

    async def do_count_sent(self) -> dict[str, Any]:
        self.sent.bytes_by_peer.clear()
        self.sent.counting = True
        return {}

    async def do_invite(self) -> dict[str, Any]:
        return {"code": (await self.node.handle.invite()).code}

    async def do_join(self, code: str, address: str) -> dict[str, Any]:
        began = time.monotonic()
        await self.node.handle.join(code, parse_address(address))
        return {"began": began}

    async def do_commands(self, count: int, per_second: float) -> dict[str, Any]:
        """Commands at a steady rate, each on its own; [when it was given, index] of each."""
        asked: list[tuple[float, int]] = []

        async def one(place: int) -> None:
            began = time.monotonic()
            command = CordonNode(node=self.node.node, cordoned=place % 2 == 0)
            try:
                answer = await self.node.handle.submit(command)
            except BusyError:
                answer = None
            asked.append((began, getattr(answer, "index", -1)))

        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for place in range(count):
                await anyio.sleep(max(0.0, began + place / per_second - time.monotonic()))
                tasks.start_soon(one, place)
        return {"asked": asked}

    async def do_events(self, count: int) -> dict[str, Any]:
        """Events as fast as the outbox takes them; when it began, and when the last was applied."""
        settled = 0
        last = -1

        def on_settled(entry: Entry | None) -> None:
            nonlocal settled, last
            settled += 1
            last = max(last, entry.index if entry is not None else -1)

        began = time.monotonic()
        for place in range(count):
            event = NodeCordoned(node=self.node.node, cordoned=place % 2 == 0)
            while True:
                try:
                    self.router.publish(event, on_settled)
                    break
                except BusyError:
                    await anyio.sleep(OUTBOX_WAIT_SECONDS)
            if place % 64 == 63:
                await anyio.lowlevel.checkpoint()
        while settled < count:  # noqa: ASYNC110 - measured from outside
            await anyio.sleep(0.001)
        return {"began": began, "ended": time.monotonic(), "last": last}

    async def do_applied(self, indices: list[int]) -> dict[str, Any]:
        return {"times": [self.applied.at(index) for index in indices]}

    async def do_reach(self, index: int) -> dict[str, Any]:
        """When it came to an index; waits for it."""
        await self.node.control.store.reached(index, 300.0)
        return {"at": self.applied.at(index) or time.monotonic()}

    async def do_span(self, last: int) -> dict[str, Any]:
        """How many entries were folded in since the start, up to an index, and for how long."""
        at = self.applied.at(last)
        assert at is not None, f"index {last} was not seen here"
        return {"count": last - self.applied.first + 1, "seconds": at - self.applied.times[0]}


async def main(state_directory: Path, name: str) -> None:
    started_at = time.monotonic()
    sent = Sent()
    models = state_directory / "models"
    config = Config(
        state_directory=state_directory,
        model_directories=(models,),
        name=name,
        bind="127.0.0.1",
        cluster_port=0,
        api_port=-1,
        discovery=False,
        log_level="warning",
    )
    lock = NodeLock(state_directory)
    lock.acquire()
    log_of_node = NodeLog(state_directory, config.log_level, to_stderr=True)
    identity = load_or_create_identity(state_directory)
    log, recovered = await anyio.to_thread.run_sync(open_log, state_directory / "log")
    opened_at = time.monotonic()
    async with background_tasks() as tasks:
        node = Node(config, identity, log, recovered, tasks)
        node.work.models._keep_embedded = anyio.sleep_forever  # pyright: ignore[reportPrivateUsage]
        member = Member(node, sent, started_at)
        await node.start(lock)
        say(
            node=node.node,
            address=str(node.mesh.address),
            started=started_at,
            opened=opened_at,
            ready=time.monotonic(),
        )
        try:
            await listen(member)
        finally:
            with anyio.CancelScope(shield=True):
                await node.stop()
    log_of_node.close()
    lock.release()


async def listen(member: Member) -> None:
    while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        order: dict[str, Any] = json.loads(line)
        say(**await member.answer(order))


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    (directory / "models").mkdir(parents=True, exist_ok=True)
    profiler = cProfile.Profile(time.thread_time) if os.environ.get("MEMBER_PROFILE") else None
    with profiler or contextlib.nullcontext():
        anyio.run(main, directory, sys.argv[2])
    if profiler is not None:
        profiler.dump_stats(f"{os.environ['MEMBER_PROFILE']}.{sys.argv[2]}")
