"""One join at a time: nobody is let into a log that its holder is about to give up."""

from pathlib import Path

import anyio
import pytest

from node.io import clock
from node.model.errors import BusyError, ConflictError, RefusedError
from node.model.ids import ClusterId, NodeId
from node.model.machine import Address
from tests.fakes.mesh_lab import OTHER_CLUSTER, Lab, LabNode, eventually, members, open_lab

THIRD_CLUSTER = ClusterId("e" * 32)


class SlowMaster:
    """Decides once it is allowed to."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.decide = anyio.Event()

    async def __call__(
        self, node: NodeId, name: str, addresses: tuple[Address, ...], proof: str
    ) -> bool:
        self.asked.set()
        await self.decide.wait()
        return True


async def lan_nodes(lab: Lab) -> tuple[LabNode, LabNode, LabNode]:
    return (
        await lab.start("one", trust="lan"),
        await lab.start("two", cluster=OTHER_CLUSTER, trust="lan"),
        await lab.start("three", cluster=THIRD_CLUSTER, trust="lan"),
    )


async def test_a_node_that_asks_to_join_lets_nobody_in_meanwhile(tmp_path: Path):
    async with open_lab(tmp_path) as lab, anyio.create_task_group() as group:
        one, two, three = await lan_nodes(lab)
        master = one.mesh.on_join = SlowMaster()
        two.mesh.on_join = SlowMaster()
        group.start_soon(two.mesh.join, "", one.address)
        await master.asked.wait()
        with pytest.raises(RefusedError) as caught:
            await three.mesh.join("", two.address)
        assert caught.value.failure.code == "join_busy"
        with pytest.raises(BusyError):
            await two.mesh.join("", three.address)
        master.decide.set()


async def test_a_node_that_lets_another_in_does_not_ask_to_join_meanwhile(tmp_path: Path):
    async with open_lab(tmp_path) as lab, anyio.create_task_group() as group:
        one, two, three = await lan_nodes(lab)
        master = two.mesh.on_join = SlowMaster()
        group.start_soon(three.mesh.join, "", two.address)
        await master.asked.wait()
        with pytest.raises(BusyError) as caught:
            await two.mesh.join("", one.address)
        assert caught.value.failure.code == "join_busy"
        master.decide.set()


async def test_a_failed_join_does_not_bar_the_next(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two, _ = await lan_nodes(lab)
        with pytest.raises(RefusedError):
            await two.mesh.join("", one.address)
        master = one.mesh.on_join = SlowMaster()
        master.decide.set()
        assert (await two.mesh.join("", one.address)).member == one.node


async def test_what_was_granted_to_a_node_that_is_not_alone_any_more_is_given_back(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two, _ = await lan_nodes(lab)
        master = one.mesh.on_join = SlowMaster()
        master.decide.set()
        given_back: list[tuple[NodeId, str]] = []

        async def declined(node: NodeId, name: str) -> None:
            given_back.append((node, name))

        one.mesh.on_decline = declined
        code, _ = one.mesh.create_invite(600.0, clock.wall())
        with pytest.raises(ConflictError) as caught:
            await two.mesh.join(code, one.address, lambda: False)
        assert caught.value.failure.code == "join_declined"
        await eventually(lambda: given_back == [(two.node, "two")])


# What codes are worth


async def let_in(member: LabNode, joiner: LabNode) -> str:
    """Have it invited and admitted; returns the code."""
    master = member.mesh.on_join = SlowMaster()
    master.decide.set()
    code, _ = member.mesh.create_invite(600.0, clock.wall())
    await joiner.mesh.join(code, member.address)
    member.mesh.set_admitted({joiner.node: (joiner.address,)})
    return code


async def refusal_of(joiner: LabNode, code: str, address: Address) -> str:
    with pytest.raises(RefusedError) as caught:
        await joiner.mesh.join(code, address)
    return caught.value.failure.code


async def test_a_spent_code_repeats_the_grant_for_its_member_only(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two, three = await lan_nodes(lab)
        code = await let_in(one, two)
        assert (await two.mesh.join(code, one.address)).member == one.node
        assert await refusal_of(three, code, one.address) == "wrong_code"


async def test_a_spent_code_does_not_undo_a_removal(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two, _ = await lan_nodes(lab)
        code = await let_in(one, two)
        one.mesh.set_admitted({}, revoked=(two.node,))
        assert await refusal_of(two, code, one.address) == "wrong_code"
        one.mesh.set_admitted({two.node: (two.address,)})  # invited anew, with another code
        assert await refusal_of(two, code, one.address) == "wrong_code"


async def test_a_code_of_a_cluster_that_was_left_lets_nobody_into_the_next(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        one, two, _ = await lan_nodes(lab)
        code, _ = one.mesh.create_invite(600.0, clock.wall())
        master = one.mesh.on_join = SlowMaster()
        master.decide.set()
        one.mesh.set_cluster(ClusterId("f" * 32), "next")
        assert await refusal_of(two, code, one.address) == "wrong_code"


# Clusters that are too large for one answer


async def test_a_joiner_is_told_of_the_master_first_and_meets_the_rest_by_its_host(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        host, joiner = await lab.start("host"), await lab.start("joiner", cluster=OTHER_CLUSTER)
        others = sorted([await lab.start(f"n{number}") for number in range(17)], key=_id_of)
        host.mesh.set_admitted(members(joiner, *others))
        for other in others:
            other.mesh.set_admitted(members(host))
        await eventually(
            lambda: {other.node for other in others} <= set(host.mesh.proved_addresses())
        )
        host.mesh.set_master(others[-1].node)
        master = host.mesh.on_join = SlowMaster()
        master.decide.set()
        code, _ = host.mesh.create_invite(600.0, clock.wall())
        granted = await joiner.mesh.join(code, host.address)
        named = [node for node, _ in granted.addresses]
        assert named[:2] == [host.node, others[-1].node]
        assert len(named) < 1 + len(others)
        met: set[NodeId] = set(named)
        joiner.mesh.on_introduced = met.update
        joiner.mesh.set_cluster(granted.cluster, granted.cluster_name)
        joiner.mesh.set_admitted({host.node: (host.address,)})
        await eventually(lambda: {other.node for other in others} <= met)


def _id_of(node: LabNode) -> NodeId:
    return node.node
