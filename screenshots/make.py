"""Draw the README's pictures: `python screenshots/make.py [--recording FILE] [--no-png]`.

They are drawn from a recorded run of a real cluster (`record.py`): every figure in them was
measured. The tests draw the SVGs again and compare, so that a picture never shows what the app does
not.
"""

import argparse
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import msgspec

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from node.core.apply import apply, read_event  # noqa: E402
from node.core.facts import facts_from  # noqa: E402
from node.core.placement.plan import plan  # noqa: E402
from node.handle import LocalView, LogLine  # noqa: E402
from node.model.command import Wish  # noqa: E402
from node.model.event import NodeLost  # noqa: E402
from node.model.ids import ModelId, NodeId  # noqa: E402
from node.model.register import Register  # noqa: E402
from node.model.request import GenerationItem, GenerationRequest  # noqa: E402
from node.model.session import Entry  # noqa: E402
from node.model.state import Snapshot, State  # noqa: E402
from node.model.topology import Plan  # noqa: E402
from tests.fakes.handle import FakeHandle  # noqa: E402
from tests.fakes.idle import told_by_the_loop  # noqa: E402
from tests.fakes.screen import Screenplay  # noqa: E402
from tests.fakes.snapshots import screen_svg, settle, write_png  # noqa: E402
from tui.actions.everywhere import VIEWS  # noqa: E402
from tui.app_options import AppOptions  # noqa: E402
from tui.bridge.inbox import Connected, Streamed  # noqa: E402
from tui.bridge.recording import fold, read_recording  # noqa: E402

WIDE, SMALL = (160, 45), (100, 30)
RECORDING, ANSWER = HERE / "recording.ndjson", HERE / "answer.ndjson"
LOGS = HERE / "logs.ndjson"
QUESTION = "Write a short Python function that adds two numbers, and say how it works."
BEFORE_LOSS_SECONDS = 4.0


class RecordedHandle(FakeHandle):
    """Answers with what was recorded, and plans as the master does."""

    async def plan(self, model: ModelId, wish: Wish) -> Plan:
        facts = facts_from(self.fixed_registers, 0.0)
        card = facts.card(model)
        assert card is not None
        return plan(self.fixed_state, card, wish, facts)

    async def logs(self, source: str = "", lines_max: int = 1000) -> list[LogLine]:
        return [line for line in _log() if source in ("", line.source)][-lines_max:]

    async def log_sources(self) -> list[str]:
        return sorted({line.source for line in _log()})

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationItem, None]:
        del request
        for line in ANSWER.read_bytes().splitlines():
            yield msgspec.json.decode(line, type=GenerationItem)


def _log() -> list[LogLine]:
    lines = LOGS.read_bytes().splitlines()
    return [msgspec.json.decode(line, type=LogLine) for line in lines]


class Show:
    """The app over a recording that is played item by item, as fast as it is drawn."""

    def __init__(self, recording: Path) -> None:
        self.items = list(read_recording(recording))
        run = fold(self.items)
        self.play = Screenplay(
            (run.state, run.registers),
            AppOptions(animations=False, source="recorded"),
            entries=run.entries,
            handle=RecordedHandle,
        )
        self._place = 0
        self._state = State()
        self._registers: dict[tuple[NodeId, str], Register] = {}

    @property
    def loss_at(self) -> float:
        """When the first node was lost; the end where none was."""
        for recorded in self.items:
            item = recorded.item
            if isinstance(item, Entry) and isinstance(read_event(item.payload), NodeLost):
                return recorded.at - BEFORE_LOSS_SECONDS
        return self.items[-1].at

    def go_to(self, at: float) -> None:
        """Have everything come that came until then."""
        inbox = self.play.app.inbox
        while self._place < len(self.items) and self.items[self._place].at <= at:
            recorded = self.items[self._place]
            self._place += 1
            self.play.now = recorded.at
            item = recorded.item
            if isinstance(item, LocalView):
                inbox.put(item)
                continue
            if isinstance(item, Snapshot):
                self._state = item.state
                inbox.put(Connected(self._state, {}))
            elif isinstance(item, Entry):
                self._state = apply(self._state, item)
            elif isinstance(item, Register):
                self._registers[item.node, type(item.value).__name__] = item
            inbox.put(Streamed(item, self._state))
            self.play.app.on_wake()
        self.play.handle.fixed_state = self._state
        self.play.handle.fixed_registers = dict(self._registers)


async def draw_all(recording: Path = RECORDING) -> dict[str, str]:
    """Every picture as SVG, by name."""
    show = Show(recording)
    play = show.play
    drawn: dict[str, str] = {}
    async with play.app.run_test(size=WIDE) as pilot:

        async def press(*keys: str) -> None:
            for key in keys:
                await pilot.press(key)
                await settle(play, pilot)

        async def keep(name: str) -> None:
            await settle(play, pilot)
            drawn[name] = screen_svg(play.app)

        await settle(play, pilot)
        show.go_to(show.loss_at)
        await press("7", *QUESTION, "enter", "escape")
        for size, suffix in ((WIDE, ""), (SMALL, "-small")):
            await pilot.resize_terminal(*size)
            for digit, (view, _) in enumerate(VIEWS, start=1):
                await press(str(digit), *(("escape",) if view == "chat" else ()))
                await keep(f"{view}{suffix}")
        await pilot.resize_terminal(120, 36)
        await press("1", "n", "enter", "down", "down", "down", "down")
        await keep("place")
        await press("escape", "m")
        await keep("matrix")
        await press("escape")
        await pilot.resize_terminal(*SMALL)
        assert play.app.main is not None
        for theme in ("light", "contrast", "cb"):
            play.app.theme = f"exoctl-{theme}"
            await keep(theme)
        play.app.theme = "exoctl-dark"
        await pilot.resize_terminal(*WIDE)
        show.go_to(show.items[-1].at)
        await keep("loss")
    play.close()
    return drawn


def main() -> int:
    """Write the pictures beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recording", type=Path, default=RECORDING, help="another run")
    parser.add_argument("--no-png", action="store_true", help="SVG alone")
    chosen = parser.parse_args()
    with told_by_the_loop():
        pictures = anyio.run(draw_all, chosen.recording)
    for name, svg in pictures.items():
        path = HERE / f"{name}.svg"
        path.write_text(svg, encoding="utf-8")
        drawn = not chosen.no_png and write_png(path)
        print(f"{path.name}{' and png' if drawn else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
