"""What the terminal app's own work costs: processor time of each callback of its loop.

In this process, on Textual's headless driver: everything is laid out and drawn, nothing is sent.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio
from textual.pilot import Pilot

from node.model.ids import ModelId, RequestId
from node.model.request import Delta
from tests.benchmarks.app_feed import cluster_of
from tests.benchmarks.measure import line
from tests.fakes.idle import told_by_the_loop
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import screen_text, settle
from tui.app_options import AppOptions
from tui.bridge.conversation import CHAT, Turn
from tui.bridge.inbox import Generated
from tui.widgets.node_table import NodeTable
from tui.widgets.transcript import Transcript

SIZE = (160, 45)
NODES = 200
HISTORY_TOKENS, RATE, SECONDS = 20_000, 200, 10.0
WORD = "token "
PARAGRAPH = 60


@contextmanager
def callbacks() -> Generator[list[float]]:
    """Processor seconds of every callback of the loop meanwhile."""
    found: list[float] = []
    handle: Any = asyncio.Handle
    real = handle._run

    def timed(self: object) -> None:
        before = time.thread_time()
        real(self)
        found.append(time.thread_time() - before)

    handle._run = timed
    try:
        yield found
    finally:
        handle._run = real


def worst(found: list[float]) -> str:
    """p95 of the callbacks that did something, and the longest, in milliseconds."""
    busy = sorted(each for each in found if each > 0.0005) or [0.0]
    return f"{1000 * busy[int(0.95 * (len(busy) - 1))]:.1f} / {1000 * busy[-1]:.1f} ms"


async def step(
    play: Screenplay, pilot: Pilot[None], name: str, do: Callable[[], Awaitable[object]]
) -> None:
    before = time.thread_time()
    await do()
    await settle(play, pilot)
    line(
        f"{NODES} nodes: {name}, CPU", f"{1000 * (time.thread_time() - before):.0f} ms", "<= 50 ms"
    )


async def many_nodes() -> None:
    """Sorting, filtering and resizing a table of 200 nodes."""
    play = Screenplay(cluster_of(NODES), AppOptions(animations=False, view="nodes"))
    async with play.app.run_test(size=SIZE) as pilot:
        play.start()
        await settle(play, pilot)
        main = play.app.main
        assert main is not None
        table = main.query_one(NodeTable)

        async def sort() -> None:
            table.sort("load")

        async def narrow() -> None:
            table.set_filter("mac-1")

        async def resize() -> None:
            await pilot.resize_terminal(120, 40)

        await step(play, pilot, "sort", sort)
        await step(play, pilot, "filter", narrow)
        await step(play, pilot, "resize", resize)
        main.show_view("overview")
        await settle(play, pilot)
        shown = screen_text(play.app)
        assert "next hop" in shown or "mac-000" in shown, "the overview falls back to rows"
    play.close()


async def long_chat() -> None:
    """200 tokens a second behind 20,000 that were said before."""
    play = Screenplay(cluster_of(5), AppOptions(animations=False, view="chat"))
    vars(play.app)["_monotonic"] = time.monotonic  # frames at their real rate
    async with play.app.run_test(size=SIZE) as pilot:
        play.start()
        await settle(play, pilot)
        assert play.app.context is not None
        assert play.app.main is not None
        talk = play.app.context.conversation
        model = ModelId("llama-3.3-70b-4bit")
        paragraph = WORD * PARAGRAPH + "\n\n"
        said = paragraph * (HISTORY_TOKENS // PARAGRAPH)
        talk.turns.append(Turn(role="assistant", at=0.0, model=model, text=said))
        talk.model = model
        request = talk.ask("go on", RequestId("q-" + "0" * 16), play.now)
        play.app.main.mark(frozenset((CHAT,)))
        await settle(play, pilot)
        number = int(RATE * SECONDS)
        started, before = time.monotonic(), time.thread_time()
        with callbacks() as found:
            for index in range(number):
                item = Delta(index=index, text=f"w{index} ")
                play.app.inbox.put(Generated(request.id, item))
                await anyio.sleep(max(0.0, started + (index + 1) / RATE - time.monotonic()))
        share = (time.thread_time() - before) / (time.monotonic() - started)
        await settle(play, pilot)
        words = f"chat, {RATE} tokens/s behind {HISTORY_TOKENS:,}"
        line(f"{words}: p95 / max", worst(found), "p95 <= 20 ms CPU")
        line(f"{words}: share of a core", f"{share:.0%}")
        copied = play.app.main.query_one(Transcript).chosen_text()
        missing = sum(f"w{index} " not in copied for index in range(number))
        line(f"{words}: tokens missing in the copy", str(missing), "0")
        play.app.main.query_one(Transcript).focus()
        pressed = time.monotonic()
        await pilot.press("escape")
        await settle(play, pilot)
        assert play.node.stopped
        line("chat: esc stops after", f"{1000 * (time.monotonic() - pressed):.0f} ms", "<= 200 ms")
    play.close()


def run() -> None:
    line("load average of the machine", " ".join(f"{each:.1f}" for each in os.getloadavg()))
    with told_by_the_loop():
        anyio.run(many_nodes)
        anyio.run(long_chat)
