"""Draw the README's pictures: `python screenshots/make.py [--recording FILE] [--no-png]`.

They are drawn from a recorded run of a real cluster (`record.py`): every figure in them was
measured. The tests draw the SVGs again and compare, so that a picture never shows what the app does
not.
"""

import argparse
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import anyio
import msgspec

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from node.core.facts import facts_from  # noqa: E402
from node.core.placement.plan import plan  # noqa: E402
from node.model.command import Wish  # noqa: E402
from node.model.ids import ModelId  # noqa: E402
from node.model.request import GenerationItem, GenerationRequest  # noqa: E402
from node.model.session import Entry  # noqa: E402
from node.model.topology import Plan  # noqa: E402
from tests.fakes.cluster import Cluster  # noqa: E402
from tests.fakes.handle import FakeHandle  # noqa: E402
from tests.fakes.screen import Screenplay  # noqa: E402
from tests.fakes.snapshots import screen_svg, settle, write_png  # noqa: E402
from tui.app_options import AppOptions  # noqa: E402
from tui.bridge.recording import fold, read_recording  # noqa: E402

WIDE, SMALL = (160, 45), (100, 30)
RECORDING, ANSWER = HERE / "recording.ndjson", HERE / "answer.ndjson"
QUESTION = "What is the capital of France, and what is it known for?"

Picture = tuple[str, tuple[int, int], tuple[str, ...]]
"""View, size, keys pressed before it is drawn."""

PICTURES: dict[str, Picture] = {
    "overview": ("overview", WIDE, ()),
    "overview-small": ("overview", SMALL, ()),
    "nodes": ("nodes", SMALL, ()),
    "placements": ("placements", WIDE, ()),
    "events": ("events", SMALL, ()),
    "chat": ("chat", SMALL, (*QUESTION, "enter")),
    "place": ("overview", (120, 36), ("n", "enter")),
    "light": ("overview", SMALL, ()),
}


class RecordedHandle(FakeHandle):
    """Answers with what was recorded, and plans as the master does."""

    async def plan(self, model: ModelId, wish: Wish) -> Plan:
        facts = facts_from(self.fixed_registers, 0.0)
        card = facts.card(model)
        assert card is not None
        return plan(self.fixed_state, card, wish, facts)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationItem, None]:
        del request
        for line in ANSWER.read_bytes().splitlines():
            yield msgspec.json.decode(line, type=GenerationItem)


async def draw(name: str, cluster: Cluster, entries: Sequence[Entry], theme: str) -> str:
    """One picture as SVG."""
    view, size, keys = PICTURES[name]
    options = AppOptions(animations=False, view=view, theme=theme)
    play = Screenplay(cluster, options, entries=list(entries), handle=RecordedHandle)
    async with play.app.run_test(size=size) as pilot:
        play.start()
        await settle(play, pilot)
        for key in keys:
            await pilot.press(key)
            await settle(play, pilot)
        svg = screen_svg(play.app)
    play.close()
    return svg


async def draw_all(recording: Path = RECORDING) -> dict[str, str]:
    """Every picture as SVG, by name."""
    run = fold(read_recording(recording))
    drawn: dict[str, str] = {}
    for name in PICTURES:
        theme = "exoctl-light" if name == "light" else ""
        drawn[name] = await draw(name, (run.state, run.registers), run.entries, theme)
    return drawn


def main() -> int:
    """Write the pictures beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recording", type=Path, default=RECORDING, help="another run")
    parser.add_argument("--no-png", action="store_true", help="SVG alone")
    chosen = parser.parse_args()
    for name, svg in anyio.run(draw_all, chosen.recording).items():
        path = HERE / f"{name}.svg"
        path.write_text(svg, encoding="utf-8")
        drawn = not chosen.no_png and write_png(path)
        print(f"{path.name}{' and png' if drawn else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
