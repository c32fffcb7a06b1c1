"""Text snapshots of the screen: what is drawn, cell by cell, without colours."""

import re
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.segment import Segment
from textual.app import App
from textual.pilot import Pilot

from tests.fakes.screen import Screenplay

ROOT = Path(__file__).parent.parent
SNAPSHOTS = ROOT / "tui" / "snapshots"
ARTIFACTS = ROOT.parent / "test-artifacts"
REST_SECONDS = 30.0
"""Until a screen that should come to rest, or show something, has failed to."""


async def settle(play: Screenplay, pilot: Pilot[None]) -> None:
    """Wait until nothing is left to take and to paint."""
    quiet = 0
    end = time.monotonic() + REST_SECONDS
    while time.monotonic() < end:
        await pilot.pause()
        main = play.app.main
        busy = main is None or not main.clock.is_clean or not play.app.inbox.is_empty
        busy = busy or main is None or not main.is_settled or not is_drawn(play.app)
        quiet = 0 if busy else quiet + 1
        if quiet == 2:
            return
    raise AssertionError("the screen does not come to rest")


async def until_shown(play: Screenplay, pilot: Pilot[None], words: str) -> str:
    """Wait until the words are on the screen; returns it."""
    shown = ""
    end = time.monotonic() + REST_SECONDS
    while time.monotonic() < end:
        shown = screen_text(play.app)
        if words in shown:
            return shown
        await pilot.pause()
    raise AssertionError(f"{words!r} never appears on\n{shown}")


def is_drawn(app: App[Any]) -> bool:
    """Nothing of the screen waits to be laid out or drawn. Reaches into Textual as below."""
    held: Any = app.screen
    asked = held._layout_required or held._repaint_required or held._dirty_widgets
    return not (asked or held._callbacks)


def screen_text(app: App[Any]) -> str:
    """The screen as lines of text. The one place that reaches into Textual's compositor."""
    compositor = app.screen._compositor  # pyright: ignore[reportPrivateUsage]
    strips: Iterable[Iterable[Segment]] = compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


def screen_svg(app: App[Any], title: str = "exoctl") -> str:
    """The screen as SVG, with the parts that differ from run to run made alike."""
    return re.sub(r"terminal-\d+", "terminal", app.export_screenshot(title=title))


def check_snapshot(app: App[Any], name: str, *, update: bool) -> None:
    """Compare the screen with its snapshot; keep text, SVG and PNG of what differs."""
    shown = screen_text(app) + "\n"
    path = SNAPSHOTS / f"{name}.txt"
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
        return
    wanted = path.read_text(encoding="utf-8") if path.exists() else ""
    if shown == wanted:
        return
    ARTIFACTS.mkdir(exist_ok=True)
    (ARTIFACTS / f"{name}.txt").write_text(shown, encoding="utf-8")
    svg = ARTIFACTS / f"{name}.svg"
    svg.write_text(screen_svg(app), encoding="utf-8")
    write_png(svg)
    raise AssertionError(f"{name} is drawn differently: see {svg.with_suffix('.png')}\n{shown}")


def write_png(svg: Path) -> bool:
    """Draw an SVG with a headless browser; False where there is none."""
    match = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg.read_text(encoding="utf-8"))
    assert match is not None
    width, height = (int(float(size)) + 1 for size in match.groups())
    command = (
        "chromium",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={width},{height}",
        f"--screenshot={svg.with_suffix('.png')}",
        svg.resolve().as_uri(),
    )
    try:
        subprocess.run(command, capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return True
