"""Membership as the node lives it: described once, let in, put out, leaving."""

from collections.abc import Awaitable, Callable, Collection, Mapping

import anyio
import msgspec
import pytest

from node.model.command import Accepted, AdmitNode, Command, Refused, RemoveNode
from node.model.errors import ConflictError, Failure, RefusedError, UnreachableError
from node.model.event import Event, NodeDescribed
from node.model.ids import ClusterId, CommandId, NodeId
from node.model.machine import Address
from node.model.register import LinkRecord
from node.model.state import NodeRecord, State
from node.services.membership import Membership
from tests.fakes.fleet import MAC
from tests.fakes.mesh_lab import eventually

ME, ONE, TWO, THREE = (NodeId(letter * 52) for letter in "mabc")
HOME, AWAY = ClusterId("c" * 32), ClusterId("d" * 32)


ACCEPTED = Accepted(id=CommandId("1"), index=1)


def refused(message: str) -> Refused:
    failure = Failure(code="no", message=message)
    return Refused(id=CommandId("1"), kind="RefusedError", failure=failure)


def at(port: int) -> Address:
    return Address("10.0.0.1", port)


class FakeRouter:
    """Writes down what it is told to do."""

    def __init__(self) -> None:
        self.published: list[Event] = []
        self.founded: list[str] = []
        self.joined: list[tuple[ClusterId, tuple[NodeId, ...]]] = []
        self.peers: set[NodeId] = set()
        self.cluster = HOME
        self.on_reset: Callable[[], None] = lambda: None

    def publish(self, event: Event) -> object:
        self.published.append(event)
        return None

    def found_cluster(self, name: str) -> None:
        self.founded.append(name)
        self.on_reset()
        self.cluster = ClusterId("f" * 32)

    def set_peers(self, peers: Collection[NodeId]) -> None:
        self.peers = set(peers)

    def join_cluster(self, cluster: ClusterId, members: tuple[NodeId, ...]) -> None:
        self.joined.append((cluster, members))
        self.cluster = cluster


class FakeMesh:
    """Has the links that the test gives it."""

    def __init__(self) -> None:
        self.on_decline: Callable[[NodeId, str], Awaitable[None]] | None = None
        self.on_introduced: Callable[[Mapping[NodeId, tuple[Address, ...]]], None] | None = None
        self.master: NodeId | None = None
        self.records: tuple[LinkRecord, ...] = ()
        self.cluster = HOME
        self.admitted: Mapping[NodeId, tuple[Address, ...]] = {}
        self.revoked: Collection[NodeId] = ()

    def links(self) -> tuple[LinkRecord, ...]:
        return self.records

    def set_master(self, master: NodeId) -> None:
        self.master = master

    def set_cluster(self, cluster: ClusterId, name: str = "") -> None:
        self.cluster = cluster

    def set_admitted(
        self, nodes: Mapping[NodeId, tuple[Address, ...]], revoked: Collection[NodeId] = ()
    ) -> None:
        self.admitted, self.revoked = nodes, revoked
        self.records = tuple(record for record in self.records if record.peer in nodes)


class World:
    """A membership, and everything around it."""

    def __init__(self, *others: NodeId) -> None:
        self.router, self.mesh = FakeRouter(), FakeMesh()
        self.state = state_of(ME, *others)
        self.description = NodeDescribed(
            node=ME, name="me", machine=MAC, version="1", incarnation=1, addresses=(at(1),)
        )
        self.router.on_reset = lambda: self.becomes(State())
        self.commands: list[Command] = []
        self.answer: Accepted | Refused | Exception = ACCEPTED
        self.membership = Membership(
            ME,
            lambda: self.description,
            lambda: self.state,
            self.router,
            self.mesh,
            self._submit,
        )

    async def _submit(self, command: Command, timeout_seconds: float) -> Accepted | Refused:
        assert timeout_seconds > 0
        self.commands.append(command)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def becomes(self, state: State) -> None:
        before, self.state = self.state, state
        self.membership.state_changed(before, state)

    async def run_until(self, condition: Callable[[], bool]) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self.membership.run)
            await eventually(condition)
            group.cancel_scope.cancel()

    async def run_once(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self.membership.run)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()


def state_of(*nodes: NodeId, cluster: ClusterId = HOME, **changes: object) -> State:
    records = {
        node: NodeRecord(
            node=node,
            name=node[:1],
            addresses=(at(ord(node[0])),),
            admitted_by=ME,
            admitted_index=1,
        )
        for node in nodes
    }
    state = State(cluster=cluster, cluster_name="home", nodes=records)
    return msgspec.structs.replace(state, **changes)


def link(peer: NodeId, code: str = "") -> LinkRecord:
    failure = Failure(code=code, message=f"it says {code}") if code else None
    return LinkRecord(peer=peer, address=at(1), up=not code, failure=failure)


# Describing


async def test_a_node_that_the_state_does_not_describe_describes_itself_once():
    world = World()
    await world.run_until(lambda: bool(world.router.published))
    await world.run_once()
    assert world.router.published == [world.description]


async def test_a_node_that_is_described_already_says_nothing():
    world = World()
    record = msgspec.structs.replace(
        world.state.nodes[ME],
        name="me",
        machine=MAC,
        version="1",
        incarnation=1,
        addresses=(at(1),),
    )
    world.state = msgspec.structs.replace(world.state, nodes={ME: record})
    await world.run_once()
    assert world.router.published == []


# Following the state


def test_the_mesh_is_told_of_members_and_of_the_removed():
    world = World()
    world.becomes(state_of(ME, ONE, TWO))
    assert set(world.mesh.admitted) == {ONE, TWO}
    world.becomes(state_of(ME, ONE, revoked={TWO: "removed"}))
    assert set(world.mesh.admitted) == {ONE}
    assert set(world.mesh.revoked) == {TWO}


