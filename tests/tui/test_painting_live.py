"""Drawn piece by piece equals drawn at once; nothing is drawn while nothing changes."""

import random

import msgspec
import pytest
from textual.events import Resize
from textual.geometry import Size

from node.model.event import InstanceRemoved
from node.model.register import MachineFigures, Register
from tests.fakes.cluster import five_node_cluster, three_node_cluster
from tests.fakes.history import entry, history, trouble
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import screen_text, settle
from tui.actions.everywhere import VIEWS
from tui.app_options import AppOptions
from tui.bridge.inbox import Streamed
from tui.widgets.event_log import EventLog
from tui.widgets.painted import Painted
from tui.widgets.placements import PlacementsPane

RESIZES = 200


def more_figures(play: Screenplay, chance: random.Random, sequence: int) -> None:
    """A newer machine register of every node."""
    state = play.handle.fixed_state
    for node in state.nodes:
        held = play.handle.fixed_registers[node, "MachineFigures"]
        assert isinstance(held.value, MachineFigures)
        total = held.value.memory_bytes_total
        value = msgspec.structs.replace(
            held.value,
            memory_bytes_available=int(total * chance.random()),
            gpu_fraction=chance.random(),
        )
        register = Register(node=node, incarnation=1, sequence=sequence, value=value)
        play.app.inbox.put(Streamed(register, state))


async def test_storm_of_sizes_under_load_ends_in_the_same_picture_as_a_fresh_start() -> None:
    chance = random.Random(7)
    play = Screenplay(five_node_cluster())
    index = play.handle.fixed_state.index
    async with play.app.run_test(size=(100, 30)) as pilot:
        play.start()
        await settle(play, pilot)
        for step in range(RESIZES):
            width, height = chance.randint(1, 220), chance.randint(1, 70)
            play.app.post_message(Resize(Size(width, height), Size(width, height)))
            await pilot.pause(0)  # the next one comes before this one is drawn
            if step % 4 == 0:
                more_figures(play, chance, step)
                new = trouble(play.handle.fixed_state)[0]
                index += 1
                play.follow([msgspec.structs.replace(new, index=index)])
        await pilot.resize_terminal(140, 42)
        await settle(play, pilot)
        storm = screen_text(play.app)
        for painted in play.app.screen.query(Painted):
            painted.strips = []
            painted.paint()
        await settle(play, pilot)
        assert screen_text(play.app) == storm
    play.close()


@pytest.mark.parametrize("view", [name for name, _ in VIEWS])
async def test_lines_painted_one_by_one_equal_a_picture_painted_whole(view: str) -> None:
    chance = random.Random(11)
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view=view))
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        for step in range(5):
            more_figures(play, chance, step)
            await settle(play, pilot)
        pieces = screen_text(play.app)
        play.app.screen.refresh(layout=True)
        for painted in play.app.screen.query(Painted):
            painted.strips = []
            painted.paint()
            painted.refresh()
        await settle(play, pilot)
        assert screen_text(play.app) == pieces
    play.close()


async def test_same_figures_again_refresh_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Screenplay(three_node_cluster())
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        refreshed: list[str] = []
        real = Painted.refresh

        def spy(self: Painted, *args: object, **options: object) -> Painted:
            refreshed.append(type(self).__name__)
            return real(self, *args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(Painted, "refresh", spy)
        for register in play.handle.fixed_registers.values():
            play.app.inbox.put(Streamed(register, play.handle.fixed_state))
        await settle(play, pilot)
        assert refreshed == []
    play.close()


async def test_a_flood_of_entries_is_followed_to_the_last_and_counted() -> None:
    play = Screenplay(three_node_cluster(), AppOptions(animations=False, view="events"))
    state = play.handle.fixed_state
    event = history(state)[0]
    async with play.app.run_test(size=(120, 40)) as pilot:
        play.start()
        await settle(play, pilot)
        known = len(play.entries)
        last = state.index + 5000
        flood = [
            msgspec.structs.replace(event, index=index)
            for index in range(state.index + 1, last + 1)
        ]
        play.follow(flood)
        await settle(play, pilot)
        assert f"{last:,}" in screen_text(play.app)
        assert play.app.context is not None
        assert play.app.context.store.events_total == known + 5000
        assert play.app.main is not None
        log = play.app.main.query_one(EventLog)
        assert log.count() == known + 5000
        await pilot.press("up")
        await settle(play, pilot)
        cursor = log.key_of(log.cursor)
        play.follow([msgspec.structs.replace(event, index=last + 1)])
        await settle(play, pilot)
        assert log.key_of(log.cursor) == cursor == last - 1
        assert "f follows" in screen_text(play.app)
        await pilot.press("f")
        await settle(play, pilot)
        assert log.key_of(log.cursor) == last + 1
    play.close()


async def test_cursor_stays_on_its_row_when_rows_come_before_it() -> None:
    play = Screenplay(five_node_cluster(), AppOptions(animations=False, view="placements"))
    async with play.app.run_test(size=(160, 45)) as pilot:
        play.start()
        await settle(play, pilot)
        await pilot.press("down", "down")
        await settle(play, pilot)
        assert play.app.context is not None
        assert play.app.main is not None
        chosen = play.app.context.instance
        state = play.handle.fixed_state
        first = play.app.context.view.placements[0].instance
        assert chosen not in (None, first)
        fewer = {key: value for key, value in state.instances.items() if key != first}
        play.handle.fixed_state = msgspec.structs.replace(state, instances=fewer)
        removed = InstanceRemoved(instance=first)
        play.follow([entry(state, state.index + 1, 0, removed)])
        await settle(play, pilot)
        pane = play.app.main.query_one("#placements-list", PlacementsPane)
        assert pane.chosen is not None
        assert pane.chosen.instance == chosen
        assert pane.cursor == 1
    play.close()
