"""Joining by approval: one code on both screens, a yes on each, and nobody in between."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import msgspec
import pytest
from anyio.abc import TaskGroup

from node.io.mesh.event import JoinGranted
from node.io.mesh.greeting import GreetingStream, new_nonce
from node.io.mesh.limits import MeshLimits
from node.model.errors import (
    ConflictError,
    ExoctlError,
    NotFoundError,
    RefusedError,
    TimeoutExpiredError,
    UnreachableError,
)
from node.model.ids import NodeId
from node.model.machine import Address
from node.model.register import JoinRequest
from node.wire.handshake import Commitment, Revelation, Verdict
from tests.fakes.mesh_lab import (
    OTHER_CLUSTER,
    Lab,
    LabNode,
    Stranger,
    bearing_of,
    call,
    eventually,
    open_lab,
)

SECONDS = 10.0


class Master:
    """Admits everybody, and keeps what it was told."""

    def __init__(self) -> None:
        self.admitted: list[tuple[NodeId, str]] = []

    async def __call__(
        self, node: NodeId, name: str, addresses: tuple[Address, ...], proof: str
    ) -> bool:
        self.admitted.append((node, proof))
        return True


async def pair(lab: Lab, **limits: float) -> tuple[LabNode, LabNode, Master]:
    """A member, a newcomer, and who decides."""
    bounds = msgspec.structs.replace(MeshLimits(), **limits)
    member = await lab.start("member", limits=bounds)
    newcomer = await lab.start("newcomer", cluster=OTHER_CLUSTER)
    master = member.mesh.on_join = Master()
    return member, newcomer, master


async def the_request(member: LabNode) -> JoinRequest:
    await eventually(lambda: bool(member.mesh.join_figures().requests))
    return member.mesh.join_figures().requests[0]


class Outcome:
    """What became of a call that runs beside the test."""

    def __init__(self) -> None:
        self.result: JoinGranted | None = None
        self.error: ExoctlError | None = None
        self._ended = anyio.Event()

    async def of(self, work: Callable[[], Awaitable[JoinGranted]]) -> None:
        try:
            self.result = await work()
        except ExoctlError as error:
            self.error = error
        finally:
            self._ended.set()

    async def code(self) -> str:
        """The failure's code, empty where it went well."""
        with anyio.fail_after(SECONDS):
            await self._ended.wait()
        return self.error.failure.code if self.error else ""


def finish(
    group: TaskGroup, newcomer: LabNode, asked: JoinRequest, seconds: float = SECONDS
) -> Outcome:
    outcome = Outcome()
    joining = newcomer.mesh.joining
    group.start_soon(outcome.of, lambda: joining.finish(asked.id, seconds))
    return outcome


async def test_both_screens_show_one_code_and_two_yes_let_the_machine_in(tmp_path: Path):
    async with open_lab(tmp_path) as lab, anyio.create_task_group() as group:
        member, newcomer, master = await pair(lab)
        asked = await newcomer.mesh.joining.ask(member.address)
        request = await the_request(member)
        assert request.code == asked.code
        assert len(request.code) == 6
        assert (request.node, asked.node) == (newcomer.node, member.node)
        assert newcomer.mesh.join_figures().asking == asked
        outcome = finish(group, newcomer, asked)
        await eventually(lambda: member.mesh.join_figures().requests[0].is_confirmed)
        assert master.admitted == []
        member.mesh.judge_request(request.id, approve=True)
        assert await outcome.code() == ""
        assert outcome.result is not None
        assert outcome.result.member == member.node
        assert master.admitted == [(newcomer.node, "approval")]
        assert member.mesh.join_figures().requests == ()
        assert newcomer.mesh.join_figures().asking is None


async def test_an_approval_alone_admits_nobody_who_has_not_compared_the_code(tmp_path: Path):
    async with open_lab(tmp_path) as lab, anyio.create_task_group() as group:
        member, newcomer, master = await pair(lab, waiting_seconds=0.02)
        asked = await newcomer.mesh.joining.ask(member.address)
        request = await the_request(member)
        member.mesh.judge_request(request.id, approve=True)
        await anyio.sleep(0.1)
        assert master.admitted == []
        assert await finish(group, newcomer, asked).code() == ""
        assert len(master.admitted) == 1


async def test_a_denied_machine_is_told_so(tmp_path: Path):
    async with open_lab(tmp_path) as lab, anyio.create_task_group() as group:
        member, newcomer, master = await pair(lab)
        asked = await newcomer.mesh.joining.ask(member.address)
        outcome = finish(group, newcomer, asked)
        member.mesh.judge_request((await the_request(member)).id, approve=False)
        assert await outcome.code() == "join_denied"
        assert isinstance(outcome.error, RefusedError)
        assert master.admitted == []


