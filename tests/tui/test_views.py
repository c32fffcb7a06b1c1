"""Every view at every size, as text."""

import pytest

from tests.fakes.cluster import five_node_cluster
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import check_snapshot, screen_text, settle
from tui.actions.everywhere import VIEWS
from tui.app_options import AppOptions

SIZES = ((80, 24), (100, 30), (160, 45), (200, 60))


@pytest.mark.parametrize("view", [name for name, _ in VIEWS])
async def test_view_is_drawn_whole_at_every_size(view: str, request: pytest.FixtureRequest) -> None:
    update = bool(request.config.getoption("--update-snapshots"))
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view=view))
    async with play.app.run_test(size=SIZES[0]) as pilot:
        play.start()
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            await settle(play, pilot)
            lines = screen_text(play.app).split("\n")
            assert len(lines) == height
            assert max(len(line) for line in lines) <= width
            assert lines[0].startswith(" exoctl")
            assert dict(VIEWS)[view] in lines[1]
            assert "quit" in lines[-1] or "send" in lines[-1]
            check_snapshot(play.app, f"{view}_{width}x{height}", update=update)
    play.close()


def corners(text: str) -> tuple[int, int]:
    return sum(text.count(c) for c in "╭╮"), sum(text.count(c) for c in "╰╯")


@pytest.mark.parametrize("view", ["overview", "events", "nodes"])
async def test_every_box_is_closed(view: str) -> None:
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view=view))
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        opened, closed = corners(screen_text(play.app))
        turns = 1 if view == "overview" else 0  # the closing hop's elbow
        assert closed == opened + turns
    play.close()