def test_addresses_of_the_removed_are_not_kept():
    world = World(ONE, TWO)
    kept: list[set[NodeId]] = []
    world.membership.on_members = lambda members: kept.append(set(members))
    world.becomes(state_of(ME, ONE, revoked={TWO: "removed"}))
    assert kept == [{ONE}]


async def test_a_node_that_is_put_out_goes_on_alone():
    world = World(ONE)
    kept: list[set[NodeId]] = []
    world.membership.on_members = lambda members: kept.append(set(members))
    world.becomes(state_of(ONE, revoked={ME: "stolen"}))
    assert world.router.founded == []  # not from within the fold
    await world.run_until(lambda: world.router.founded == ["me"])
    assert world.mesh.cluster == world.router.cluster != HOME
    assert kept[0] == set()
    assert world.mesh.admitted == {}


@pytest.mark.parametrize(
    ("said", "is_out"),
    [
        (("revoked",), True),
        (("revoked", "revoked", "unreachable"), True),
        (("revoked", "unreachable", "timeout"), False),  # it may be behind the silent ones
        (("revoked", "unreachable"), False),
        (("revoked", "revoked", ""), False),  # a link stands
        (("revoked", "revoked", "duplicate_id"), False),
        (("unreachable",), False),
    ],
)
async def test_a_node_goes_by_the_word_of_most_members_that_it_was_put_out(
    said: tuple[str, ...], is_out: bool
):
    others = (ONE, TWO, THREE)[: len(said)]
    world = World(*others)
    world.mesh.records = tuple(link(node, code) for node, code in zip(others, said, strict=True))
    await world.run_once()
    assert bool(world.router.founded) is is_out


# Coming


def test_a_node_that_was_let_in_follows_and_is_a_member_once_the_log_says_so():
    world = World()
    world.membership.joined(AWAY, "away", {ONE: (at(5),), TWO: (at(6),)})
    assert world.router.joined == [(AWAY, (ONE, TWO))]
    assert world.mesh.cluster == AWAY
    assert set(world.mesh.admitted) == {ONE, TWO}
    world.becomes(State())
    assert set(world.mesh.admitted) == {ONE, TWO}  # an empty state puts nobody out
    assert not world.membership.is_settled
    world.becomes(state_of(ME, ONE, TWO, THREE, cluster=AWAY))
    assert set(world.mesh.admitted) == {ONE, TWO, THREE}
    assert world.membership.join_trouble() == ""


def test_members_are_taken_on_the_word_of_others_only_until_the_log_is_here():
    world = World()
    assert world.mesh.on_introduced is None
    world.membership.joined(AWAY, "away", {ONE: (at(5),)})
    assert world.mesh.on_introduced is not None
    world.mesh.on_introduced({TWO: (at(6),), ME: (at(7),)})
    assert set(world.mesh.admitted) == world.router.peers == {ONE, TWO}
    crowd = {NodeId(f"n{number}"): (at(8),) for number in range(300)}
    world.mesh.on_introduced(crowd)
    assert set(world.mesh.admitted) == {ONE, TWO}
    world.becomes(state_of(ME, ONE, TWO, cluster=AWAY))
    assert world.mesh.on_introduced is None


async def test_a_node_whose_new_log_does_not_come_keeps_its_members_and_says_why():
    world = World()
    world.membership.joined(AWAY, "away", {ONE: (at(5),), TWO: (at(6),)})
    world.state = State()
    world.mesh.records = (link(ONE, "other_cluster"), link(TWO, "unreachable"))
    await world.run_once()
    assert set(world.mesh.admitted) == {ONE, TWO}
    assert world.router.founded == []
    trouble = world.membership.join_trouble()
    assert "it says other_cluster" in trouble
    assert "2 without a link" in trouble


def test_a_node_with_others_may_not_just_go_over():
    world = World(ONE)
    assert not world.membership.is_alone
    with pytest.raises(ConflictError):
        world.membership.check_may_join()
    lone = World()
    assert lone.membership.is_alone
    lone.membership.check_may_join()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ACCEPTED, True),
        (refused("no"), False),
        (UnreachableError.because("no_master", "no master"), False),
    ],
)
async def test_a_node_is_admitted_only_when_the_master_has_committed_it(
    answer: Accepted | Refused | Exception, expected: bool
):
    world = World()
    world.answer = answer
    assert await world.membership.admit(ONE, "one", (at(1),), "invite") is expected
    assert world.commands == [AdmitNode(node=ONE, name="one", addresses=(at(1),), proof="invite")]


async def test_the_admission_of_a_node_that_does_not_come_is_taken_back():
    world = World(ONE)
    assert world.mesh.on_decline is not None
    await world.mesh.on_decline(ONE, "one")
    assert world.commands == [RemoveNode(node=ONE, reason="did not come over")]
    world.answer = UnreachableError.because("no_master", "no master")
    await world.mesh.on_decline(ONE, "one")  # logged, and the door goes on


# Leaving


async def test_leaving_begins_a_cluster_of_one_once_the_master_agrees():
    world = World(ONE)
    await world.membership.leave()
    assert world.commands == [RemoveNode(node=ME, reason="left")]
    assert world.router.founded == ["me"]


async def test_a_node_that_the_master_does_not_let_go_stays():
    world = World(ONE)
    world.answer = refused("it runs a stage")
    with pytest.raises(RefusedError):
        await world.membership.leave()
    assert world.router.founded == []


async def test_a_node_that_is_alone_has_nothing_to_leave():
    with pytest.raises(ConflictError):
        await World().membership.leave()
