"""The overview tells of every node what it holds, whichever ring is drawn."""

import pytest

from node.model.ids import InstanceId
from node.model.instance import RunnerPhase
from node.model.machine import Address
from tests.fakes.cluster import MACS, Cluster, node_id, three_node_builder
from tests.fakes.screen import Screenplay
from tests.fakes.snapshots import screen_text, settle
from tui.app_options import AppOptions
from tui.viewmodel import text


def two_rings() -> Cluster:
    builder = three_node_builder()
    split = {"studio-a": 60, "mbp-max": 20}
    builder.place("5a11c0de", "llama-3.3-70b-4bit", split, RunnerPhase.READY)
    builder.place("0ce1", "smollm2-135m-instruct", {"mini-1": 30}, RunnerPhase.READY)
    builder.place("0ce2", "phi-4-4bit", {"mini-1": 40}, RunnerPhase.READY)
    return builder.build()


async def overview(cluster: Cluster, size: tuple[int, int], instance: str = "") -> str:
    play = Screenplay(cluster, AppOptions(animations=False, view="overview"))
    async with play.app.run_test(size=size) as pilot:
        play.start()
        await settle(play, pilot)
        if instance:
            assert play.app.context is not None
            play.app.context.instance = InstanceId(instance)
            assert play.app.main is not None
            play.app.main.mark(frozenset(("nodes",)))
            await settle(play, pilot)
        shown = screen_text(play.app)
    play.close()
    return shown


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 45)])
async def test_layers_of_another_instance_than_the_drawn_one_are_layers(
    size: tuple[int, int],
) -> None:
    shown = await overview(two_rings(), size)
    assert "no layers" not in shown
    assert text.layers(0, 30) in shown
    if size != (120, 40):  # a card of three lines has no room for the name
        assert "of smol" in shown


async def test_a_node_of_the_drawn_ring_says_how_much_more_it_holds() -> None:
    shown = await overview(two_rings(), (160, 45), "i-0ce1")
    assert text.layers(0, 30) in shown
    assert "30 layers +1" in shown
    assert text.layers(0, 60) in shown
    assert "of llama" in shown


async def test_a_node_without_any_layer_says_so() -> None:
    builder = three_node_builder()
    builder.place("0ce1", "smollm2-135m-instruct", {"mini-1": 30}, RunnerPhase.READY)
    assert "no layers" in await overview(builder.build(), (160, 45))


async def test_nodes_on_one_machine_share_its_memory() -> None:
    apart = three_node_builder()
    total = sum(MACS[name].memory_gib for name in apart.names)
    assert f"of {total} GiB" in await overview(apart.build(), (160, 45))
    beside = three_node_builder()
    machine = beside.state.nodes[node_id("studio-a")].machine
    for name in beside.names:
        here = (Address("127.0.0.1", 50_000 + len(name)),)
        beside.amend_node(name, machine=machine, addresses=here)
        beside.put(name, beside.registers[node_id("studio-a"), "MachineFigures"].value)
    shown = await overview(beside.build(), (160, 45))
    assert "of 192 GiB" in shown
    assert "576" not in shown
