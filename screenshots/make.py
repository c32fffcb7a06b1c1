"""Draw the README's pictures: `python screenshots/make.py [--recording FILE] [--no-png]`.

Without a recording they are drawn from the fixture that the tests use. The tests draw the SVGs
again and compare, so that a picture never shows what the app does not.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from node.model.session import Entry  # noqa: E402
from tests.fakes.cluster import Cluster, five_node_cluster, three_node_cluster  # noqa: E402
from tests.fakes.history import history  # noqa: E402
from tests.fakes.screen import Screenplay  # noqa: E402
from tests.fakes.snapshots import screen_svg, settle, write_png  # noqa: E402
from tui.app_options import AppOptions  # noqa: E402
from tui.bridge.recording import fold, read_recording  # noqa: E402

WIDE, SMALL = (160, 45), (100, 30)

Picture = tuple[str, tuple[int, int], tuple[str, ...]]
"""View, size, keys pressed before it is drawn."""

PICTURES: dict[str, Picture] = {
    "overview": ("overview", WIDE, ()),
    "overview-small": ("overview", SMALL, ()),
    "nodes": ("nodes", SMALL, ()),
    "placements": ("placements", WIDE, ()),
    "events": ("events", SMALL, ()),
    "chat": ("chat", SMALL, (*"How are layers split?", "enter")),
    "place": ("overview", (120, 36), ("n", "enter")),
    "light": ("overview", SMALL, ()),
}
QUIET = ("chat", "nodes")
"""Pictures of the smaller cluster, in which nothing is wrong."""


async def draw(name: str, cluster: Cluster, entries: Sequence[Entry], theme: str) -> str:
    """One picture as SVG."""
    view, size, keys = PICTURES[name]
    options = AppOptions(animations=False, view=view, theme=theme)
    play = Screenplay(cluster, options, entries=list(entries))
    async with play.app.run_test(size=size) as pilot:
        play.start()
        await settle(play, pilot)
        for key in keys:
            await pilot.press(key)
            await settle(play, pilot)
        svg = screen_svg(play.app)
    play.close()
    return svg


async def draw_all(recording: Path | None = None) -> dict[str, str]:
    """Every picture as SVG, by name."""
    drawn: dict[str, str] = {}
    for name in PICTURES:
        if recording is not None:
            run = fold(read_recording(recording))
            cluster: Cluster = run.state, run.registers
            entries = run.entries
        else:
            cluster = three_node_cluster() if name in QUIET else five_node_cluster()
            entries = history(cluster[0])
        theme = "exoctl-light" if name == "light" else ""
        drawn[name] = await draw(name, cluster, entries, theme)
    return drawn


def main() -> int:
    """Write the pictures beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recording", type=Path, help="lines of JSON of a real run")
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