async def test_a_machine_whose_code_differs_withdraws_and_its_request_is_gone(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        member, newcomer, _ = await pair(lab)
        asked = await newcomer.mesh.joining.ask(member.address)
        request = await the_request(member)
        await newcomer.mesh.joining.withdraw(asked.id)
        await eventually(lambda: member.mesh.join_figures().requests == ())
        with pytest.raises(NotFoundError):
            member.mesh.judge_request(request.id, approve=True)


async def test_a_request_that_nobody_decides_on_ends_by_itself_on_either_side(tmp_path: Path):
    async with open_lab(tmp_path) as lab, anyio.create_task_group() as group:
        member, newcomer, _ = await pair(lab, request_seconds=0.2, waiting_seconds=0.05)
        asked = await newcomer.mesh.joining.ask(member.address)
        assert await finish(group, newcomer, asked).code() == "join_expired"
        asked = await newcomer.mesh.joining.ask(member.address)
        outcome = finish(group, newcomer, asked, seconds=0.05)
        assert await outcome.code() == "join_not_approved"
        assert isinstance(outcome.error, TimeoutExpiredError)
        await eventually(lambda: member.mesh.join_figures().requests == ())


async def test_a_member_that_stops_ends_the_waiting(tmp_path: Path):
    async with open_lab(tmp_path) as lab, anyio.create_task_group() as group:
        member, newcomer, _ = await pair(lab)
        asked = await newcomer.mesh.joining.ask(member.address)
        outcome = finish(group, newcomer, asked)
        await the_request(member)
        await member.stop()
        assert await outcome.code() == "join_interrupted"
        assert isinstance(outcome.error, UnreachableError)


async def test_one_that_is_not_free_any_more_gives_back_what_was_granted(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        member, newcomer, _ = await pair(lab)
        given_back: list[NodeId] = []

        async def declined(node: NodeId, name: str) -> None:
            given_back.append(node)

        member.mesh.on_decline = declined
        asked = await newcomer.mesh.joining.ask(member.address)
        member.mesh.judge_request((await the_request(member)).id, approve=True)
        with pytest.raises(ConflictError):
            await newcomer.mesh.joining.finish(asked.id, SECONDS, lambda: False)
        await eventually(lambda: given_back == [newcomer.node])


async def test_one_in_between_makes_the_codes_differ(tmp_path: Path):
    """It holds both connections, passes every word on, and still has two other ids."""
    async with open_lab(tmp_path) as lab:
        member, newcomer, _ = await pair(lab)
        between = await lab.start("between", cluster=OTHER_CLUSTER)
        between.mesh.on_join = Master()
        towards_between = await newcomer.mesh.joining.ask(between.address)
        await between.mesh.joining.ask(member.address)
        shown_by_member = (await the_request(member)).code
        # One chance in a million to be equal all the same.
        assert shown_by_member != towards_between.code


async def ask_by_hand(stranger: Stranger) -> GreetingStream:
    """The greeting of one that asks, up to the member's commitment."""
    met = await stranger.introduce(bearing_of(), "ask")
    await stranger.dialler.send_proof(met)
    return stranger.wire


async def test_the_member_is_bound_before_it_hears_the_other_nonce(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        member, _, _ = await pair(lab)
        async with call(member.address, lab.identity("stranger")) as stranger:
            wire = await ask_by_hand(stranger)
            said, _ = await wire.receive()
            assert isinstance(said, Commitment)
            assert member.mesh.join_figures().requests == ()
            await wire.send(Revelation(nonce=new_nonce()))
            opened, _ = await wire.receive()
            assert isinstance(opened, Revelation)
            await the_request(member)


async def test_three_requests_without_approval_are_all_for_ten_minutes(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        member, newcomer, _ = await pair(lab)
        for _ in range(3):
            asked = await newcomer.mesh.joining.ask(member.address)
            member.mesh.judge_request((await the_request(member)).id, approve=False)
            with pytest.raises(RefusedError):
                await newcomer.mesh.joining.finish(asked.id, SECONDS)
        with pytest.raises(RefusedError) as caught:
            await newcomer.mesh.joining.ask(member.address)
        assert caught.value.failure.code == "too_many_requests"


async def test_only_so_many_machines_wait_at_a_time(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        member, newcomer, _ = await pair(lab, requests_max=1)
        other = await lab.start("other", cluster=OTHER_CLUSTER)
        await newcomer.mesh.joining.ask(member.address)
        await the_request(member)
        with pytest.raises(RefusedError) as caught:
            await other.mesh.joining.ask(member.address)
        assert caught.value.failure.code == "join_busy"
        assert caught.value.failure.node == "member"


async def test_a_refusal_before_any_code_is_a_verdict_with_the_reason(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        member, _, _ = await pair(lab)
        member.mesh.on_join = None
        async with call(member.address, lab.identity("stranger")) as stranger:
            wire = await ask_by_hand(stranger)
            said, _ = await wire.receive()
            assert isinstance(said, Verdict)
            assert said.refusal is not None
            assert said.refusal.code == "join_busy"


async def test_those_that_are_still_agreeing_on_a_code_count_among_those_that_wait(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        member, newcomer, _ = await pair(lab, requests_max=1)
        async with call(member.address, lab.identity("stranger")) as stranger:
            wire = await ask_by_hand(stranger)
            said, _ = await wire.receive()
            assert isinstance(said, Commitment)  # it keeps its own nonce to itself so far
            with pytest.raises(RefusedError) as caught:
                await newcomer.mesh.joining.ask(member.address)
            assert caught.value.failure.code == "join_busy"


async def test_one_address_does_not_get_more_tries_by_asking_at_once(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        member, newcomer, _ = await pair(lab)
        for number in range(3):
            other = await lab.start(f"other{number}", cluster=OTHER_CLUSTER)
            await other.mesh.joining.ask(member.address)
        with pytest.raises(RefusedError) as caught:
            await newcomer.mesh.joining.ask(member.address)
        assert caught.value.failure.code == "too_many_requests"


async def test_a_machine_that_confirms_for_ever_is_heard_once(tmp_path: Path):
    async with open_lab(tmp_path) as lab:
        member, _, _ = await pair(lab)
        changes: list[int] = []
        member.mesh.watch_requests(lambda: changes.append(1))
        async with call(member.address, lab.identity("stranger")) as stranger:
            wire = await ask_by_hand(stranger)
            await wire.receive()
            await wire.send(Revelation(nonce=new_nonce()))
            await wire.receive()
            for _ in range(200):
                await wire.send(Verdict())
            await eventually(lambda: len(changes) >= 2)
            await anyio.sleep(0.1)
        assert len(changes) <= 3
